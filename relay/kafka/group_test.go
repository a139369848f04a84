package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestGroup_Share: relays that join and leave share the lanes, each lane with one at a time, and an owner learns
// where the one before had begun to read.
func TestGroup_Share(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: p.name, Table: "postgres://db/app outbox_events", Lanes: 6}
		a := newKeeper(t, all, "a")
		for lane := range int32(6) {
			a.lows[lane] = fmt.Sprint(100 + lane)
		}
		told := &toldOf{}
		o.Hooks = told
		first := p.start(t, o, a, Options{})
		until(t, 30*time.Second, "the first has all lanes", func() bool { return all.has("a") == 6 })
		until(t, 20*time.Second, "they are open", func() bool { return told.lanes.Load() == 6 })
		require.Less(t, told.longest.Load(), int64(20*time.Second))
		before := told.rebalances.Load()
		require.Positive(t, before)
		o.Hooks = nil
		b := newKeeper(t, all, "b")
		p.start(t, o, b, Options{})
		until(t, 30*time.Second, "both have half", func() bool { return all.has("a") == 3 && all.has("b") == 3 })
		require.Greater(t, told.rebalances.Load(), before)
		require.EqualValues(t, 6, told.lanes.Load(), "kept lanes are not taken over again")
		require.NoError(t, first.end(t))
		began := time.Now()
		until(t, 30*time.Second, "the second has all", func() bool { return all.has("b") == 6 })
		require.Less(t, time.Since(began), 5*time.Second+p.beat, "a clean stop is not waited out")
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range b.taken {
			require.Equal(t, fmt.Sprint(100+l.Lane), l.Low, "lane %d", l.Lane)
			require.Empty(t, l.Sent)
		}
	})
}

// toldOf counts what metrics hear of.
type toldOf struct{ rebalances, lanes, longest atomic.Int64 }

func (h *toldOf) Rebalanced() { h.rebalances.Add(1) }

func (h *toldOf) TookOver(lanes int, took time.Duration) {
	h.lanes.Add(int64(lanes))
	h.longest.Store(max(h.longest.Load(), took.Nanoseconds()))
}

// TestGroup_TakeFails: what stands in the way of taking lanes over is tried again.
func TestGroup_TakeFails(t *testing.T) {
	t.Parallel()
	all := &ownership{owner: map[int32]string{}}
	k := newKeeper(t, all, "a")
	k.refuse = errors.New("the database does not answer")
	startGroup(t, cluster(t).ListenAddrs()[0], GroupOptions{Name: "x", Table: "t", Lanes: 2}, k, Options{})
	until(t, 20*time.Second, "tried", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.changes > 2
	})
	require.Zero(t, all.has("a"))
	k.mu.Lock()
	k.refuse = nil
	k.mu.Unlock()
	until(t, 20*time.Second, "taken", func() bool { return all.has("a") == 2 })
}

// TestGroup_Silent: a relay whose network has gone loses its lanes to another within the session timeout and two
// seconds, and hears of it when the network is back (P7).
func TestGroup_Silent(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: p.name, Table: "t", Lanes: 4}
		route := &sink{}
		a, b := newKeeper(t, nil, "a"), newKeeper(t, nil, "b")
		// Each with its own view: a does not know yet that it has lost, so both have lanes for a while.
		a.all, b.all = &ownership{owner: map[int32]string{}}, all
		p.start(t, o, a, Options{Dial: route.dial})
		until(t, 20*time.Second, "a has all", func() bool { return a.all.has("a") == 4 })
		p.start(t, o, b, Options{})
		until(t, 30*time.Second, "they share", func() bool { return a.all.has("a") == 2 && all.has("b") == 2 })
		route.swallow(true)
		began := time.Now()
		until(t, p.session+20*time.Second, "b has all", func() bool { return all.has("b") == 4 })
		took := time.Since(began)
		t.Log("taken over after", took)
		require.Less(t, took, p.session+2*time.Second+p.beat)
		until(t, 20*time.Second, "a knows", func() bool { return a.all.has("a") == 0 })
		route.swallow(false)
		until(t, 40*time.Second, "they share again", func() bool { return a.all.has("a") == 2 && all.has("b") == 2 })
	})
}

// TestGroup_Fences: what a relay sends in lanes that it has lost and does not know of is not seen by readers of
// committed records, whatever it believes. The broker refuses its membership: a generation, or a member's epoch.
func TestGroup_Fences(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: p.name, Table: "t", Lanes: 2, Flows: 1}
		topic := newTopic(t, p.seed, 1, nil)
		a, b := newKeeper(t, nil, "a"), newKeeper(t, nil, "b")
		a.all, b.all = &ownership{owner: map[int32]string{}}, all
		route := &sink{}
		paused := p.start(t, o, a, Options{Dial: route.dial})
		until(t, 20*time.Second, "a has all", func() bool { return paused.owns(0) && paused.owns(1) })
		old := openTx(t, p.seed, paused, Options{})
		mark(wellSent(t, sendTx(t, old, row(topic, "k", "a's first", 0))))
		// Its process stands still between a look at its lanes and the commit: the group hears nothing from it, and
		// it holds on to what it knew.
		route.swallow(true)
		stuck := membershipOf(paused)
		next := p.start(t, o, b, Options{})
		until(t, p.session+20*time.Second, "b has all", func() bool { return next.owns(0) && next.owns(1) })
		mark(wellSent(t, sendTx(t, openTx(t, p.seed, next, Options{}), row(topic, "k", "b's first", 0))))
		for _, r := range sendTx(t, openTx(t, p.seed, &believer{Group: paused.Group, m: stuck}, Options{}), row(topic, "k", "a's second", 0)) {
			require.NotNil(t, r.Failure)
		}
		var seen []string
		for _, r := range readCommitted(t, p.seed, topic)[0] {
			seen = append(seen, string(r.Value))
		}
		require.Equal(t, []string{"a's first", "b's first"}, seen)
		route.swallow(false)
	})
}

// TestGroup_JoinsAnewUnheard: a relay whose request to join comes so late that the group has gone on without it joins anew
// under another name, and no callback says so. Lanes that it gets back by it had another owner in between: they are
// lost and taken over again. Meanwhile nothing of it is committed in lanes that the other one has.
func TestGroup_JoinsAnewUnheard(t *testing.T) {
	t.Parallel()
	seed := realKafka(t)
	o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 4, Flows: 1, SessionTimeout: 6 * time.Second, GiveTimeout: time.Second}
	topic := newTopic(t, seed, 4, nil)
	a, b := newKeeper(t, nil, "a"), newKeeper(t, nil, "b")
	a.all, b.all = &ownership{owner: map[int32]string{}}, &ownership{owner: map[int32]string{}}
	slow := &slowJoin{}
	first := startGroup(t, seed, o, a, Options{Dial: slow.dial})
	until(t, 20*time.Second, "a has all", func() bool { return a.all.has("a") == 4 && first.owns(3) })
	sink := openTx(t, seed, first, Options{})
	slow.join.Store(int64(9 * time.Second))
	slow.sync.Store(int64(1200 * time.Millisecond)) // so late that the group has moved on once more
	second := startGroup(t, seed, o, b, Options{})
	until(t, 20*time.Second, "b has all", func() bool { return b.all.has("b") == 4 && second.owns(3) })
	slow.join.Store(0)
	writes := 0
	until(t, 60*time.Second, "they share", func() bool {
		for lane := range int32(4) {
			theirs := second.owns(lane)
			r := sendTx(t, sink, row(topic, fmt.Sprint(lane), "v", lane))[0]
			if r.Marked != nil {
				r.Marked()
			}
			writes++
			require.False(t, r.Failure == nil && theirs && second.owns(lane), "a sends in lane %d, which b has", lane)
		}
		return a.all.has("a") == 2 && b.all.has("b") == 2
	})
	t.Log(writes, "writes were tried meanwhile")
	a.mu.Lock()
	defer a.mu.Unlock()
	times := map[int32]int{}
	for _, l := range a.taken {
		times[l.Lane]++
	}
	for _, lane := range a.all.of("a") {
		require.Equal(t, 2, times[lane], "lane %d was another's in between", lane)
	}
}

// believer holds on to a membership, and to all lanes, until it has been refused.
type believer struct {
	*Group
	m       member
	refused atomic.Bool
}

func membershipOf(r *running) member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.membership()
}

func (b *believer) owns(int32) bool  { return !b.refused.Load() }
func (b *believer) stale(member)     { b.refused.Store(true) }
func (b *believer) from(int32) int64 { return 0 }
func (b *believer) with(_ context.Context, _ []int32, f func(m member) error) error {
	if b.refused.Load() {
		return errNotOwner
	}
	return f(b.m)
}

// TestGroup_Static: a relay with a group.instance.id that comes back within its session has the same lanes again, and
// nothing of the others' moved. What it had not marked is told to it.
func TestGroup_Static(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: p.name, Table: "t", Lanes: 6, Flows: 1}
		topic := newTopic(t, p.seed, 1, nil)
		first := p.start(t, o, newKeeper(t, all, "a"), Options{}, "group.instance.id", "one")
		b := newKeeper(t, all, "b")
		p.start(t, o, b, Options{}, "group.instance.id", "two")
		until(t, 30*time.Second, "they share", func() bool { return all.has("a") == 3 && all.has("b") == 3 })
		lanes := all.of("a")
		until(t, 20*time.Second, "open", func() bool { return first.owns(lanes[0]) })
		wellSent(t, sendTx(t, openTx(t, p.seed, first, Options{}), row(topic, "k", "not marked", lanes[0])))
		was, err := first.offsetFetch(t.Context(), lanes[:1], false)
		require.NoError(t, err)
		before := b.count()
		require.NoError(t, first.end(t))
		require.Zero(t, all.has("a"))
		again := newKeeper(t, all, "a")
		began := time.Now()
		second := p.start(t, o, again, Options{}, "group.instance.id", "one")
		until(t, 30*time.Second, "it has its lanes", func() bool { return all.has("a") == 3 })
		t.Log("back after", time.Since(began))
		require.Equal(t, lanes, all.of("a"))
		require.Equal(t, before, b.count(), "the other's lanes stay where they are")
		until(t, 20*time.Second, "open", func() bool { return second.owns(lanes[0]) })
		present, err := describeMembers(t.Context(), second.lend.current().Client, second.topic)
		require.NoError(t, err)
		now, err := second.offsetFetch(t.Context(), lanes[:1], false)
		require.NoError(t, err)
		require.Equal(t, second.runID, now[0].note.Run)
		require.True(t, present.has(now[0].note), "who fences the dead leaves the new run alone: %+v in %+v", now[0].note, present)
		require.False(t, present.has(was[0].note), "and ends the transactions of the one before")
		again.mu.Lock()
		defer again.mu.Unlock()
		for _, l := range again.taken {
			if l.Lane == lanes[0] {
				require.Len(t, l.Sent, 1)
			}
		}
	})
}

// TestGroup_StaticTwice: of two relays with one group.instance.id one works. By the classic protocol the newer has the
// place and the older ends; by the consumer protocol the newer waits.
func TestGroup_StaticTwice(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: p.name, Table: "t", Lanes: 2}
		a, b := newKeeper(t, nil, "a"), newKeeper(t, nil, "b")
		a.all, b.all = &ownership{owner: map[int32]string{}}, all
		older := p.start(t, o, a, Options{}, "group.instance.id", "one")
		until(t, 20*time.Second, "the older has all", func() bool { return a.all.has("a") == 2 })
		log := &lines{}
		newer := p.start(t, o, b, Options{Logger: slog.New(slog.NewTextHandler(log, nil))}, "group.instance.id", "one")
		if p.consumer() {
			until(t, 20*time.Second, "the newer says what it waits for", func() bool { return log.has("another member has this relay's group.instance.id") })
			require.Zero(t, all.has("b"))
			require.NoError(t, older.end(t))
			until(t, 20*time.Second, "the newer has all", func() bool { return all.has("b") == 2 })
			return
		}
		select {
		case err := <-older.done:
			older.done <- nil
			setup := relay.AsSetup(err)
			require.NotNil(t, setup, "%v", err)
			require.Equal(t, relay.SetupConflict, setup.Kind)
			require.Equal(t, "kafka.group.instance.id one: another relay has come with the same id and has this one's place; give each relay an id of its own, or let only one run", err.Error())
		case <-time.After(20 * time.Second):
			t.Fatal("the older goes on")
		}
		until(t, 20*time.Second, "the newer has all", func() bool { return all.has("b") == 2 && newer.owns(0) })
	})
}

// TestGroup_MixedProtocols: during a deploy that changes group.protocol relays of both share the lanes.
func TestGroup_MixedProtocols(t *testing.T) {
	t.Parallel()
	seed := realKafka(t)
	for name, protocols := range map[string][2]string{"to consumer": {"classic", "consumer"}, "to classic": {"consumer", "classic"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := &ownership{owner: map[int32]string{}}
			o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 4, Flows: 1}
			a := startGroup(t, seed, o, newKeeper(t, all, "a"), Options{}, "group.protocol", protocols[0])
			until(t, 20*time.Second, "a has all", func() bool { return all.has("a") == 4 })
			b := startGroup(t, seed, o, newKeeper(t, all, "b"), Options{}, "group.protocol", protocols[1])
			until(t, 60*time.Second, "they share", func() bool { return all.has("a") == 2 && all.has("b") == 2 })
			lanes, err := DescribeLanes(t.Context(), parsed(t, properties(seed)), o.Name)
			require.NoError(t, err)
			for _, l := range lanes {
				require.Contains(t, []string{"a", "b"}, l.Relay, "status shows who has lane %d", l.Lane)
			}
			mine := all.of("b")
			until(t, 20*time.Second, "open", func() bool { return b.owns(mine[0]) })
			topic := newTopic(t, seed, 1, nil)
			mark(wellSent(t, sendTx(t, openTx(t, seed, b, Options{}), row(topic, "k", "v", mine[0]))))
			require.NoError(t, a.end(t))
			until(t, 60*time.Second, "b has all", func() bool { return all.has("b") == 4 })
		})
	}
}

// TestGroup_Offsets: the lowest progress record that is not marked decides where a later owner begins.
func TestGroup_Offsets(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(parsed(t, properties("127.0.0.1:1")), Options{}, GroupOptions{Name: "x", Relay: "a", Table: "t", Lanes: 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.lend.Close(context.Background()) })
	require.EqualValues(t, -1, g.from(0), "not owned")
	g.logs[0] = &laneLog{next: 40}
	require.EqualValues(t, 40, g.from(0))
	for _, at := range []int64{44, 41, 47} {
		g.noted(0, at)
	}
	require.EqualValues(t, 41, g.from(0))
	g.marked(0, 44)
	require.EqualValues(t, 41, g.from(0))
	g.dropped(0, 41)
	require.EqualValues(t, 47, g.from(0))
	g.marked(0, 47)
	require.EqualValues(t, 48, g.from(0))
	g.marked(0, 12) // of an earlier time
	require.EqualValues(t, 48, g.from(0))
	require.True(t, slices.IsSorted(g.logs[0].pending))
}
