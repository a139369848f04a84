package relaytest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func laneMarkCases() []storeCase {
	lanes := relay.ClaimLanes
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	return []storeCase{
		{name: "Unsettled names rows that are new or failed", run: markUnsettled, only: lanes, skip: noStatus},
		{name: "Unsettled of ten thousand rows", run: markUnsettledMany, only: lanes},
		{name: "SENT applies to a row that another relay has made FAILED", run: markSentOverFailed, only: lanes, skip: noStatus},
		{name: "SENT deletes a row that another relay has made FAILED", run: markDeleteOverFailed, only: lanes, skip: noStatus},
	}
}

func markUnsettled(b *bed) {
	b.commit(events("e", 6, "a", "b", "c", "d", "e", "f")...)
	c := b.open()
	require.Len(b, c.fetch(), 6)
	rows := []relay.RowID{"987654321"}
	for _, id := range []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006"} {
		rows = append(rows, b.row(id).ID)
	}
	c.settle(c.outcome("e00002", relay.StateSent), c.outcome("e00003", relay.StateFailed), c.outcome("e00004", relay.StateDead))
	b.table.Edit(b.T, "e00005", Edit{Delete: true})
	got, err := c.Unsettled(b.ctx, rows)
	require.NoError(b, err)
	require.ElementsMatch(b, []relay.UnsettledRow{
		{Row: rows[1], EventID: "e00001", State: relay.StateNew},
		{Row: rows[3], EventID: "e00003", State: relay.StateFailed},
		{Row: rows[6], EventID: "e00006", State: relay.StateNew},
	}, got)
	c.own() // whoever has the lanes
	got, err = c.Unsettled(b.ctx, rows)
	require.NoError(b, err)
	require.Len(b, got, 3)
	got, err = c.Unsettled(b.ctx, nil)
	require.NoError(b, err)
	require.Empty(b, got)
}

func markUnsettledMany(b *bed) {
	const n = 500
	b.commit(events("e", n, "a", "b")...)
	c := b.open()
	evs := c.fetchEvents(n, 1<<20)
	require.Len(b, evs, n)
	rows := make([]relay.RowID, 0, 10_000+n)
	for i := range 10_000 {
		rows = append(rows, relay.RowID(fmt.Sprint(1_000_000+i)))
	}
	for _, e := range evs {
		rows = append(rows, e.Row)
	}
	c.sent(evs[0].ID)
	got, err := c.Unsettled(b.ctx, rows)
	require.NoError(b, err)
	require.Len(b, got, n-1)
}

// markSentOverFailed: a relay that did not know yet that it had lost the lane wrote verdicts about rows
// that the new owner has sent.
func markSentOverFailed(b *bed) {
	b.commit(events("e", 8, "a", "b", "c", "d", "e", "f", "g", "h")...)
	late, owner := b.open(), b.open(second)
	require.Len(b, late.fetch(), 8)
	require.Len(b, owner.fetch(), 8)
	var verdicts []relay.Outcome
	for _, id := range []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006"} {
		verdicts = append(verdicts, late.outcome(id, relay.StateFailed))
	}
	late.settle(verdicts...)
	b.table.Edit(b.T, "e00008", Edit{State: ptr(relay.StateDead), LastError: b.anyError("by hand")})

	receipt := relay.Receipt{Topic: "orders", Partition: 1, Offset: 77}
	sent := owner.outcome("e00001", relay.StateSent, func(o *relay.Outcome) { o.Receipt = receipt })
	for range 2 { // as after an answer that was lost on the way
		_, err := owner.Settle(b.ctx, []relay.Outcome{sent})
		require.NoError(b, err)
		r := b.row("e00001")
		require.Equal(b, relay.StateSent, r.State)
		require.Empty(b, r.LastError)
		if !b.h.Traits.NoReceipt {
			require.Equal(b, &receipt, r.Receipt)
		}
	}
	owner.free(sent)
	// All are SENT, from NEW: the usual statement. Then one that has verdicts among them.
	owner.settle(owner.outcome("e00002", relay.StateSent), owner.outcome("e00007", relay.StateSent))
	outs := []relay.Outcome{
		owner.outcome("e00003", relay.StateSent), owner.outcome("e00004", relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = 2 * time.Hour }),
		owner.outcome("e00005", relay.StateDead), owner.outcome("e00008", relay.StateSent),
	}
	lost, err := owner.Settle(b.ctx, outs)
	require.NoError(b, err)
	require.ElementsMatch(b, []relay.RowID{outs[1].Row, outs[2].Row, outs[3].Row}, lost, "other outcomes are conditional as ever, and DEAD stays")
	require.Equal(b, relay.StateSent, b.row("e00002").State)
	require.Equal(b, relay.StateSent, b.row("e00003").State)
	require.Equal(b, relay.StateDead, b.row("e00008").State)
	for _, id := range []string{"e00004", "e00005"} {
		r := b.row(id)
		require.Equal(b, b.failedState(), r.State)
		require.Equal(b, 1, r.RetryCount)
		require.InDelta(b, 3600, r.DueIn.Seconds(), 60, "the first verdict stands")
	}
	require.Empty(b, owner.fetch())
}

func markDeleteOverFailed(b *bed) {
	remove := func(o *relay.StoreOptions) { o.Table.AfterSend = "delete" }
	b.commit(events("e", 3, "a", "b", "c")...)
	late, owner := b.open(remove), b.open(remove, second)
	require.Len(b, late.fetch(), 3)
	require.Len(b, owner.fetch(), 3)
	late.settle(late.outcome("e00001", relay.StateFailed), late.outcome("e00002", relay.StateFailed))
	lost, err := owner.Settle(b.ctx, []relay.Outcome{owner.outcome("e00001", relay.StateSent), owner.outcome("e00003", relay.StateSent)})
	require.NoError(b, err)
	require.Empty(b, lost)
	for id, want := range map[string]bool{"e00001": false, "e00002": true, "e00003": false} {
		_, there := b.table.Row(b.T, id)
		require.Equal(b, want, there, id)
	}
}
