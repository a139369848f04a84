package postgres

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

// modelLaneCount puts the keys a, b and c of a world into lanes of their own.
const modelLaneCount = 16

// modelLanes is the world of lanes around a follower: other relays have those that are not its own, and send
// their rows.
type modelLanes struct {
	f    *follower
	keys []string
	mine map[string]bool
	low  map[string]string // by key, the position that the lane's last owner named
}

func newModelLanes(f *follower) *modelLanes {
	return &modelLanes{f: f, keys: []string{"a", "b", "c"}, mine: map[string]bool{}, low: map[string]string{}}
}

// change gives lanes and takes lanes.
func (m *modelLanes) change() {
	if m == nil {
		return
	}
	w := m.f.w
	low := m.f.e.position()
	var added []string
	for _, key := range m.keys {
		own := rapid.Bool().Draw(w.t, "own")
		switch {
		case m.mine[key] && !own:
			m.leave(key, low)
		case !m.mine[key] && own:
			added = append(added, key)
			m.arrive(key)
		}
	}
	m.tell(added, low)
}

func (m *modelLanes) ownAll() {
	if m == nil {
		return
	}
	low := m.f.e.position()
	var added []string
	for _, key := range m.keys {
		if !m.mine[key] {
			added = append(added, key)
			m.arrive(key)
		}
	}
	m.tell(added, low)
}

// leave gives up a key's lane: its rows are not busy any more, sent or not.
func (m *modelLanes) leave(key, low string) {
	f := m.f
	delete(m.mine, key)
	m.low[key] = low
	for _, e := range slices.Clone(f.busy) {
		if *e.Key != key {
			continue
		}
		if rapid.Bool().Draw(f.w.t, "sent at last") {
			f.w.visible(parseRow(e.Row)).state = relay.StateSent
			f.e.settled([]relay.Outcome{{Row: e.Row, From: e.State, State: relay.StateSent}}, f.w.time())
		}
		f.free(e.Row)
	}
	f.blocked = slices.DeleteFunc(slices.Clone(f.blocked), func(b relay.Blocked) bool { return b.Key == key })
	f.reopen = slices.DeleteFunc(slices.Clone(f.reopen), func(b relay.Blocked) bool { return b.Key == key })
}

// arrive takes a key's lane, of whose rows the other relay has sent the first so many, and closes its gate if
// one has failed. What has come before and is not sent comes again, in order.
func (m *modelLanes) arrive(key string) {
	f := m.f
	m.mine[key] = true
	sends := rapid.IntRange(0, 3).Draw(f.w.t, "sent elsewhere")
	f.first[key] = 0
	failed := false
	for id := int64(1); id <= int64(len(f.w.rows)); id++ {
		r := f.w.visible(id)
		if r == nil || r.key != key || r.state == relay.StateSent {
			continue
		}
		if sends--; sends >= 0 && !failed {
			r.state = relay.StateSent
			continue
		}
		delete(f.seen, id)
		if r.state == relay.StateFailed && !failed {
			failed = true
			f.blocked = append(slices.Clone(f.blocked), relay.Blocked{Key: key, Head: rowID(id)})
		}
	}
}

// tell does what Store.Own does.
func (m *modelLanes) tell(added []string, low string) {
	f := m.f
	var own []relay.OwnLane
	for _, key := range m.keys {
		if m.mine[key] {
			own = append(own, relay.OwnLane{Lane: relay.LaneOf(key, modelLaneCount)})
		}
	}
	o := relay.StoreOptions{Claim: relay.ClaimLanes, Lanes: modelLaneCount}
	if _, err := o.OwnedLanes(own); err != nil {
		f.w.t.Fatalf("lanes: %v", err)
	}
	set := newLaneSet(modelLaneCount, own)
	before := f.e.owned()
	if len(added) == 0 {
		f.e.ownLess(set)
		f.w.trace("own %v", own)
		return
	}
	var b beginning
	if f.w.statusIndex {
		b.cursor, b.early = f.w.lowestNew(set.filter())
	} else {
		b = m.begin(added)
	}
	f.e.ownMore(set, b, !f.w.statusIndex && !before.none())
	f.w.trace("own %v, new %v, position was %s: begins after %d, waits %v, early %v", own, added, low, f.e.tracker.cursor, b.waits, f.e.early)
}

// begin does what keeper.startLanes does.
func (m *modelLanes) begin(added []string) (b beginning) {
	low := int64(math.MaxInt64)
	b.waits = map[string]int64{}
	for _, key := range added {
		from, waits := readPosition(m.low[key])
		low = min(low, from)
		for _, id := range waits {
			if key := m.f.w.rows[id-1].key; m.mine[key] && (b.waits[key] == 0 || id < b.waits[key]) {
				b.waits[key] = id
			}
		}
	}
	b.cursor = max(low-1, 0)
	return b
}

// check holds that nothing of its lanes is unsettled below Low, but for keys that it names.
func (m *modelLanes) check() {
	if m == nil || m.f.w.statusIndex || m.f.e.owned().none() {
		return
	}
	low, waits := readPosition(m.f.e.position())
	first := map[string]int64{}
	for _, id := range waits {
		first[m.f.w.rows[id-1].key] = id
	}
	for id := int64(1); id < low; id++ {
		r := m.f.w.rows[id-1]
		open := r != nil && !r.tx.gone
		if open && r.state == relay.StateNew && m.mine[r.key] && (first[r.key] == 0 || id < first[r.key]) {
			m.f.w.t.Fatalf("low is %d, but for %v, and row %d of %s is new", low, waits, id, r.key)
		}
	}
}
