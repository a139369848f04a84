package relaytest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func laneCases() []storeCase {
	lanes := relay.ClaimLanes
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	return []storeCase{
		{name: "no row comes before the first Own", run: laneNone, only: lanes},
		{name: "lanes of keys of any letters are those of LaneOf", run: laneOfKeys, only: lanes},
		{name: "Own adds a lane: its older rows come too, in order", run: laneAdded, only: lanes},
		{name: "Own removes a lane: no more of its rows come until it is back", run: laneRemoved, only: lanes},
		{name: "Own of the same lanes changes nothing", run: laneSame, only: lanes},
		{name: "Own refuses lanes that there are not", run: laneWrong, only: lanes},
		{name: "Own loses nothing of keys that wait or were reopened", run: laneGates, only: lanes, skip: noStatus},
		{name: "Own of a lane that is far ahead leaves nothing behind", run: laneAhead, only: lanes},
		{name: "Case_C01 a late row of a lane that was taken meanwhile comes", run: laneLate, only: lanes, skip: oneWriter},
		{name: "Case_O01 Doubts lists rows of its own lanes only", run: laneDoubts, only: lanes, skip: noStatus},
		{name: "failed rows of other lanes do not come", run: laneFailed, only: lanes, skip: noStatus},
		{name: "two relays with half of the lanes each share a table", run: laneShared, only: lanes},
		{name: "few rows of many are this relay's", run: laneFew, only: lanes},
		{name: "Promise_P1_P3 lanes that move between relays: nothing lost, nothing twice, keys in order", run: laneHistory, only: lanes},
	}
}

// lanes makes the argument of Own, without a position.
func lanes(numbers ...int32) []relay.OwnLane {
	out := make([]relay.OwnLane, len(numbers))
	for i, n := range numbers {
		out[i].Lane = n
	}
	return out
}

func allLanes() []relay.OwnLane {
	out := make([]relay.OwnLane, suiteLanes)
	for i := range out {
		out[i].Lane = int32(i)
	}
	return out
}

// half are the even lanes, or the odd ones.
func half(odd int32) []relay.OwnLane {
	var out []relay.OwnLane
	for n := odd; n < suiteLanes; n += 2 {
		out = append(out, relay.OwnLane{Lane: n})
	}
	return out
}

func lane(key string) int32 { return relay.LaneOf(key, suiteLanes) }

// keyIn finds the nth key of a lane.
func keyIn(want int32, nth int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key-%d", i); lane(key) == want {
			if nth--; nth < 0 {
				return key
			}
		}
	}
}

func (c *client) own(lanes ...relay.OwnLane) {
	c.Helper()
	require.NoError(c, c.Own(c.ctx, lanes))
}

func laneNone(b *bed) {
	b.commit(events("e", 20, "a", "b", "c", "d", "e", "f", "g")...)
	c := b.openLaneless()
	got := c.fetchOnce(100, 1<<20)
	require.Empty(b, got.Events)
	require.False(b, got.More)
	ds, err := c.Doubts(b.ctx, 10)
	require.NoError(b, err)
	require.Empty(b, ds)
	require.Empty(b, c.Low())
	c.own()
	require.Empty(b, c.fetch())
	c.own(allLanes()...)
	require.Len(b, c.fetch(), 20)
}

// nastyKeys are texts that encodings, collations and paddings tend to treat as something else.
func (b *bed) nastyKeys() []string {
	keys := []string{
		"", " ", "  ", "a", "a ", " a", "a  ", "A", "ab", "AB", "aB", "\t", "a\t", "\n", "'", `"`, `\`, `\x00`, `\\`, "%", "_", "?", "$1", ";--",
		"\u00e9", "e\u0301", "\u00e8", "e", "\u00c9", "\u00e5", "\u212b", "a\u030a", "\u00fc", "\u00df", "ss", "\u1e9e", "\u0130", "\u0131", "I", "i",
		"\u4e16\u754c", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u05e9\u05dc\u05d5\u05dd", "\ud55c\uae00", "\u1112\u1161\u11ab", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u200b", "\u00a0",
		"\ufeffx", "\uffff", "\U0010ffff", "\ufffd", "0", "00", "1e3", "null", "NULL", "1", "01", "-1", "1.0", "true",
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", strings.Repeat("x", 64), strings.Repeat("\u20ac", 64),
	}
	if b.h.Traits.NulKeys {
		keys = append(keys, "\x00", "a\x00", "a\x00b", "\x00a")
	}
	return keys
}

// EachLane reads a table of n lanes lane by lane and returns the keys that came, of rows without one the row: all
// were of the lane that relay.LaneOf gives.
func EachLane(t testing.TB, s relay.LaneStore, n int32) (keys []string) {
	t.Helper()
	var busy []relay.RowID
	for lane := range n {
		require.NoError(t, s.Own(t.Context(), []relay.OwnLane{{Lane: lane}}))
		got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 1000, MaxBytes: 1 << 20, Busy: busy})
		require.NoError(t, err)
		for _, e := range got.Events {
			text := string(e.Row)
			if e.Key != nil {
				text = *e.Key
			}
			require.Equal(t, lane, relay.LaneOf(text, n), "%q", text)
			keys, busy = append(keys, text), append(busy, e.Row)
		}
	}
	return keys
}

// laneOfKeys goes through the lanes one by one: in each come the keys that LaneOf puts there.
func laneOfKeys(b *bed) {
	keys := b.nastyKeys()
	rows := make([]NewRow, len(keys))
	for i, key := range keys {
		rows[i] = NewRow{EventID: fmt.Sprintf("e%03d", i), AggregateID: key, Key: &key}
	}
	b.commit(rows...)
	c := b.openLaneless()
	for n := range int32(suiteLanes) {
		c.own(lanes(n)...)
		var want, got []string
		for i, key := range keys {
			if lane(key) == n {
				want = append(want, rows[i].EventID)
			}
		}
		for _, e := range c.fetchEvents(1000, 1<<20) {
			require.Equal(b, keys[mustInt(strings.TrimLeft(e.ID, "e"))], *e.Key)
			got = append(got, e.ID)
		}
		require.Equal(b, want, got, "lane %d", n)
	}
	require.Len(b, c.busy, len(keys))
}

func laneAdded(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	b.commit(events("e", 100, a, z)...)
	c := b.openLaneless()
	c.own(lanes(1)...)
	first := c.fetch()
	require.Len(b, first, 50)
	c.sent(first[:20]...) // the rest stays in flight
	b.commit(events("f", 10, a, z)...)
	c.own(lanes(1, 2)...)
	got := c.fetchEvents(7, 1<<20)
	require.Len(b, got, 60, "the lane's older rows, and what is new")
	c.checkOrder(got)
	require.Empty(b, c.fetch())
	c.sent(ids(values(c.busy))...)
	require.Empty(b, c.fetch())
	b.commit(events("g", 4, a, z)...)
	require.Len(b, c.fetch(), 4)
}

func laneRemoved(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	b.commit(events("e", 40, a, z)...)
	c := b.openLaneless()
	c.own(lanes(1, 2)...)
	first := ids(c.fetchOnce(10, 1<<20).Events)
	require.Len(b, first, 10)
	low := c.Low()
	c.own(lanes(1)...)
	rest := c.fetchEvents(6, 1<<20)
	require.Len(b, rest, 15)
	for _, e := range rest {
		require.Equal(b, a, *e.Key)
	}
	// What was in flight of the lost lane is never settled, and is not called busy any more.
	var back []string
	for row, e := range c.busy {
		if *e.Key == z {
			back = append(back, e.ID)
			delete(c.busy, row)
		}
	}
	require.Len(b, back, 5)
	require.Empty(b, c.fetch())
	c.own(relay.OwnLane{Lane: 1}, relay.OwnLane{Lane: 2, Low: low})
	got := c.fetchEvents(6, 1<<20)
	require.Len(b, got, 20)
	c.checkOrder(got)
	for _, e := range got {
		require.Equal(b, z, *e.Key)
	}
	c.sent(ids(values(c.busy))...)
	require.Empty(b, c.fetch())
}

func laneSame(b *bed) {
	c := b.open()
	b.commit(events("e", 30, "a", "b", "c")...)
	require.Len(b, c.fetchOnce(10, 1<<20).Events, 10)
	c.own(allLanes()...)
	c.own(allLanes()...)
	require.Len(b, c.fetch(), 20)
}

func laneWrong(b *bed) {
	c := b.open()
	b.commit(event("e1", "a"))
	for _, wrong := range [][]relay.OwnLane{lanes(suiteLanes), lanes(-1), lanes(3, 4, 3)} {
		require.Error(b, c.Own(b.ctx, wrong))
	}
	require.Equal(b, []string{"e1"}, c.fetch(), "the lanes of before stay")
}

func laneDoubts(b *bed) {
	c := b.open()
	b.failures(c)
	heir := b.openLaneless(second)
	for _, key := range []string{"a", "b", "d", "f"} {
		heir.own(lanes(lane(key))...)
		ds, err := heir.Doubts(b.ctx, 100)
		require.NoError(b, err)
		var got []string
		for _, d := range ds {
			require.Equal(b, lane(key), lane(d.Key))
			got = append(got, d.Key)
		}
		require.Contains(b, got, key)
	}
	ds, err := c.Doubts(b.ctx, 100)
	require.NoError(b, err)
	require.Len(b, ds, 4)
	c.own()
	ds, err = c.Doubts(b.ctx, 100)
	require.NoError(b, err)
	require.Empty(b, ds)
}

func laneFailed(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	b.commit(events("e", 2, a, z)...)
	c := b.open()
	require.Len(b, c.fetch(), 2)
	c.settle(c.outcome("e00001", relay.StateFailed), c.outcome("e00002", relay.StateFailed))
	b.due("e00001")
	b.due("e00002")
	c.own(lanes(2)...)
	require.Equal(b, []string{"e00002"}, c.fetch())
	require.Empty(b, c.fetch())
	c.own(lanes(1, 2)...)
	c.until("the other retry", func([]relay.Event) bool { return len(c.busy) == 2 })
}

func laneShared(b *bed) {
	one, two := b.openLaneless(), b.openLaneless(second)
	one.own(half(0)...)
	two.own(half(1)...)
	var want []string
	var got []relay.Event
	for round := range 6 {
		rows := events(fmt.Sprintf("e%d-", round), 60, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
		b.commit(rows...)
		want = append(want, rowIDs(rows)...)
		for _, c := range []*client{one, two} {
			part := c.fetchEvents(9, 1<<20)
			require.NotEmpty(b, part)
			got = append(got, part...)
			c.sent(ids(part)...)
		}
	}
	require.ElementsMatch(b, want, ids(got), "each row once")
	for key, evs := range byKey(got) {
		require.True(b, slices.IsSorted(ids(evs)), "key %s", key)
	}
	require.Empty(b, one.fetch())
	require.Empty(b, two.fetch())
}

func byKey(evs []relay.Event) map[string][]relay.Event {
	out := map[string][]relay.Event{}
	for _, e := range evs {
		out[*e.Key] = append(out[*e.Key], e)
	}
	return out
}

// laneFew: one row in a hundred is of a lane of its own; limits count these only.
func laneFew(b *bed) {
	const n = 3000
	a, z := keyIn(1, 0), keyIn(2, 0)
	rows := events("e", n, z)
	var want []string
	for i := 0; i < n; i += 100 {
		rows[i].AggregateID = a
		want = append(want, rows[i].EventID)
	}
	b.commit(rows...)
	c := b.openLaneless()
	c.own(lanes(1)...)
	require.Equal(b, want, ids(c.fetchEvents(10, 1<<20)))
	c.sent(want...)
	require.Empty(b, c.fetch())
	c.own(half(0)...)
	require.Len(b, c.fetchEvents(500, 1<<20), n-len(want))
}
