package relaytest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func ownerCases() []storeCase {
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	return []storeCase{
		{name: "a new store finds what the old one left, and no history", run: ownerRestart},
		{name: "a new store after a drain starts without the history", run: ownerRestartDrained},
		{name: "Case_O01 Doubts lists failed and dead rows, oldest first", run: ownerDoubts, skip: noStatus},
		{name: "Doubts without dead rows when they are skipped", run: ownerDoubtsSkip, skip: noStatus},
		{name: "StillBlocking follows what a person does", run: ownerStillBlocking, skip: noStatus},
		{name: "Close may be called twice", run: func(b *bed) {
			c := b.open()
			require.NoError(b, c.Close())
			require.NoError(b, c.Close())
		}},
	}
}

func noStandby(b *bed) func(string) {
	return func(holder string) { b.Errorf("told to wait for %q", holder) }
}

func ownerCancelled(b *bed) {
	one, two := b.open(), b.open(second)
	_, err := one.Acquire(b.ctx, noStandby(b))
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := two.Acquire(ctx, func(string) { cancel() })
		done <- err
	}()
	select {
	case err := <-done:
		require.Error(b, err)
	case <-time.After(patience):
		require.Fail(b, "Acquire outlived its context")
	}
}

func ownerRestart(b *bed) {
	b.commit(events("e", 8, "a", "b", "c", "d")...)
	old := b.open(func(o *relay.StoreOptions) { o.ClaimTimeout = time.Second })
	require.Len(b, old.fetch(), 8)
	old.sent("e00001", "e00002", "e00006")
	old.settle(old.outcome("e00003", relay.StateFailed), old.outcome("e00004", relay.StateDead))
	require.NoError(b, old.Close())
	if !b.h.Traits.NoStatus {
		b.due("e00003")
	}
	for _, id := range []string{"e00005", "e00007", "e00008"} {
		if b.claim == relay.ClaimRows {
			b.table.Edit(b.T, id, Edit{ClaimAge: ptr(2 * time.Second)})
		}
	}
	b.commit(events("f", 2, "a", "b")...)
	heir := b.open(func(o *relay.StoreOptions) { o.ClaimTimeout = time.Second })
	want := []string{"e00003", "e00005", "e00007", "e00008", "f00001", "f00002"}
	if b.h.Traits.NoStatus {
		want = append(want, "e00004") // nothing in the row says that it was dead
	}
	got := heir.until("what was left", func([]relay.Event) bool { return len(heir.busy) >= len(want) })
	require.ElementsMatch(b, want, ids(got))
	require.Empty(b, heir.fetch())
}

func ownerRestartDrained(b *bed) {
	for i := range 3 {
		c := b.open()
		rows := events(string(rune('a'+i)), 200, "K", "L")
		b.commit(rows...)
		require.ElementsMatch(b, rowIDs(rows), c.fetch(), "and nothing of what was sent before")
		c.sent(rowIDs(rows)...)
		require.Empty(b, c.fetch())
		require.NoError(b, c.Close())
	}
}

func (b *bed) failures(c *client) {
	b.Helper()
	b.commit(events("e", 6, "a", "b", "c", "d", "e", "f")...)
	require.Len(b, c.fetch(), 6)
	c.settle(c.outcome("e00002", relay.StateDead), c.outcome("e00004", relay.StateFailed),
		c.outcome("e00001", relay.StateFailed), c.outcome("e00006", relay.StateDead), c.outcome("e00003", relay.StateSent))
}

func ownerDoubts(b *bed) {
	c := b.open()
	b.failures(c)
	b.due("e00001")
	_, _, err := c.Discard(b.ctx, relay.Filter{EventIDs: []string{"e00006"}}, "not needed", false)
	require.NoError(b, err)
	if b.h.Traits.NoLastError { // the row itself is gone
		_, there := b.table.Row(b.T, "e00006")
		require.False(b, there)
	}
	heir := b.open(second)
	ds, err := heir.Doubts(b.ctx, 100)
	require.NoError(b, err)
	require.Len(b, ds, 3)
	want := []struct {
		id, key string
		state   relay.State
	}{{"e00001", "a", relay.StateFailed}, {"e00002", "b", relay.StateDead}, {"e00004", "d", relay.StateFailed}}
	for i, w := range want {
		require.Equal(b, b.row(w.id).ID, ds[i].Row)
		require.Equal(b, w.key, ds[i].Key)
		require.Equal(b, w.state, ds[i].State)
	}
	require.Zero(b, ds[0].DueIn, "due")
	require.InDelta(b, 3600, ds[2].DueIn.Seconds(), 60)
	ds, err = heir.Doubts(b.ctx, 2)
	require.NoError(b, err)
	require.Len(b, ds, 2)
	require.Equal(b, b.row("e00001").ID, ds[0].Row)
}

func ownerDoubtsSkip(b *bed) {
	c := b.open(func(o *relay.StoreOptions) { o.OnDead = relay.OnDeadSkip })
	b.failures(c)
	ds, err := c.Doubts(b.ctx, 100)
	require.NoError(b, err)
	require.Len(b, ds, 2)
	for _, d := range ds {
		require.Equal(b, relay.StateFailed, d.State)
	}
}

func ownerStillBlocking(b *bed) {
	c := b.open()
	b.failures(c)
	row := map[string]relay.RowID{}
	var all []relay.RowID
	for _, id := range []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006"} {
		row[id] = b.row(id).ID
		all = append(all, row[id])
	}
	still := func() []relay.RowID {
		got, err := c.StillBlocking(b.ctx, all)
		require.NoError(b, err)
		return got
	}
	require.ElementsMatch(b, []relay.RowID{row["e00001"], row["e00002"], row["e00004"], row["e00006"]}, still())
	_, _, err := c.Discard(b.ctx, relay.Filter{EventIDs: []string{"e00006"}}, "x", false)
	require.NoError(b, err)
	b.table.Edit(b.T, "e00002", Edit{Delete: true})
	b.table.Edit(b.T, "e00004", Edit{State: ptr(relay.StateSent)})
	require.Equal(b, []relay.RowID{row["e00001"]}, still())
	got, err := c.StillBlocking(b.ctx, nil)
	require.NoError(b, err)
	require.Empty(b, got)
}
