package postgres

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"
)

// Bounds of what the tracker remembers. Beyond them it remembers less exactly and looks at more rows
// than it must; it never forgets.
const (
	usualGaps  = 200_000 // ranges of missing ids, 16 bytes each
	maxDelayed = 100_000 // NEW rows with a time in the future; the rest is found by the sweep
	maxWaits   = 32      // keys that wait, of which a later relay is told; see ends
)

// tracker knows where every row up to the cursor is that may still have to be returned. A row up to the
// cursor is in exactly one of these places, or settled, or found by the index of due rows:
//
//	gaps     missing when the cursor passed; may appear when a holder ends
//	ready    to be looked at in the next read: it appeared, was handed back, or its time has come
//	out      returned and not settled
//	passed   of a key whose gate was closed: from the first such row on
//	replay   of a key whose gate has opened again: from here on
//	delayed  NEW with a time in the future
//
// It is bookkeeping only: no SQL, no clock, no locking.
type tracker struct {
	cursor  int64
	gaps    []gapGroup
	maxGaps int // ranges in gaps
	ready   spans
	waiting []gapGroup // groups some of whose ids are in ready: back to gaps when they are still missing
	out     map[int64]taken
	passed  map[string]int64
	replay  map[string]int64
	delayed delays

	// settled rows may still be called busy by a Fetch that began before its caller knew of the mark.
	settled map[int64]taken
}

// taken is what a row said when it was returned.
type taken struct {
	attempts int32
	retry    bool // FAILED: the index of due rows finds it again
}

func newTracker(cursor int64) *tracker {
	return &tracker{
		cursor: cursor, maxGaps: usualGaps, out: map[int64]taken{}, passed: map[string]int64{}, replay: map[string]int64{},
		settled: map[int64]taken{},
	}
}

// handedBack moves rows that were returned and are neither busy nor settled any more to ready.
func (t *tracker) handedBack(busy []int64) {
	var back []int64
	for id := range t.out {
		if _, still := slices.BinarySearch(busy, id); !still {
			back = append(back, id)
			delete(t.out, id)
		}
	}
	t.ready = t.ready.union(ofIDs(back).upTo(t.cursor)) // those beyond come in their turn
}

// adopt notes busy rows that another store of the same relay returned.
func (t *tracker) adopt(busy []int64) {
	for id := range t.settled {
		if _, still := slices.BinarySearch(busy, id); !still {
			delete(t.settled, id)
		}
	}
	for _, id := range busy {
		_, known := t.out[id]
		if _, marked := t.settled[id]; !known && !marked {
			t.out[id] = taken{attempts: -1}
		}
	}
}

// gates brings passed and replay in line with the gates: what is closed waits, what is open is read.
func (t *tracker) gates(closed map[string]int64, reopened []int64) {
	for key, from := range t.replay {
		if _, c := closed[key]; c {
			delete(t.replay, key)
			t.pass(key, from)
		}
	}
	for key, from := range t.passed {
		if _, c := closed[key]; !c {
			delete(t.passed, key)
			if at, there := t.replay[key]; !there || from < at {
				t.replay[key] = from
			}
		}
	}
	// A person may have made the head NEW. Heads beyond the cursor are still to come.
	t.ready = t.ready.union(ofIDs(reopened).upTo(t.cursor))
}

// pass notes a row of a closed key.
func (t *tracker) pass(key string, id int64) {
	if first, there := t.passed[key]; !there || id < first {
		t.passed[key] = id
	}
}

// forget drops keys of other lanes: nothing of them is to be read any more.
func (t *tracker) forget(set *laneSet) {
	other := func(key string, _ int64) bool { return !set.has(key) }
	maps.DeleteFunc(t.passed, other)
	maps.DeleteFunc(t.replay, other)
}

// replayFrom is the first id that a reopened key still has to be read from.
func (t *tracker) replayFrom() int64 {
	from := t.cursor + 1
	for _, at := range t.replay {
		from = min(from, at)
	}
	return from
}

// replayedTo notes that all reopened keys were read below id; keys that have nothing left are done.
func (t *tracker) replayedTo(id int64) {
	for key, at := range t.replay {
		if at < id {
			t.replay[key] = id
		}
		if t.replay[key] > t.cursor {
			delete(t.replay, key)
		}
	}
}

// suspect moves the ids of groups whose holders have changed to ready and returns them.
func (t *tracker) suspect(v *lockView) spans {
	var found spans
	t.gaps = slices.DeleteFunc(t.gaps, func(g gapGroup) bool {
		if !g.check(v) {
			return false
		}
		found = found.union(g.ids)
		t.waiting = append(t.waiting, g)
		return true
	})
	t.ready = t.ready.union(found)
	return found
}

// unsettledFrom is the lowest gap that may have been filled by now, by the locks, without having been among
// the ids that were looked at last.
func (t *tracker) unsettledFrom(v *lockView, looked spans) int64 {
	from := int64(math.MaxInt64)
	for _, groups := range [][]gapGroup{t.gaps, t.waiting} {
		for i := range groups {
			if left := groups[i].ids.minus(looked); len(left) > 0 && groups[i].changed(v) {
				from = min(from, left[0].lo)
			}
		}
	}
	return from
}

// looked notes that the ready ids in done were looked at, later than the locks: those in appeared are
// rows now, and of these keep has still to be returned. Ids that have not appeared go back to their
// group, or are forgotten when nobody is left who could fill them.
func (t *tracker) looked(done, appeared, keep spans) {
	t.ready = t.ready.minus(done).union(keep)
	var open []gapGroup
	for _, g := range t.waiting {
		t.addGaps(g.holders, g.ids.both(done).minus(appeared))
		if g.ids = g.ids.minus(done); len(g.ids) > 0 {
			open = append(open, g)
		}
	}
	t.waiting = open
}

// addGaps notes missing ids that the holders may fill; without holders nobody can.
func (t *tracker) addGaps(holders []string, ids spans) {
	if len(holders) == 0 || len(ids) == 0 {
		return
	}
	i := slices.IndexFunc(t.gaps, func(g gapGroup) bool { return slices.Equal(g.holders, holders) })
	if i < 0 {
		t.gaps = append(t.gaps, gapGroup{holders: holders})
		i = len(t.gaps) - 1
	}
	g := &t.gaps[i]
	if n := len(g.ids); n > 0 && ids[0].lo > g.ids[n-1].hi+1 {
		g.ids = append(g.ids, ids...) // in place: a group that waits for a long transaction is large
	} else {
		g.ids = g.ids.union(ids)
	}
	t.boundGaps()
}

func (t *tracker) boundGaps() {
	n := 0
	for i := range t.gaps {
		n += len(t.gaps[i].ids)
	}
	if n <= t.maxGaps {
		return
	}
	slices.SortFunc(t.gaps, func(a, b gapGroup) int { return cmp.Compare(len(b.ids), len(a.ids)) })
	t.gaps[0].ids = t.gaps[0].ids.coarse(len(t.gaps[0].ids) / 2)
}

// delay notes a NEW row that is due later.
func (t *tracker) delay(id int64, due time.Time) {
	if t.delayed.Len() < maxDelayed {
		heap.Push(&t.delayed, delay{id, due})
	}
}

// wakeDelayed moves rows whose time has come to ready.
func (t *tracker) wakeDelayed(now time.Time) {
	var woken []int64
	for t.delayed.Len() > 0 && !t.delayed[0].due.After(now) {
		woken = append(woken, heap.Pop(&t.delayed).(delay).id)
	}
	t.ready = t.ready.union(ofIDs(woken))
}

// low is the lowest id that may still have to be returned.
func (t *tracker) low() int64 {
	low := t.unpassed()
	for _, first := range t.passed {
		low = min(low, first)
	}
	return low
}

// ends says where the next relay begins if it is told of the keys that wait, each by its first row: below low
// nothing has to be read but rows of theirs. More keys than it can be told of keep low down.
func (t *tracker) ends() (low int64, waits []int64) {
	low = t.unpassed()
	for _, first := range t.passed {
		if first < low {
			waits = append(waits, first)
		}
	}
	slices.Sort(waits)
	if len(waits) > maxWaits {
		low, waits = waits[maxWaits], waits[:maxWaits]
	}
	return low, waits
}

// unpassed is low for what is not passed over because its key waits.
func (t *tracker) unpassed() int64 {
	low := t.replayFrom()
	for _, g := range t.gaps {
		low = min(low, g.ids[0].lo)
	}
	if len(t.ready) > 0 {
		low = min(low, t.ready[0].lo)
	}
	for id, row := range t.out {
		if !row.retry {
			low = min(low, id)
		}
	}
	return low
}

// wait takes over a key's rows that wait, from the first one on: those beyond the cursor are read anyhow.
func (t *tracker) wait(key string, first int64) {
	if first <= t.cursor {
		t.pass(key, first)
	}
}

// knows says that the row, which is due, is in one of the tracker's places, so that a sweep need not bring
// it.
func (t *tracker) knows(id int64, key *string, now time.Time) bool {
	if id > t.cursor || t.ready.has(id) {
		return true
	}
	if _, busy := t.out[id]; busy {
		return true
	}
	if key != nil {
		if first, there := t.passed[*key]; there && id >= first {
			return true
		}
		if at, there := t.replay[*key]; there && id >= at {
			return true
		}
	}
	// A person may have brought forward what is due much later.
	soon := now.Add(2 * time.Second)
	if slices.ContainsFunc(t.delayed, func(d delay) bool { return d.id == id && d.due.Before(soon) }) {
		return true
	}
	return slices.ContainsFunc(t.gaps, func(g gapGroup) bool { return g.ids.has(id) })
}

// replayKeys lists the reopened keys.
func (t *tracker) replayKeys() []string { return slices.Sorted(maps.Keys(t.replay)) }

// delays is a heap of rows by the time they are due.
type delays []delay

type delay struct {
	id  int64
	due time.Time
}

func (d delays) Len() int           { return len(d) }
func (d delays) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d delays) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *delays) Push(x any)        { *d = append(*d, x.(delay)) }
func (d *delays) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}
