package relaytest

import (
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// laneGates: rows that were passed over or handed back before a lane came must come after it.
func laneGates(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	b.commit(events("e", 8, a, z)...) // a: 1 3 5 7, z: 2 4 6 8
	c := b.openLaneless()
	c.own(lanes(1)...)
	require.Equal(b, []string{"e00001"}, ids(c.fetchOnce(1, 1<<20).Events))
	c.settle(c.outcome("e00001", relay.StateFailed))
	c.block(a, "e00001")
	require.Empty(b, c.fetch(), "3, 5 and 7 are passed over")
	c.own(lanes(1, 2)...)
	require.Equal(b, []string{"e00002", "e00004", "e00006", "e00008"}, c.fetch())
	b.due("e00001")
	require.Equal(b, []string{"e00001"}, c.fetch())
	c.sent("e00001")
	c.reopen(a)
	require.Equal(b, []string{"e00003"}, ids(c.fetchOnce(1, 1<<20).Events), "in the middle of what was passed over")
	c.own(lanes(1, 2, 3)...)
	c.handBack("e00004", "e00006", "e00008")
	require.Equal(b, []string{"e00004", "e00005", "e00006", "e00007", "e00008"}, c.fetch())
	require.Len(b, c.busy, 7)
}

// laneAhead: the position of a lane that is taken says nothing of the lanes of before.
func laneAhead(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	b.commit(events("e", 30, a, z, keyIn(1, 1))...)
	c, other := b.openLaneless(), b.openLaneless(second)
	c.own(lanes(1)...)
	c.block(a, "e00001")
	require.Equal(b, []string{"e00003"}, ids(c.fetchOnce(1, 1<<20).Events), "some are passed over, the rest is not read")
	other.own(lanes(2)...)
	other.sent(other.fetch()...)
	require.Empty(b, other.fetch())
	low := other.Low()
	require.NoError(b, other.Close())
	c.own(relay.OwnLane{Lane: 1}, relay.OwnLane{Lane: 2, Low: low})
	b.commit(events("f", 2, a, z)...)
	require.Len(b, c.fetch(), 10, "what was not read, and the new one of the other lane")
	c.reopen(a)
	require.Len(b, c.fetch(), 11)
}

// laneLate: the cursor of a relay has passed ids that were not committed, of a lane that it takes later.
func laneLate(b *bed) {
	a, z := keyIn(1, 0), keyIn(2, 0)
	c := b.openLaneless()
	c.own(lanes(1)...)
	for i, early := range []bool{true, false} { // committed before the lane is taken, and after
		n := string(rune('a' + i))
		late := b.table.Begin(b.T)
		late.Insert(event(n+"-1late", z), event(n+"-1late-a", a))
		b.commit(event(n+"-2", a), event(n+"-2z", z))
		require.Equal(b, []string{n + "-2"}, c.fetch())
		c.sent(n + "-2")
		require.Empty(b, c.fetch())
		if early {
			late.Commit()
		}
		c.own(lanes(1, 2)...)
		if !early {
			require.Equal(b, []string{n + "-2z"}, c.fetch())
			require.Empty(b, c.fetch())
			late.Commit()
			require.Equal(b, []string{n + "-1late", n + "-1late-a"}, c.fetch())
		} else {
			require.Equal(b, []string{n + "-1late", n + "-1late-a", n + "-2z"}, c.fetch())
		}
		c.sent(ids(values(c.busy))...)
		require.Empty(b, c.fetch())
		c.own(lanes(1)...)
	}
	// A relay that gives the lane up while ids are open, and the one that goes on from its position.
	other := b.openLaneless(second)
	other.own(lanes(2)...)
	late := b.table.Begin(b.T)
	late.Insert(event("c-1late", z))
	b.commit(event("c-2", z), event("c-2a", a))
	require.Equal(b, []string{"c-2"}, other.fetch())
	require.Equal(b, []string{"c-2a"}, c.fetch())
	other.sent("c-2")
	require.Empty(b, other.fetch())
	low := other.Low()
	require.NoError(b, other.Close())
	c.own(relay.OwnLane{Lane: 1}, relay.OwnLane{Lane: 2, Low: low})
	require.Empty(b, c.fetch())
	late.Commit()
	require.Equal(b, []string{"c-1late"}, c.fetch())
}
