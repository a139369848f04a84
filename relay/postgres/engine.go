package postgres

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// Bounds of one Fetch.
const (
	minWindow   = 500    // rows that one read forward looks at, at least
	maxWindow   = 20_000 // and at most, when they hold little that is due
	filterKeys  = 1_000  // closed keys that are named in a statement
	exactDueFor = 30 * time.Second
)

// bounds are those that tests make small.
type bounds struct {
	lookup int // ranges of ids looked at by one statement
	replay int // rows that one read for reopened keys looks at
	due    int // due rows read before the database filters them
}

var usualBounds = bounds{lookup: 5_000, replay: 10_000, due: 1_000}

// rows is what the engine needs of the database: two rounds of reads and the claim. The second round of a
// Fetch only ever has locks and lookup.
type rows interface {
	read(ctx context.Context, r round) (answers, error)
	// claim takes those of the rows that are still due and free, in one transaction that has ended when it
	// returns: at most limit rows and so many bytes.
	claim(ctx context.Context, picks []record, limit int, bytes int64) ([]record, error)
}

// engine decides what a Fetch reads and what of it may be returned. Order is its business:
//
//   - Within one round the forward read comes first and the look at gaps after it, in a newer
//     snapshot. An event that the forward read saw was committed after the earlier events of its key,
//     so those are visible in the newer snapshot.
//   - The second look at gaps sees commits that the first look at the locks did not know of. An event
//     found by it is returned only if no lower gap, one that it did not look at, may have been filled by
//     then: the locks are asked again after it.
//   - Nothing of the forward read is returned before everything that is ready below the cursor is.
//   - Rows of a reopened key come from the replay first; while that is not through, the forward read
//     passes the key's rows over, and the replay comes to them later.
type engine struct {
	rows    rows
	claims  bool // claim: rows
	gapless bool // gaps cannot be known: rows below the cursor are found by index instead
	delays  bool // NEW rows with a future time are tracked here, not found by the index of due rows
	bounds  bounds

	mu      sync.Mutex // guards tracker and what follows
	lanes   *laneSet   // nil with other claim modes
	epoch   int        // counts the changes of lanes
	tracker *tracker
	// early are transactions that were open when the cursor was placed: until all of them have ended, new
	// rows below the cursor are looked for by index. nil: there are none.
	early *gapGroup
	// earlyEnded: one of them has ended since the look below the cursor, so its rows may be there and were not seen.
	earlyEnded bool
	window     int
	// skipForward: the last answer did not hold all that was ready; nothing newer may come before.
	skipForward bool
	big         bool // an oversize event of the forward read was passed by: it goes first
	exactDue    time.Time
	gate        gateView
	found       int64 // rows that a sweep had to find
}

// gateView is the closed gates of the last Fetch, kept because they seldom change.
type gateView struct {
	list  []relay.Blocked
	heads map[string]int64
	keys  []string // at most filterKeys
}

func (g *gateView) update(list []relay.Blocked) {
	if g.heads != nil && slices.Equal(g.list, list) {
		return
	}
	g.list = slices.Clone(list)
	g.heads = make(map[string]int64, len(list))
	g.keys = g.keys[:0:0]
	for _, b := range list {
		g.heads[b.Key] = parseRow(b.Head)
		if len(g.keys) < filterKeys {
			g.keys = append(g.keys, b.Key)
		}
	}
}

// parseRow gives the id of a row that this package named, and 0, which no row has, for anything else.
func parseRow(r relay.RowID) int64 {
	id, err := strconv.ParseInt(string(r), 10, 64)
	if err != nil {
		return 0
	}
	return id
}

func rowID(id int64) relay.RowID { return relay.RowID(strconv.FormatInt(id, 10)) }

func parseRows(rs []relay.RowID) []int64 {
	ids := make([]int64, len(rs))
	for i, r := range rs {
		ids[i] = parseRow(r)
	}
	slices.Sort(ids)
	return ids
}

// fetch answers one Fetch. When it fails, nothing is passed over that was not returned.
func (e *engine) fetch(ctx context.Context, f relay.Fetch, now time.Time) (relay.Fetched, error) {
	busy := parseRows(f.Busy)
	t, first := e.plan(f, busy, now)
	got, err := e.rows.read(ctx, first)
	if err != nil {
		return relay.Fetched{}, err
	}
	second := e.suspects(t, first, got)
	var more answers
	if len(second.lookup) > 0 {
		if more, err = e.rows.read(ctx, second); err != nil {
			return relay.Fetched{}, err
		}
	}
	c := e.choose(t, f, busy, first, got, second, more)
	if e.claims && len(c.picks) > 0 {
		claimed, err := e.rows.claim(ctx, c.picks, f.Limit, f.MaxBytes)
		if err != nil {
			return relay.Fetched{}, err
		}
		c.claimed(claimed)
	}
	return e.commit(t, c), nil
}

// plan brings the tracker in line with the request and says what to read.
func (e *engine) plan(f relay.Fetch, busy []int64, now time.Time) (*tracker, round) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tracker
	e.gate.update(f.Blocked)
	if !e.claims {
		t.handedBack(busy)
		t.adopt(busy)
	}
	reopened := make([]int64, 0, len(f.Reopened))
	for _, b := range f.Reopened {
		reopened = append(reopened, parseRow(b.Head))
	}
	t.gates(e.gate.heads, reopened)
	t.wakeDelayed(now)

	ask := round{limit: f.Limit, looks: f.Limit, bytes: f.MaxBytes, lanes: e.lanes.filter(), due: e.askDue(busy, now), gapless: e.gapless}
	if f.HeadsOnly {
		ask.headsOnly = true
		if e.delays {
			ask.lookup = e.firstSpans(t.ready.both(ofIDs(slices.Collect(maps.Values(e.gate.heads)))))
		}
		return t, ask
	}
	// The look below the cursor brings the rows of reopened keys too.
	below := e.gapless || e.early != nil
	if len(t.replay) > 0 && !below {
		ask.replay = &replayAsk{from: t.replayFrom(), to: t.cursor, keys: t.replayKeys(), window: e.bounds.replay}
	}
	ask.lookup = e.firstSpans(t.ready)
	if !e.skipForward {
		e.window = min(max(e.window, f.Limit, minWindow), max(maxWindow, f.Limit))
		ask.forward = &forwardAsk{after: t.cursor, window: e.window, blocked: e.gate.keys}
	}
	if ask.lanes != nil {
		ask.looks = max(ask.looks, e.window)
	}
	ask.locks = len(t.gaps) > 0 || e.early != nil
	if below {
		ask.below = &belowAsk{upTo: t.cursor, limit: min(f.Limit, e.bounds.lookup), busy: busy, blocked: allKeys(f.Blocked)}
		ask.below.last = e.early != nil && len(e.early.holders) == 0
	}
	return t, ask
}

// askDue asks for a page of due rows; once a page was full of rows that may not come, the database is
// told which ones may.
func (e *engine) askDue(busy []int64, now time.Time) *dueAsk {
	ask := &dueAsk{page: e.bounds.due, exact: now.Before(e.exactDue)}
	if ask.exact {
		ask.blocked, ask.busy = allKeys(e.gate.list), busy
		for _, head := range e.gate.heads {
			ask.heads = append(ask.heads, head)
		}
	}
	return ask
}

func allKeys(list []relay.Blocked) []string {
	keys := make([]string, len(list))
	for i := range list {
		keys[i] = list[i].Key
	}
	return keys
}

func (e *engine) firstSpans(s spans) spans { return slices.Clone(s[:min(len(s), e.bounds.lookup)]) }

// suspects says what the second round must look at: gaps whose holders have changed, and ids that were
// missing in the forward read, after it is known who may still fill them.
func (e *engine) suspects(t *tracker, first round, got answers) round {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.earlyEnded = false
	if got.locks != nil {
		t.suspect(got.locks)
		switch {
		case e.early == nil:
		case first.below != nil && first.below.last:
			for _, r := range got.passed {
				t.pass(*r.key, r.id)
			}
			if len(got.below) < first.below.limit {
				e.early = nil // this round has looked after the last of them had ended
			}
		default:
			e.earlyEnded = e.early.check(got.locks)
		}
	}
	t.ready = t.ready.union(ofIDs(got.below))
	second := round{limit: first.limit, looks: first.looks, bytes: first.bytes, lanes: first.lanes}
	if first.headsOnly {
		return second
	}
	look := t.ready.minus(first.lookup)
	if first.forward != nil && !e.gapless {
		fresh := missing(first.forward.after, idsOf(got.forward))
		second.locksFirst = len(fresh) > 0 && got.locks == nil
		look = look.union(fresh)
	}
	second.lookup = e.firstSpans(look)
	second.locks = len(t.gaps)+len(t.waiting) > 0 || e.early != nil
	return second
}

func idsOf(recs []record) []int64 {
	ids := make([]int64, len(recs))
	for i := range recs {
		ids[i] = recs[i].id
	}
	return ids
}

func lower(a, b record) int { return cmp.Compare(a.id, b.id) }

// lookedAt returns the ids of a round's lookup that were really looked at.
func lookedAt(r round, got answers) spans {
	if got.lookCut {
		return r.lookup.upTo(got.lookup[len(got.lookup)-1].id)
	}
	return r.lookup
}

// commit notes what the choice means for the next Fetch and builds the answer.
func (e *engine) commit(t *tracker, c *choice) relay.Fetched {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.looked(c.done, c.appeared, c.keep)
	for _, r := range c.passed {
		t.pass(*r.key, r.id)
	}
	for _, r := range c.later {
		if e.delays {
			t.delay(r.id, c.now.Add(r.wait))
		}
	}
	t.replayedTo(c.replayed)
	t.cursor = c.cursor
	t.addGaps(c.holders, c.fresh)
	slices.SortFunc(c.picks, lower)
	got := relay.Fetched{More: c.more, Events: make([]relay.Event, 0, len(c.picks))}
	for i := range c.picks {
		r := &c.picks[i]
		if !e.claims {
			t.out[r.id] = taken{attempts: int32(r.event.RetryCount), retry: r.state == relay.StateFailed}
		}
		if r.state == relay.StateSending {
			got.Reclaimed++
		}
		got.Events = append(got.Events, r.event)
	}
	e.skipForward, e.big, e.window = !c.readyDone, c.big, c.window
	if c.tooManyDue {
		e.exactDue = c.now.Add(exactDueFor)
	}
	return got
}

// settled notes marks that are in the table. Rows that went back unsent are looked at again.
func (e *engine) settled(outs []relay.Outcome, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var back []int64
	for i := range outs {
		id := parseRow(outs[i].Row)
		if outs[i].State == relay.StateFailed && e.delays {
			e.tracker.delay(id, now.Add(outs[i].RetryAfter))
		}
		switch {
		case outs[i].State != relay.StateNew && !e.claims:
			e.tracker.settled[id] = e.tracker.out[id]
			delete(e.tracker.out, id)
		case outs[i].State == relay.StateNew && e.claims && id <= e.tracker.cursor:
			back = append(back, id) // without claims it is in out, and ready once it is not busy
		}
	}
	e.tracker.ready = e.tracker.ready.union(ofIDs(back))
}

// triesOf fills in the attempts that rows had when they were returned, where that is known.
func (e *engine) triesOf(ids []int64, tries []int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, id := range ids {
		row, ok := e.tracker.out[id]
		if !ok {
			row, ok = e.tracker.settled[id] // the same outcomes again
		}
		if ok {
			tries[i] = row.attempts
		}
	}
}

// reset begins anew behind a cursor. early are the transactions that may hold ids up to it.
func (e *engine) reset(cursor int64, early []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tracker, e.early = newTracker(cursor), nil
	if len(early) > 0 {
		e.early = &gapGroup{holders: early}
	}
}

func (e *engine) cursor() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tracker.cursor
}

func (e *engine) low() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tracker.low()
}

// unknown returns those of the rows that no place of the tracker has.
func (e *engine) unknown(recs []record, now time.Time) []record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(recs, func(r record) bool { return e.tracker.knows(r.id, r.key, now) })
}

// sweptUp makes rows that were missed ready, unless the lanes have changed since the sweep began.
func (e *engine) sweptUp(recs []record, epoch int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch != epoch {
		return
	}
	e.tracker.ready = e.tracker.ready.union(ofIDs(idsOf(recs)))
	if !e.claims { // with claims other relays hand rows back without telling
		e.found += int64(len(recs))
	}
}

func (e *engine) sweepFound() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.found
}
