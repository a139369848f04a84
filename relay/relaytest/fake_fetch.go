package relaytest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// cursor is how far a scan by cursor has come, and what it must not forget below.
type cursor struct {
	at    int64            // rows up to here were looked at, except
	gaps  map[int64]bool   // ids that a transaction had drawn and not committed,
	out   map[int64]bool   // rows that came and are busy,
	again map[int64]bool   // rows of reopened keys that did not fit the answer, and that are busy no more,
	below map[string]int64 // and by key the lowest row that was passed over because its key was blocked
}

func newCursor() cursor {
	return cursor{gaps: map[int64]bool{}, out: map[int64]bool{}, again: map[int64]bool{}, below: map[string]int64{}}
}

func (c cursor) clone() cursor {
	return cursor{at: c.at, gaps: maps.Clone(c.gaps), out: maps.Clone(c.out), again: maps.Clone(c.again), below: maps.Clone(c.below)}
}

// pick is one Fetch under way.
type pick struct {
	s    *FakeStore
	f    relay.Fetch
	busy map[relay.RowID]bool
	head map[string]relay.RowID // by blocked key
	next cursor                 // becomes the store's once the answer has arrived
	rows []*fakeRow
}

// Fetch implements relay.Store.
func (s *FakeStore) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	s.fetching.Store(true)
	defer s.fetching.Store(false)
	fault, err := s.enter(ctx, "Fetch")
	if err != nil {
		return relay.Fetched{}, err
	}
	got, err := s.fetch(f, fault)
	s.db.mu.Unlock()
	time.Sleep(fault.Late)
	return got, err
}

func (s *FakeStore) fetch(f relay.Fetch, fault FakeFault) (relay.Fetched, error) {
	p := &pick{s: s, f: f, busy: map[relay.RowID]bool{}, head: map[string]relay.RowID{}, next: s.cursor.clone()}
	for _, row := range f.Busy {
		p.busy[row] = true
	}
	for _, b := range f.Blocked {
		p.head[b.Key] = b.Head
	}
	p.candidates()
	got := p.answer()
	if fault.After != nil {
		return relay.Fetched{}, fmt.Errorf("Fetch: %w", fault.After)
	}
	s.cursor = p.next
	return got, nil
}

// candidates collects due rows, free to come, in row order.
func (p *pick) candidates() {
	for _, r := range p.s.db.rows {
		if p.due(r) && p.mayCome(r) {
			p.rows = append(p.rows, r)
		}
	}
	if p.s.o.Cursor {
		p.scan()
	}
	slices.SortFunc(p.rows, func(a, b *fakeRow) int { return cmp.Compare(a.id, b.id) })
}

// due says whether a row is due by its columns. A scan by cursor does not look for NEW rows that way.
func (p *pick) due(r *fakeRow) bool {
	if !p.s.mine(r) {
		return false
	}
	now := p.s.db.now()
	switch r.state {
	case relay.StateNew:
		return (!p.s.o.Cursor || p.isHead(r) && p.headMayCome(r)) && !r.due.After(now)
	case relay.StateFailed:
		return !r.due.After(now)
	case relay.StateSending:
		return p.s.o.Claim == relay.ClaimRows && p.abandoned(r)
	}
	return false
}

func (p *pick) abandoned(r *fakeRow) bool {
	return r.state == relay.StateSending && p.s.db.now().Sub(r.claimed) > p.s.o.ClaimTimeout
}

func (p *pick) isHead(r *fakeRow) bool {
	key := r.key()
	return key != nil && p.head[*key] == r.rowID()
}

// mayCome says whether neither the row's being busy nor its key's gate keeps it back.
func (p *pick) mayCome(r *fakeRow) bool {
	if p.busy[r.rowID()] {
		return false
	}
	shut := p.shut(r)
	if p.f.HeadsOnly && !shut {
		return false
	}
	return !shut || p.isHead(r) && p.headMayCome(r)
}

// headMayCome says whether a head has failed before; with claims it may be NEW again since.
func (p *pick) headMayCome(r *fakeRow) bool {
	return r.state != relay.StateNew || !r.due.IsZero() || p.s.o.NewHeads
}

func (p *pick) shut(r *fakeRow) bool {
	key := r.key()
	if key == nil {
		return false
	}
	_, shut := p.head[*key]
	return shut
}

// scan adds NEW rows: those of reopened keys, those whose gap has been filled, and those ahead.
func (p *pick) scan() {
	if p.f.HeadsOnly {
		return
	}
	p.handedBack()
	for _, b := range p.f.Reopened {
		p.reopen(b)
	}
	for key, low := range p.next.below { // it waited when another relay had it
		if _, shut := p.head[key]; !shut {
			p.reopen(relay.Blocked{Key: key, Head: rowID(low)})
		}
	}
	for _, r := range p.s.db.rows {
		if r.id > p.next.at {
			p.leap(r.id)
		} else if !p.next.gaps[r.id] && !p.next.again[r.id] {
			continue
		}
		delete(p.next.gaps, r.id)
		switch {
		case r.state != relay.StateNew || p.busy[r.rowID()] || !p.s.mine(r):
			delete(p.next.again, r.id)
		case p.shut(r):
			delete(p.next.again, r.id)
			p.passOver(r)
		default:
			p.next.again[r.id] = true // until it is in an answer
			if !r.due.After(p.s.db.now()) {
				p.rows = append(p.rows, r)
			}
		}
	}
	maps.DeleteFunc(p.next.gaps, func(id int64, _ bool) bool { return !p.s.db.open[id] })
}

// handedBack looks again at rows that came and are not called busy any more. Those ahead of the cursor come
// in their turn.
func (p *pick) handedBack() {
	for id := range p.next.out {
		row := rowID(id)
		if p.busy[row] {
			continue
		}
		delete(p.next.out, id)
		if id <= p.next.at && p.s.db.row(row) != nil {
			p.next.again[id] = true
		}
	}
}

// leap moves the cursor forward over ids that are not visible yet, or never will be.
func (p *pick) leap(id int64) {
	for gap := p.next.at + 1; gap < id; gap++ {
		if p.s.db.open[gap] {
			p.next.gaps[gap] = true
		}
	}
	p.next.at = id
}

func (p *pick) passOver(r *fakeRow) {
	key := *r.key()
	if low, known := p.next.below[key]; !known || r.id < low {
		p.next.below[key] = r.id
	}
}

func (p *pick) reopen(b relay.Blocked) {
	from := p.next.at + 1
	if low, known := p.next.below[b.Key]; known {
		from = low
		delete(p.next.below, b.Key)
	}
	if head := p.s.db.row(b.Head); head != nil {
		from = min(from, head.id)
	} else {
		var n int64
		if _, err := fmt.Sscan(string(b.Head), &n); err == nil {
			from = min(from, n)
		}
	}
	for _, r := range p.s.db.rows {
		if key := r.key(); key != nil && *key == b.Key && r.id >= from && r.id <= p.next.at && !p.next.gaps[r.id] {
			p.next.again[r.id] = true
		}
	}
}

// answer cuts what was found to the limits, claims it where claims are written, and reads it.
func (p *pick) answer() relay.Fetched {
	var got relay.Fetched
	var bytes int64
	last, cut := p.s.cut, int64(0)
	for i, r := range p.rows {
		e := p.s.read(r)
		if len(got.Events) == max(1, p.f.Limit) {
			got.More = true
			break
		}
		if bytes += e.Size(); bytes > p.f.MaxBytes && len(got.Events) > 0 {
			got.More, cut = true, r.id
			if cut == last && p.firstOfKey(i) {
				// Smaller rows that are due again and again must not keep a big one away.
				got.Events, cut = []relay.Event{e}, 0
			}
			break
		}
		got.Events = append(got.Events, e)
	}
	p.s.cut = cut
	for i := range got.Events {
		p.took(&got, &got.Events[i])
	}
	return got
}

func (p *pick) firstOfKey(i int) bool {
	key := p.rows[i].key()
	return key == nil || !slices.ContainsFunc(p.rows[:i], func(r *fakeRow) bool { return r.key() != nil && *r.key() == *key })
}

func (p *pick) took(got *relay.Fetched, e *relay.Event) {
	r := p.s.db.row(e.Row)
	delete(p.next.again, r.id)
	if p.s.o.Claim != relay.ClaimRows {
		p.next.out[r.id] = true
		return
	}
	if p.abandoned(r) {
		got.Reclaimed++
		r.reclaims++
	}
	p.s.db.claims++
	r.token, r.claimed = fmt.Sprintf("%s-%d", p.s.o.Relay, p.s.db.claims), p.s.db.now()
	p.s.db.put(r, relay.StateSending)
	e.State, e.Claim = relay.StateSending, r.token
}

func (s *FakeStore) read(r *fakeRow) relay.Event {
	e := relay.Event{
		Row: r.rowID(), State: r.state, ID: r.EventID, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
		Type: r.Type, Topic: r.Topic, Payload: r.Payload, RetryCount: r.attempts,
		CreatedAt: r.created.UTC(), Age: s.db.now().Sub(r.created), Malformed: r.malformed,
	}
	if r.Tombstone {
		e.Payload = nil
	}
	if key := r.key(); key != nil {
		own := *key
		e.Key = &own
	}
	return e
}
