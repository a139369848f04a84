package postgres

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

// follower is the relay's side of a world: busy rows, gates, and what has come.
type follower struct {
	w       *world
	e       *engine
	busy    []relay.Event
	blocked []relay.Blocked
	reopen  []relay.Blocked
	first   map[string]int64 // last id of a key that came for the first time
	seen    map[int64]bool
	ordered bool
	lanes   *modelLanes // nil with other claim modes
}

func (f *follower) closed(key string) (relay.RowID, bool) {
	for _, b := range f.blocked {
		if b.Key == key {
			return b.Head, true
		}
	}
	return "", false
}

func (f *follower) fetch(limit int) relay.Fetched {
	req := relay.Fetch{Limit: limit, MaxBytes: 1 << 20, Blocked: f.blocked, Reopened: f.reopen}
	for _, e := range f.busy {
		req.Busy = append(req.Busy, e.Row)
	}
	if f.lanes != nil && f.e.owned().none() {
		return relay.Fetched{}
	}
	got, err := f.e.fetch(f.w.t.Context(), req, time.Unix(1, 0))
	if err != nil {
		return got // the poller names the reopened keys again
	}
	f.reopen = nil
	if len(got.Events) > limit {
		f.w.t.Fatalf("%d events, limit %d", len(got.Events), limit)
	}
	f.w.trace("fetch %d, closed %v: %v more %v; cursor %d ready %v gaps %v waiting %v", limit, f.blocked, got.Events, got.More, f.e.tracker.cursor, f.e.tracker.ready, f.e.tracker.gaps, f.e.tracker.waiting)
	last := map[string]int64{}
	for _, e := range got.Events {
		id := parseRow(e.Row)
		r := f.w.visible(id)
		if r == nil {
			f.w.t.Fatalf("phantom: row %d", id)
		}
		if slices.ContainsFunc(f.busy, func(b relay.Event) bool { return b.Row == e.Row }) {
			f.w.t.Fatalf("row %d came while busy", id)
		}
		if !f.e.owned().has(r.key) {
			f.w.t.Fatalf("row %d of another relay's lane came", id)
		}
		if head, closed := f.closed(r.key); closed && head != e.Row {
			f.w.t.Fatalf("row %d of the closed key %s came", id, r.key)
		}
		if id < last[r.key] {
			f.w.t.Fatalf("key %s: row %d after row %d in one answer", r.key, id, last[r.key])
		}
		last[r.key] = id
		if !f.seen[id] {
			if f.ordered && id < f.first[r.key] {
				f.w.t.Fatalf("key %s: row %d was overtaken by row %d", r.key, id, f.first[r.key])
			}
			f.first[r.key] = max(f.first[r.key], id)
			f.seen[id] = true
		}
		f.busy = append(f.busy, e)
	}
	return got
}

// act settles, fails or hands back a key's busy rows, oldest first.
func (f *follower) act() {
	if len(f.busy) == 0 {
		return
	}
	e := rapid.SampledFrom(f.busy).Draw(f.w.t, "busy")
	for _, b := range f.busy {
		if *b.Key == *e.Key && parseRow(b.Row) < parseRow(e.Row) {
			e = b
		}
	}
	head, closed := f.closed(*e.Key)
	switch n := rapid.IntRange(0, 5).Draw(f.w.t, "act"); {
	case n <= 2:
		f.mark(e, relay.StateSent)
		if closed && head == e.Row {
			f.open(*e.Key)
		}
	case n == 3 && !closed:
		f.blocked = append(slices.Clone(f.blocked), relay.Blocked{Key: *e.Key, Head: e.Row})
		f.mark(e, relay.StateFailed)
		f.handBack(*e.Key)
	case n == 4 && !closed:
		f.handBack(*e.Key)
	}
}

func (f *follower) open(key string) {
	head, _ := f.closed(key)
	f.blocked = slices.DeleteFunc(slices.Clone(f.blocked), func(b relay.Blocked) bool { return b.Key == key })
	f.reopen = append(f.reopen, relay.Blocked{Key: key, Head: head})
}

func (f *follower) free(row relay.RowID) {
	f.busy = slices.DeleteFunc(f.busy, func(b relay.Event) bool { return b.Row == row })
}

func (f *follower) mark(e relay.Event, s relay.State) {
	f.w.visible(parseRow(e.Row)).state = s
	f.e.settled([]relay.Outcome{{Row: e.Row, From: e.State, State: s}}, time.Unix(1, 0))
	if rapid.Bool().Draw(f.w.t, "late") {
		f.fetch(3) // the relay's reader does not know of the mark yet
	}
	f.free(e.Row)
}

// handBack gives up all busy rows of a key.
func (f *follower) handBack(key string) {
	for _, e := range slices.Clone(f.busy) {
		if *e.Key != key {
			continue
		}
		if f.e.claims {
			f.w.visible(parseRow(e.Row)).state = relay.StateNew
			f.e.settled([]relay.Outcome{{Row: e.Row, State: relay.StateNew}}, time.Unix(1, 0))
			if rapid.Bool().Draw(f.w.t, "late") {
				f.fetch(3)
			}
		}
		f.free(e.Row)
		if _, closed := f.closed(key); !closed {
			f.reopen = append(f.reopen, relay.Blocked{Key: key, Head: e.Row})
		}
	}
}

// settleAll sends everything that is busy and opens every gate.
func (f *follower) settleAll() {
	for len(f.busy) > 0 {
		e := f.busy[0]
		f.w.visible(parseRow(e.Row)).state = relay.StateSent
		f.e.settled([]relay.Outcome{{Row: e.Row, State: relay.StateSent}}, time.Unix(1, 0))
		f.free(e.Row)
		if head, closed := f.closed(*e.Key); closed && head == e.Row {
			f.open(*e.Key)
		}
	}
}

// lateStart begins as on a table that is not ours: after the last row that is settled, with the
// transactions that are open by then.
func lateStart(e *engine, w *world) {
	for range rapid.IntRange(0, 60).Draw(w.t, "before") {
		w.step()
	}
	for id := int64(1); id <= int64(len(w.rows)); id++ {
		if r := w.visible(id); r != nil && rapid.Bool().Draw(w.t, "settled") {
			r.state = relay.StateSent
		}
	}
	cursor, early := w.lowestNew(nil)
	e.reset(cursor, early)
	e.tracker.maxGaps = 3
	w.trace("begins after %d, open %v", cursor, early)
}

func testEngine(t *rapid.T, change func(*engine, *world)) {
	w := &world{t: t, keys: map[string]*modelTx{}}
	e := &engine{rows: w, tracker: newTracker(0), bounds: bounds{
		lookup: rapid.IntRange(1, 4).Draw(t, "lookup"), replay: rapid.IntRange(1, 4).Draw(t, "replay"), due: rapid.IntRange(2, 4).Draw(t, "due"),
	}}
	e.tracker.maxGaps = rapid.IntRange(2, 6).Draw(t, "gaps")
	f := &follower{w: w, e: e, first: map[string]int64{}, seen: map[int64]bool{}, ordered: true}
	change(e, w)
	w.claims = e.claims
	f.ordered = !e.claims
	if e.lanes != nil {
		f.lanes = newModelLanes(f)
	}
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "do") {
		case 0, 1, 2, 3:
			w.step()
		case 4, 5, 6:
			f.fetch(rapid.IntRange(1, 4).Draw(t, "limit"))
			f.lanes.check()
		case 7:
			f.lanes.change()
		default:
			f.act()
		}
	}
	for len(w.open) > 0 {
		w.commit(w.open[0])
		w.release(w.open[0])
	}
	w.quiet = true
	f.lanes.ownAll()
	idle := 0
	for n := 0; idle < 3; n++ {
		if n > 2000 {
			t.Fatalf("no end: cursor %d, ready %v, gaps %v, replay %v, passed %v, out %v", e.tracker.cursor, e.tracker.ready, e.tracker.gaps, e.tracker.replay, e.tracker.passed, e.tracker.out)
		}
		got := f.fetch(3)
		f.settleAll()
		if len(got.Events) == 0 && !got.More {
			idle++
		}
	}
	for id := int64(1); id <= int64(len(w.rows)); id++ {
		if r := w.visible(id); r != nil && r.state != relay.StateSent {
			t.Fatalf("lost: row %d is %s; cursor %d, ready %v, gaps %v, replay %v, passed %v, out %v", id, r.state,
				e.tracker.cursor, e.tracker.ready, e.tracker.gaps, e.tracker.replay, e.tracker.passed, e.tracker.out)
		}
	}
}

// TestPromise_P1_P3_Engine: whatever transactions, gates and the relay do, nothing is missed, nothing comes
// that was not committed, and no event of a serialised key is overtaken.
func TestPromise_P1_P3_Engine(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*engine, *world){
		"single": func(*engine, *world) {},
		"rows":   func(e *engine, _ *world) { e.claims = true },
		"index":  func(e *engine, _ *world) { e.gapless = true },
		"start":  lateStart,
		"lanes":  func(e *engine, _ *world) { e.lanes = newLaneSet(modelLaneCount, nil) },
		"lanes, index of states": func(e *engine, w *world) {
			w.statusIndex = true
			e.lanes = newLaneSet(modelLaneCount, nil)
		},
		"lanes, index": func(e *engine, w *world) {
			w.statusIndex, e.gapless = true, true
			e.lanes = newLaneSet(modelLaneCount, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { testEngine(t, change) })
		})
	}
}
