package postgres

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// choice is what one Fetch returns of the rows that were read, and what that means for the tracker.
type choice struct {
	limit int
	bytes int64
	laned bool // some lanes are other relays'
	busy  []int64
	heads map[string]int64 // closed gates
	track *tracker         // as it was planned; read only
	now   time.Time

	picks []record
	used  int64          // bytes of picks
	taken map[int64]bool // ids of picks that more than one read may have seen
	bound int64          // from here on what the second round found may have overtaken a gap

	done, appeared, keep spans // ready ids: looked at, found, found and still to be returned
	readyDone            bool  // all that was ready was looked at, and is taken or not ready any more
	passed, later        []record
	replayed             int64 // reopened keys are read below this id
	replayDone           bool
	replayless           bool // there is no replay: what is new below the cursor comes by index
	cursor               int64
	fresh                spans // missing ids that the cursor passed
	holders              []string
	window               int
	more                 bool
	big                  bool
	tooManyDue           bool
}

// choose picks what may be returned: first what was ready below the cursor, all of it before anything
// newer; then a share for retries and one for reopened keys, so that none of them starves the rest; then new
// events; and retries again in the room that is left.
func (e *engine) choose(t *tracker, f relay.Fetch, busy []int64, first round, got answers, second round, more answers) *choice {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &choice{
		limit: f.Limit, bytes: f.MaxBytes, laned: first.lanes != nil, busy: busy, heads: e.gate.heads, track: t, now: got.now,
		taken: map[int64]bool{}, bound: math.MaxInt64, cursor: t.cursor, window: e.window, replayDone: first.replay == nil,
		more: first.forward == nil && !f.HeadsOnly,
	}
	if more.locks != nil && second.locks {
		c.bound = t.unsettledFrom(more.locks, lookedAt(second, more))
		if e.early != nil && (e.earlyEnded || e.early.changed(more.locks)) {
			c.bound = 0
		}
	}
	forward, ready := c.split(first, got, second, more)
	ready = c.onlySeen(ready, first, got)
	held := c.takeReady(ready)
	due := c.dueCandidates(got.due, f.HeadsOnly)
	if !e.big {
		due = c.takeShare(due, f.Limit/2, f.MaxBytes/2)
	}
	if c.readyDone && first.replay != nil {
		c.takeReplay(got, first.replay)
	}
	c.takeHeld(held)
	if c.readyDone && first.forward != nil {
		c.takeForward(forward, first.forward, got.forwardEnd)
	}
	due = c.takeShare(due, f.Limit, f.MaxBytes)
	c.tooManyDue = got.dueFull && !first.due.exact
	c.more = c.more || !c.readyDone || !c.replayDone || len(due) > 0 || got.dueFull && len(c.picks) > 0 || c.tooManyDue
	return c
}

// split sorts out what the lookups found: rows up to the cursor were ready, later ones belong to the
// forward read. Of the forward read only that part is kept whose missing ids were all looked at.
func (c *choice) split(first round, got answers, second round, more answers) (forward, ready []record) {
	c.done = lookedAt(first, got).union(lookedAt(second, more))
	ready, forward = slices.Clone(got.lookup), slices.Clone(got.forward) // got is asked again below
	for _, r := range more.lookup {
		r.late = true
		if r.id > c.track.cursor {
			forward = append(forward, r)
		} else {
			ready = append(ready, r)
		}
	}
	slices.SortFunc(forward, lower)
	slices.SortFunc(ready, lower)
	// Who may fill what the forward read missed is whoever held the lock before that was looked at: a transaction
	// that ended between the look and the last view of the locks has filled its gap unseen.
	for _, view := range []*lockView{got.locks, more.locksFirst} {
		if view != nil {
			c.holders = view.names()
		}
	}
	if first.gapless || first.forward == nil {
		return forward, ready
	}
	if unseen := missing(c.track.cursor, idsOf(got.forward)).minus(c.done); len(unseen) > 0 {
		n, _ := slices.BinarySearchFunc(forward, unseen[0].lo, func(r record, id int64) int { return cmp.Compare(r.id, id) })
		forward, c.more = forward[:n], true
	}
	return forward, ready
}

// onlySeen leaves out what is above an id that was not looked at: it may belong after it.
func (c *choice) onlySeen(ready []record, first round, got answers) []record {
	unseen := c.track.ready.minus(c.done)
	if b := first.below; b != nil {
		c.replayless = true
		if len(got.below) == b.limit {
			unseen = unseen.union(spans{{got.below[b.limit-1] + 1, math.MaxInt64 - 1}})
		}
	}
	if c.readyDone = first.headsOnly || len(unseen) == 0; c.readyDone {
		return ready
	}
	n, _ := slices.BinarySearchFunc(ready, unseen[0].lo, func(r record, id int64) int { return cmp.Compare(r.id, id) })
	c.done = c.done.upTo(unseen[0].lo)
	return ready[:n]
}

// admit takes a row if it fits. One that is larger than the bound is taken alone.
func (c *choice) admit(r record) bool {
	switch {
	case c.taken[r.id]:
		return true
	case r.kind == kindOver || r.late && r.id >= c.bound || len(c.picks) >= c.limit:
		return false
	case len(c.picks) > 0 && c.used+r.size > c.bytes:
		c.big = c.big || r.size > c.bytes
		return false
	}
	if c.picks == nil {
		c.picks = make([]record, 0, c.limit)
	}
	c.picks = append(c.picks, r)
	c.used += r.size
	c.taken[r.id] = true
	return true
}

// passes says whether the row's key is open, or the row is the head that is tried again.
func (c *choice) passes(r record) bool {
	if r.key == nil {
		return true
	}
	head, closed := c.heads[*r.key]
	return !closed || head == r.id && r.state != relay.StateNew
}

func (c *choice) isBusy(id int64) bool {
	_, busy := slices.BinarySearch(c.busy, id)
	return busy
}

// replaying gives the id from which a reopened key is read by the replay.
func (c *choice) replaying(r record) (from int64, yes bool) {
	if r.key == nil || c.replayless {
		return 0, false
	}
	from, yes = c.track.replay[*r.key]
	return from, yes
}

// common deals with what every read passes over: rows that are busy, not due or of a closed key.
func (c *choice) common(r record) (candidate bool) {
	switch {
	case r.kind == kindOther || c.isBusy(r.id):
		return false
	case r.kind == kindLater:
		c.later = append(c.later, r)
		return false
	case !c.passes(r):
		c.passed = append(c.passed, r)
		return false
	}
	return true
}

// takeReady takes what has appeared below the cursor. Rows that the replay of their key has yet to come to
// are held: whether it has passed them by in this very answer is known after it.
func (c *choice) takeReady(ready []record) (held []record) {
	c.appeared = ofIDs(idsOf(ready))
	for i, r := range ready {
		if _, out := c.track.out[r.id]; !out && c.isBusy(r.id) {
			c.keep = c.keep.union(spans{{r.id, r.id}}) // handed back, which the caller did not know yet
			continue
		}
		if !c.common(r) {
			continue
		}
		if from, yes := c.replaying(r); yes && r.id >= from {
			held = append(held, r)
			continue
		}
		if !c.admit(r) {
			c.keepReady(ready[i:])
			break
		}
	}
	return held
}

func (c *choice) keepReady(rs []record) {
	c.keep = c.keep.union(ofIDs(idsOf(rs)))
	c.readyDone = false
}

// takeHeld takes rows that appeared where the replay of their key has already been.
func (c *choice) takeHeld(held []record) {
	for i, r := range held {
		if r.id < c.replayed && !c.admit(r) {
			c.keepReady(held[i:])
			return
		}
	}
}

// dueCandidates are the retries that may come: the heads of closed keys, and rows of open keys up to the
// cursor. Beyond the cursor the forward read brings them in their order.
func (c *choice) dueCandidates(due []record, headsOnly bool) (out []record) {
	for _, r := range due {
		if c.isBusy(r.id) || !c.passes(r) {
			continue
		}
		isHead := r.key != nil && c.heads[*r.key] == r.id
		if headsOnly && !isHead || !isHead && r.id > c.track.cursor {
			continue
		}
		if from, yes := c.replaying(r); yes && r.state == relay.StateNew && r.id >= from {
			continue
		}
		out = append(out, r)
	}
	return out
}

// takeShare takes rows while no more than rows and bytes of the answer go to them, and returns the rest.
func (c *choice) takeShare(rs []record, rows int, bytes int64) []record {
	var used int64
	for n, r := range rs {
		if n > 0 && (n >= rows || used+r.size > bytes) || !c.admit(r) {
			return rs[n:]
		}
		used += r.size
	}
	return nil
}

// takeReplay takes rows of reopened keys; half of the answer is left to the others if they have any.
func (c *choice) takeReplay(got answers, ask *replayAsk) {
	rows, bytes := c.limit, c.bytes
	if slices.ContainsFunc(got.forward, func(r record) bool { return r.kind == kindDue }) {
		rows, bytes = rows/2, bytes/2
	}
	var candidates []record
	for _, r := range got.replay {
		if from, yes := c.replaying(r); yes && r.id >= from && c.common(r) {
			candidates = append(candidates, r)
		}
	}
	c.replayed = got.replayed + 1
	if rest := c.takeShare(candidates, rows, bytes); len(rest) > 0 {
		c.replayed = rest[0].id
	}
	c.replayDone = c.replayed > ask.to
}

// takeForward takes new events in the order of id and moves the cursor over what it has seen.
func (c *choice) takeForward(forward []record, ask *forwardAsk, end bool) {
	before := len(c.picks)
	cut := false
	for _, r := range forward {
		if c.common(r) {
			// While the replay is not through, it is the replay that comes to this row.
			if _, yes := c.replaying(r); (!yes || c.replayDone) && !c.admit(r) {
				cut = true
				break
			}
		}
		c.cursor = r.id
	}
	n, _ := slices.BinarySearchFunc(forward, c.cursor, func(r record, id int64) int { return cmp.Compare(r.id, id) })
	if c.cursor > ask.after {
		c.fresh = missing(ask.after, idsOf(forward[:n+1]))
	}
	c.more = c.more || cut || !end
	c.window = 0
	if c.laned {
		c.window = c.suitedWindow(forward, ask, end)
		return
	}
	if !end && !cut && len(c.picks)-before < c.limit/4 {
		c.window = 4 * ask.window // little is due here: look at more rows the next time
	}
}

// suitedWindow is how many rows the next read looks at, so that about as many as asked for are of lanes of its
// own.
func (c *choice) suitedWindow(forward []record, ask *forwardAsk, end bool) int {
	due := 0
	for i := range forward {
		if forward[i].kind != kindOther {
			due++
		}
	}
	switch {
	case due > c.limit*5/4:
		return ask.window / 2
	case due < c.limit*3/4 && !end:
		return 2 * ask.window
	}
	return ask.window
}

// claimed replaces the picks by those of them that could be claimed. The others are looked at again:
// another relay has them, or they no longer are due.
func (c *choice) claimed(got []record) {
	slices.SortFunc(got, lower)
	var left []int64
	for _, r := range c.picks {
		if _, ok := slices.BinarySearchFunc(got, r, lower); !ok && r.id <= c.cursor {
			left = append(left, r.id)
		}
	}
	c.keep = c.keep.union(ofIDs(left))
	c.more = len(got) > 0 && (c.more || len(left) > 0)
	c.big = c.big || len(left) > 0 // it may have been too large for what was left
	c.picks = got
}
