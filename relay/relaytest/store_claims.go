package relaytest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func claimCases() []storeCase {
	rows := relay.ClaimRows
	return []storeCase{
		{name: "two relays share a table without taking the same row", run: claimShared, only: rows},
		{name: "Case_C09 an abandoned claim is taken over by database time", run: claimReclaim, only: rows},
		{name: "Case_C06 a young claim is left alone", run: claimYoung, only: rows},
		{name: "Case_C08 a late mark does not touch the new claim", run: claimLate, only: rows},
		{name: "a released claim is free for another relay", run: claimReleased, only: rows},
		{name: "a failed row is retried by another relay", run: claimRetryElsewhere, only: rows},
		{name: "relays side by side take each row once", run: claimManyRelays, only: rows},
	}
}

func second(o *relay.StoreOptions) { o.Relay = "relay-2" }

func claimShared(b *bed) {
	b.commit(events("e", 100, "a", "b")...)
	one, two := b.open(), b.open(second)
	first := ids(one.fetchOnce(40, 1<<20).Events)
	require.Len(b, first, 40)
	rest := two.fetch()
	require.Len(b, rest, 60)
	require.NotSubset(b, first, rest)
	require.Empty(b, one.fetch())
	one.sent(first...)
	two.sent(rest...)
}

func claimReclaim(b *bed) {
	b.commit(events("e", 3, "a", "b", "c")...)
	dead, heir := b.open(), b.open(second)
	require.Len(b, dead.fetch(), 3)
	dead.sent("e00003")
	require.Empty(b, heir.fetch(), "the claims are young")
	b.table.Edit(b.T, "e00001", Edit{ClaimAge: ptr(31 * time.Second)})
	var reclaimed int
	heir.until("the abandoned row", func([]relay.Event) bool {
		got := heir.fetchOnce(10, 1<<20)
		reclaimed += got.Reclaimed
		return len(heir.busy) > 0
	})
	require.Equal(b, "e00001", heir.take("e00001").ID)
	require.Len(b, heir.busy, 1, "the young claim stays")
	heir.sent("e00001")
	require.Equal(b, relay.StateSending, b.row("e00002").State)
}

func claimYoung(b *bed) {
	b.commit(event("e1", "a"))
	one, two := b.open(), b.open(second)
	require.Len(b, one.fetch(), 1)
	b.table.Edit(b.T, "e1", Edit{ClaimAge: ptr(10 * time.Second)})
	for range 5 {
		require.Empty(b, two.fetch(), "10 s old, 30 s allowed")
	}
	require.Equal(b, relay.StateSending, b.row("e1").State)
}

func claimLate(b *bed) {
	for i, late := range []relay.State{relay.StateSent, relay.StateFailed, relay.StateDead, relay.StateNew} {
		id := fmt.Sprintf("e%d", i)
		b.commit(event(id, "K"))
		slow := b.open()
		require.Len(b, slow.fetch(), 1)
		mark := slow.outcome(id, late)
		b.table.Edit(b.T, id, Edit{ClaimAge: ptr(31 * time.Second)})
		heir := b.open(second)
		heir.until("the take-over", func([]relay.Event) bool { return len(heir.busy) == 1 })

		lost, err := slow.Settle(b.ctx, []relay.Outcome{mark})
		require.NoError(b, err)
		require.Equal(b, []relay.RowID{mark.Row}, lost)
		r := b.row(id)
		require.Equal(b, relay.StateSending, r.State, "the heir's claim stands")
		require.Zero(b, r.RetryCount)

		heir.sent(id)
		lost, err = slow.Settle(b.ctx, []relay.Outcome{mark})
		require.NoError(b, err)
		require.Equal(b, []relay.RowID{mark.Row}, lost, "and after the heir's mark")
		require.Equal(b, relay.StateSent, b.row(id).State)
		require.NoError(b, slow.Close())
		require.NoError(b, heir.Close())
	}
}

func claimReleased(b *bed) {
	b.commit(events("e", 3, "a", "b", "c")...)
	one, two := b.open(), b.open(second)
	require.Len(b, one.fetch(), 3)
	require.Empty(b, two.fetch())
	one.settle(one.outcome("e00001", relay.StateNew), one.outcome("e00002", relay.StateNew))
	require.Equal(b, relay.StateNew, b.row("e00001").State)
	require.NoError(b, one.Close()) // the relay that gave them up is gone
	two.until("the released rows", func([]relay.Event) bool { return len(two.busy) == 2 })
	require.Zero(b, two.take("e00002").RetryCount)
}

func claimRetryElsewhere(b *bed) {
	b.commit(event("e1", "a"))
	one, two := b.open(), b.open(second)
	require.Len(b, one.fetch(), 1)
	one.settle(one.outcome("e1", relay.StateFailed))
	require.Empty(b, two.fetch())
	b.due("e1")
	two.until("the retry", func([]relay.Event) bool { return len(two.busy) == 1 })
	require.Equal(b, 1, two.take("e1").RetryCount)
	two.sent("e1")
}

func claimManyRelays(b *bed) {
	const n, relays = 600, 3
	b.commit(events("e", n, "a", "b", "c", "d")...)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[string]int{}
	)
	for i := range relays {
		c := b.open(func(o *relay.StoreOptions) { o.Relay = fmt.Sprintf("relay-%d", i) })
		wg.Go(func() {
			deadline := time.Now().Add(patience)
			for time.Now().Before(deadline) {
				got, err := c.Fetch(b.ctx, relay.Fetch{Limit: 20, MaxBytes: 1 << 20})
				if err != nil {
					b.Errorf("fetch: %v", err)
					return
				}
				outs := make([]relay.Outcome, len(got.Events))
				mu.Lock()
				for j, e := range got.Events {
					seen[e.ID]++
					outs[j] = relay.Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: relay.StateSent}
				}
				done := len(seen) == n
				mu.Unlock()
				if lost, err := c.Settle(b.ctx, outs); err != nil || len(lost) > 0 {
					b.Errorf("settle: lost %v, %v", lost, err)
				}
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	require.Len(b, seen, n)
	for id, times := range seen {
		require.Equal(b, 1, times, "event %s", id)
	}
}
