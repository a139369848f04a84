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
		{name: "Unsettled names rows that are neither sent nor discarded", run: markUnsettled, only: lanes, skip: noStatus},
		{name: "Unsettled of ten thousand rows", run: markUnsettledMany, only: lanes},
		{name: "SENT applies to a row that another relay has made FAILED or DEAD, not to a discarded one", run: markSentOverVerdict, only: lanes, skip: noStatus},
		{name: "SENT of a take-over applies as Unsettled said, not to what was discarded meanwhile", run: markTakenOver, only: lanes, skip: noStatus},
		{name: "SENT deletes a row that another relay has made FAILED or DEAD", run: markDeleteOverVerdict, only: lanes, skip: noStatus},
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
	c.settle(c.outcome("e00002", relay.StateSent), c.outcome("e00003", relay.StateFailed), c.outcome("e00004", relay.StateDead),
		c.outcome("e00006", relay.StateDead))
	b.discard(c, "e00006")
	b.table.Edit(b.T, "e00005", Edit{Delete: true})
	got, err := c.Unsettled(b.ctx, rows)
	require.NoError(b, err)
	require.ElementsMatch(b, []relay.UnsettledRow{
		{Row: rows[1], EventID: "e00001", State: relay.StateNew},
		{Row: rows[3], EventID: "e00003", State: relay.StateFailed},
		{Row: rows[4], EventID: "e00004", State: relay.StateDead},
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

// discard gives up a dead event, as a person does.
func (b *bed) discard(c *client, id string) {
	b.Helper()
	n, _, err := c.Discard(b.ctx, relay.Filter{EventIDs: []string{id}}, "not needed", false)
	require.NoError(b, err)
	require.EqualValues(b, 1, n)
}

// markSentOverVerdict: a relay that did not know yet that it had lost the lane wrote verdicts about rows that the
// new owner has sent.
func markSentOverVerdict(b *bed) {
	b.commit(events("e", 10, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")...)
	late, owner := b.open(), b.open(second)
	require.Len(b, late.fetch(), 10)
	require.Len(b, owner.fetch(), 10)
	var verdicts []relay.Outcome
	for i, id := range []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006", "e00009", "e00008"} {
		verdicts = append(verdicts, late.outcome(id, []relay.State{relay.StateFailed, relay.StateDead}[i%2]))
	}
	late.settle(verdicts...)
	b.table.Edit(b.T, "e00009", Edit{State: ptr(relay.StateDead), LastError: b.anyError("by hand")})
	b.discard(late, "e00008")

	receipt := relay.Receipt{Topic: "orders", Partition: 1, Offset: 77}
	for _, id := range []string{"e00001", "e00002"} { // FAILED, DEAD
		sent := owner.outcome(id, relay.StateSent, func(o *relay.Outcome) { o.Receipt = receipt })
		for range 2 { // as after an answer that was lost on the way
			_, err := owner.Settle(b.ctx, []relay.Outcome{sent})
			require.NoError(b, err)
			r := b.row(id)
			require.Equal(b, relay.StateSent, r.State)
			require.Empty(b, r.LastError)
			if !b.h.Traits.NoReceipt {
				require.Equal(b, &receipt, r.Receipt)
			}
		}
		owner.free(sent)
	}
	// All are SENT, from NEW: the usual statement. Then one that has verdicts among them.
	owner.settle(owner.outcome("e00003", relay.StateSent), owner.outcome("e00007", relay.StateSent), owner.outcome("e00009", relay.StateSent))
	outs := []relay.Outcome{
		owner.outcome("e00004", relay.StateSent), owner.outcome("e00005", relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = 2 * time.Hour }),
		owner.outcome("e00006", relay.StateFailed), owner.outcome("e00008", relay.StateSent), owner.outcome("e00010", relay.StateSent),
	}
	lost, err := owner.Settle(b.ctx, outs)
	require.NoError(b, err)
	require.ElementsMatch(b, []relay.RowID{outs[1].Row, outs[2].Row, outs[3].Row}, lost, "other outcomes are conditional as ever")
	for _, id := range []string{"e00003", "e00004", "e00007", "e00009", "e00010"} {
		require.Equal(b, relay.StateSent, b.row(id).State, id)
	}
	if !b.h.Traits.NoLastError { // else a discarded row is gone
		require.Equal(b, relay.StateDead, b.row("e00008").State, "what a person gave up stays so")
	}
	r := b.row("e00005")
	require.Equal(b, b.failedState(), r.State)
	require.Equal(b, 1, r.RetryCount)
	require.InDelta(b, 3600, r.DueIn.Seconds(), 60, "the first verdict stands")
	require.Equal(b, relay.StateDead, b.row("e00006").State, "the first verdict stands")
	require.Empty(b, owner.fetch())
}

// markTakenOver: a take-over marks what Unsettled says, whatever the rows say by then.
func markTakenOver(b *bed) {
	b.commit(events("e", 6, "a", "b", "c", "d", "e", "f")...)
	late, heir := b.open(), b.open(second)
	require.Len(b, late.fetch(), 6)
	late.settle(late.outcome("e00001", relay.StateFailed), late.outcome("e00002", relay.StateDead), late.outcome("e00003", relay.StateDead),
		late.outcome("e00004", relay.StateDead))
	var rows []relay.RowID
	for i := range 6 {
		rows = append(rows, b.row(fmt.Sprintf("e%05d", i+1)).ID)
	}
	left, err := heir.Unsettled(b.ctx, rows)
	require.NoError(b, err)
	require.Len(b, left, 6)
	b.discard(late, "e00003")
	_, _, err = late.Retry(b.ctx, relay.Filter{EventIDs: []string{"e00004"}}, false)
	require.NoError(b, err)
	late.settle(late.outcome("e00005", relay.StateDead))
	var outs []relay.Outcome
	for _, u := range left {
		outs = append(outs, relay.Outcome{Row: u.Row, EventID: u.EventID, From: u.State, State: relay.StateSent,
			Receipt: relay.Receipt{Topic: "orders", Partition: 1, Offset: 7}})
	}
	lost, err := heir.Settle(b.ctx, outs)
	require.NoError(b, err)
	require.Equal(b, []relay.RowID{rows[2]}, lost)
	for _, id := range []string{"e00001", "e00002", "e00004", "e00005", "e00006"} {
		require.Equal(b, relay.StateSent, b.row(id).State, id)
	}
	if !b.h.Traits.NoLastError {
		require.Equal(b, relay.StateDead, b.row("e00003").State, "what a person gave up stays so")
	}
}

func markDeleteOverVerdict(b *bed) {
	remove := func(o *relay.StoreOptions) { o.Table.AfterSend = "delete" }
	b.commit(events("e", 3, "a", "b", "c")...)
	late, owner := b.open(remove), b.open(remove, second)
	require.Len(b, late.fetch(), 3)
	require.Len(b, owner.fetch(), 3)
	late.settle(late.outcome("e00001", relay.StateDead), late.outcome("e00002", relay.StateFailed))
	lost, err := owner.Settle(b.ctx, []relay.Outcome{owner.outcome("e00001", relay.StateSent), owner.outcome("e00003", relay.StateSent)})
	require.NoError(b, err)
	require.Empty(b, lost)
	for id, want := range map[string]bool{"e00001": false, "e00002": true, "e00003": false} {
		_, there := b.table.Row(b.T, id)
		require.Equal(b, want, there, id)
	}
}
