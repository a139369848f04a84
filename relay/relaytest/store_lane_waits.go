package relaytest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func laneWaitCases() []storeCase {
	lanes := relay.ClaimLanes
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	return []storeCase{
		{name: "Low is not kept down by keys that wait", run: waitLow, only: lanes, skip: noStatus},
		{name: "Case_O01 keys that waited go on waiting for the next owner", run: waitOn, only: lanes, skip: noStatus},
		{name: "keys that waited come to the next owner when a person has acted meanwhile", run: waitReleased, only: lanes, skip: noStatus},
		{name: "keys that waited come although their first row is gone", run: waitGone, only: lanes, skip: noStatus},
		{name: "more keys wait than Low can tell", run: waitMany, only: lanes, skip: noStatus},
		{name: "keys that wait are not forgotten when a lane is added", run: waitAdded, only: lanes, skip: noStatus},
	}
}

// waiting writes three events of each of n keys of lane 1, the first of which is dead, and many of lane 2 that are
// sent. It returns the keys and what the relay says of its lanes.
func (b *bed) waiting(c *client, n int) (keys []string, low string) {
	b.Helper()
	for i := range n {
		keys = append(keys, keyIn(1, i))
	}
	var rows []NewRow
	for i, key := range keys {
		rows = append(rows, events(fmt.Sprintf("w%d-", i), 3, key)...)
	}
	b.commit(rows...)
	var dead []relay.Outcome
	c.fetchEvents(1000, 1<<20)
	for i, key := range keys {
		id := fmt.Sprintf("w%d-00001", i)
		dead = append(dead, c.outcome(id, relay.StateDead))
		c.block(key, id)
	}
	c.settle(dead...)
	for _, e := range values(c.busy) { // what was read behind them goes back
		delete(c.busy, e.Row)
	}
	require.Empty(b, c.fetch())
	rest := events("z", 300, keyIn(2, 0), keyIn(2, 1))
	b.commit(rest...)
	require.Len(b, c.fetch(), 300)
	c.sent(rowIDs(rest)...)
	require.Empty(b, c.fetch())
	return keys, c.Low()
}

// heir is a relay that takes over all lanes.
func (b *bed) heir(low string) *client {
	b.Helper()
	c := b.openLaneless(second)
	own := allLanes()
	for i := range own {
		own[i].Low = low
	}
	c.own(own...)
	ds, err := c.Doubts(b.ctx, 1000)
	require.NoError(b, err)
	for _, d := range ds {
		if c.headOf(d.Key) == "" {
			c.blocked = append(c.blocked, relay.Blocked{Key: d.Key, Head: d.Row})
		}
	}
	return c
}

func waitLow(b *bed) {
	_, low := b.waiting(b.open(), 2)
	if !b.h.Traits.KeepsLow {
		require.Empty(b, low)
		return
	}
	digits, _, _ := strings.Cut(low, ",")
	at, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(b, err)
	require.Greater(b, at, int64(mustInt(string(b.row("z00001").ID))))
}

func waitOn(b *bed) {
	keys, low := b.waiting(b.open(), 2)
	for range 3 { // from one owner to the next
		c := b.heir(low)
		require.Empty(b, c.fetch(), "what was sent, and what waits")
		low = c.Low()
		b.commit(events("y", 1, keyIn(2, 0))...)
		require.Equal(b, []string{"y00001"}, c.fetch())
		b.table.Edit(b.T, "y00001", Edit{Delete: true})
	}
	c := b.heir(low)
	b.commit(events("x", 2, keys[0], keys[1])...)
	require.Empty(b, c.fetch())
	b.discard(c, "w0-00001")
	c.reopen(keys[0])
	require.Equal(b, []string{"w0-00002", "w0-00003", "x00001"}, c.fetch())
	c.sent("w0-00002", "w0-00003", "x00001")
	require.Empty(b, c.fetch())
}

func waitReleased(b *bed) {
	c := b.open()
	_, low := b.waiting(c, 2)
	b.discard(c, "w0-00001")
	b.table.Edit(b.T, "w1-00001", Edit{Delete: true})
	heir := b.heir(low)
	got := heir.fetch()
	require.ElementsMatch(b, []string{"w0-00002", "w0-00003", "w1-00002", "w1-00003"}, got)
	heir.sent(got...)
	require.Empty(b, heir.fetch())
}

func waitGone(b *bed) {
	c := b.open()
	_, low := b.waiting(c, 1)
	b.discard(c, "w0-00001")
	b.table.Edit(b.T, "w0-00002", Edit{Delete: true})
	require.Equal(b, []string{"w0-00003"}, b.heir(low).fetch())
}

func waitMany(b *bed) {
	const n = 60
	c := b.open()
	_, low := b.waiting(c, n)
	for i := range n {
		b.discard(c, fmt.Sprintf("w%d-00001", i))
	}
	require.Len(b, b.heir(low).fetch(), 2*n)
}

func waitAdded(b *bed) {
	c := b.open()
	c.own(lanes(1, 2)...)
	keys, _ := b.waiting(c, 2)
	other := b.openLaneless(second)
	other.own(lanes(3)...)
	require.Empty(b, other.fetch())
	c.own(relay.OwnLane{Lane: 1}, relay.OwnLane{Lane: 2}, relay.OwnLane{Lane: 3, Low: other.Low()})
	b.commit(events("y", 1, keyIn(3, 0))...)
	require.Equal(b, []string{"y00001"}, c.fetch())
	b.discard(c, "w0-00001")
	c.reopen(keys[0])
	require.Equal(b, []string{"w0-00002", "w0-00003"}, c.fetch())
	c.sent("w0-00002", "w0-00003", "y00001")
	require.Empty(b, c.fetch())
}
