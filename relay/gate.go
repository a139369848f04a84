package relay

import (
	"slices"
	"sync"
	"time"
)

// gate keeps each key in order: while one event of a key is in doubt, later ones of that key wait and
// all other keys pass. It also knows which rows are busy (read and not settled), under the same lock:
// whether a row may come again and whether its key is open must be decided together, else a row handed
// back while its key reopens would be skipped for good.
type gate struct {
	mu       sync.Mutex
	skipDead bool // on_dead: skip
	keys     map[string]*closed
	busy     map[RowID]struct{}
	reopened []Blocked
	blocked  []Blocked // cache of keys for Fetch; nil after a change
	opened   func()    // called when a key reopened; must not call back
}

// closed is one closed key: its events in doubt, in the order of reading. The first is the head, the
// only one that may be sent. The key reopens when none is left.
type closed struct {
	first  RowID // where the rows begin that were passed over meanwhile
	doubts []doubt
}

type doubt struct {
	row  RowID
	read uint64 // the event's place in the order of reading
	kind doubtKind
	// topic and until belong to doubtAway: over when the topic answers again, at until the latest.
	topic string
	until time.Time
}

type doubtKind int

const (
	// doubtPending: handed to the sink, which has no answer yet.
	doubtPending doubtKind = iota
	// doubtAway: handed back unsent because its destination does not answer.
	doubtAway
	// doubtFailed: FAILED; the Store brings it when it is due.
	doubtFailed
	// doubtDead: DEAD, holds its key until a person acts.
	doubtDead
)

func newGate(onDead string, opened func()) *gate {
	return &gate{
		skipDead: onDead == OnDeadSkip,
		keys:     map[string]*closed{},
		busy:     map[RowID]struct{}{},
		opened:   opened,
	}
}

// load closes the keys of rows that were in doubt before this relay started, oldest first, so that a
// restart does not let their successors pass (case O01).
func (g *gate) load(ds []Doubt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		kind := doubtFailed
		if d.State == StateDead {
			kind = doubtDead
		}
		g.put(d.Key, doubt{row: d.Row, kind: kind})
	}
}

// snapshot fills what a Fetch needs to know and takes the reopened keys with it. When the Fetch fails
// they go back by restore.
func (g *gate) snapshot(f *Fetch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.Busy = make([]RowID, 0, len(g.busy))
	for row := range g.busy {
		f.Busy = append(f.Busy, row)
	}
	if g.blocked == nil {
		g.blocked = make([]Blocked, 0, len(g.keys))
		for key, c := range g.keys {
			g.blocked = append(g.blocked, Blocked{Key: key, Head: c.doubts[0].row})
		}
	}
	f.Blocked = g.blocked
	if !f.HeadsOnly {
		f.Reopened, g.reopened = g.reopened, nil
	}
}

func (g *gate) restore(reopened []Blocked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reopened = append(reopened, g.reopened...)
}

func (g *gate) hasReopened() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.reopened) > 0
}

// take marks rows as busy.
func (g *gate) take(evs []Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range evs {
		g.busy[evs[i].Row] = struct{}{}
	}
}

// passes says whether the event may be sent now: its key is open, or it is the key's head itself.
func (g *gate) passes(e *Event) bool {
	if e.Key == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c, shut := g.keys[*e.Key]
	return !shut || c.doubts[0].row == e.Row && c.doubts[0].kind != doubtPending
}

// wait closes the key of an event whose answer is late.
func (g *gate) wait(e *Event) {
	g.close(e, doubt{kind: doubtPending})
}

// away closes the key of an event that is handed back unsent, until its topic answers again.
func (g *gate) away(e *Event, topic string, until time.Time) {
	g.close(e, doubt{kind: doubtAway, topic: topic, until: until})
}

// fail closes the key of an event that was refused, before anything else of the key is handed to the
// sink. dead means that the event is given up.
func (g *gate) fail(e *Event, dead bool) {
	kind := doubtFailed
	if dead {
		kind = doubtDead
	}
	g.close(e, doubt{kind: kind})
}

func (g *gate) close(e *Event, d doubt) {
	if e.Key == nil {
		return
	}
	d.row, d.read = e.Row, e.read
	g.mu.Lock()
	defer g.mu.Unlock()
	g.put(*e.Key, d)
}

// put must be called with the lock held. An event already in doubt keeps its place.
func (g *gate) put(key string, d doubt) {
	g.blocked = nil
	c, shut := g.keys[key]
	if !shut {
		g.keys[key] = &closed{first: d.row, doubts: []doubt{d}}
		return
	}
	if i := c.find(d.row); i >= 0 {
		d.read = c.doubts[i].read
		c.doubts[i] = d
		return
	}
	i := len(c.doubts)
	for i > 0 && c.doubts[i-1].read > d.read {
		i--
	}
	if i == 0 {
		c.first = d.row
	}
	c.doubts = slices.Insert(c.doubts, i, d)
}

func (c *closed) find(row RowID) int {
	return slices.IndexFunc(c.doubts, func(d doubt) bool { return d.row == row })
}

// handBack frees a row that was read and not sent. It comes again: with the reopening of its key, or
// at once when the key is open by now.
func (g *gate) handBack(e *Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, e.Row)
	if e.Key == nil {
		return
	}
	g.drop(*e.Key, func(d *doubt) bool { return d.row == e.Row && d.kind == doubtPending })
	if _, shut := g.keys[*e.Key]; !shut {
		g.reopened = append(g.reopened, Blocked{Key: *e.Key, Head: e.Row})
	}
}

// settled frees a row whose outcome is in the table; its key opens when nothing of it is in doubt.
func (g *gate) settled(e *Event, s State) {
	if s == StateNew {
		g.handBack(e)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, e.Row)
	if e.Key == nil {
		return
	}
	if s == StateSent || s == StateDead && g.skipDead {
		g.drop(*e.Key, func(d *doubt) bool { return d.row == e.Row })
	}
}

// answered ends the wait of keys for a topic, because the topic answers again.
func (g *gate) answered(topic string) {
	g.dropAll(func(d *doubt) bool { return d.kind == doubtAway && d.topic == topic })
}

// expire ends the waits that have lasted their longest.
func (g *gate) expire(now time.Time) {
	g.dropAll(func(d *doubt) bool { return d.kind == doubtAway && !d.until.After(now) })
}

// release ends the doubt about rows that were asked about and are not in still.
func (g *gate) release(asked, still []RowID) {
	gone := make(map[RowID]bool, len(asked))
	for _, row := range asked {
		gone[row] = true
	}
	for _, row := range still {
		delete(gone, row)
	}
	if len(gone) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.keys {
		g.drop(key, func(d *doubt) bool {
			_, busy := g.busy[d.row]
			return gone[d.row] && !busy && d.kind != doubtPending
		})
	}
}

func (g *gate) dropAll(match func(*doubt) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.keys {
		g.drop(key, match)
	}
}

// drop must be called with the lock held.
func (g *gate) drop(key string, match func(*doubt) bool) {
	c, shut := g.keys[key]
	if !shut {
		return
	}
	left := slices.DeleteFunc(c.doubts, func(d doubt) bool { return match(&d) })
	if len(left) == len(c.doubts) {
		return
	}
	c.doubts = left
	g.blocked = nil
	if len(left) > 0 {
		return
	}
	delete(g.keys, key)
	g.reopened = append(g.reopened, Blocked{Key: key, Head: c.first})
	if g.opened != nil {
		g.opened()
	}
}

// heads lists at most n rows that a person's act may take out of doubt.
func (g *gate) heads(n int) []RowID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var rows []RowID
	for _, c := range g.keys {
		if len(rows) == n {
			break
		}
		d := &c.doubts[0]
		if _, busy := g.busy[d.row]; !busy && (d.kind == doubtDead || d.kind == doubtFailed) {
			rows = append(rows, d.row)
		}
	}
	return rows
}

// size is the number of closed keys.
func (g *gate) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}
