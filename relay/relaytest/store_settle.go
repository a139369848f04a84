package relaytest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func settleCases() []storeCase {
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	noError := func(tr Traits) bool { return tr.NoStatus || tr.NoLastError }
	return []storeCase{
		{name: "Settle writes SENT with its receipt", run: settleSent, skip: noStatus},
		{name: "Settle deletes a sent row when told so", run: settleDelete},
		{name: "Settle writes FAILED with a time of the database", run: settleFailed, skip: noStatus},
		{name: "Settle writes DEAD", run: settleDead, skip: noStatus},
		{name: "Settle counts an attempt only when told so", run: settleAttempts, skip: noStatus},
		{name: "Settle writes all states at once", run: settleMixed, skip: noStatus},
		{name: "Settle writes thousands at once", run: settleMany},
		{name: "Settle of nothing does nothing", run: settleNothing},
		{name: "Settle twice is as once", run: settleTwice, skip: noStatus},
		{name: "Settle clears the traces of a failure when SENT", run: settleAfterFailure, skip: noStatus},
		{name: "Case_C08 Settle leaves rows alone that a person changed", run: settleLost, skip: noStatus},
		{name: "Settle reports deleted rows as lost", run: settleDeleted},
		{name: "Case_C15 Settle cuts last_error and strips NUL", run: settleLongError, skip: noError},
	}
}

func settleSent(b *bed) {
	b.commit(events("e", 2, "a", "b")...)
	c := b.open()
	require.Len(b, c.fetch(), 2)
	receipt := relay.Receipt{Topic: "orders-v2", Partition: 11, Offset: 1<<40 + 7}
	c.settle(c.outcome("e00001", relay.StateSent, func(o *relay.Outcome) { o.Receipt = receipt }))
	r := b.row("e00001")
	require.Equal(b, relay.StateSent, r.State)
	require.Zero(b, r.RetryCount)
	if !b.h.Traits.NoSentAt {
		require.True(b, r.HasSent)
		require.InDelta(b, 0, r.SentAgo.Seconds(), 30, "sent_at is the database's now")
	}
	if !b.h.Traits.NoReceipt {
		require.Equal(b, &receipt, r.Receipt)
	}
	other := b.row("e00002")
	require.NotEqual(b, relay.StateSent, other.State)
	require.False(b, other.HasSent)
}

func settleDelete(b *bed) {
	b.commit(events("e", 3, "a", "b", "c")...)
	c := b.open(func(o *relay.StoreOptions) { o.Table.AfterSend = "delete" })
	require.Len(b, c.fetch(), 3)
	c.settle(c.outcome("e00001", relay.StateSent), c.outcome("e00002", relay.StateFailed))
	_, there := b.table.Row(b.T, "e00001")
	require.False(b, there, "a sent row is deleted")
	_, there = b.table.Row(b.T, "e00002")
	require.True(b, there, "a failed row stays")
	c.sent("e00003")
	require.Empty(b, c.fetch())
	b.commit(event("f", "a"))
	require.Equal(b, []string{"f"}, c.fetch())
}

func settleFailed(b *bed) {
	b.commit(event("e1", "K"))
	c := b.open()
	require.Len(b, c.fetch(), 1)
	c.settle(c.outcome("e1", relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = 10 * time.Minute }))
	r := b.row("e1")
	require.Equal(b, b.failedState(), r.State)
	require.Equal(b, 1, r.RetryCount)
	require.True(b, r.HasDue)
	require.InDelta(b, 600, r.DueIn.Seconds(), 30, "next_retry_at counts from the database's clock")
	require.False(b, r.HasSent)
	if !b.h.Traits.NoLastError {
		require.Equal(b, "[retriable] TEST: refused", r.LastError)
	}
	require.Empty(b, c.fetch(), "its time has not come")
	b.due("e1")
	evs := c.fetchEvents(10, 1<<20)
	require.Equal(b, []string{"e1"}, ids(evs))
	require.Equal(b, 1, evs[0].RetryCount)
	c.settle(c.outcome("e1", relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = 0 }))
	require.Equal(b, 2, b.row("e1").RetryCount)
	require.Equal(b, []string{"e1"}, c.fetch(), "a retry after nothing is due at once")
}

// failedState is how Row shows a failed row.
func (b *bed) failedState() relay.State {
	if b.h.Traits.FailedIsNew {
		return relay.StateNew
	}
	return relay.StateFailed
}

func settleDead(b *bed) {
	b.commit(events("e", 2, "K", "L")...)
	c := b.open()
	require.Len(b, c.fetch(), 2)
	c.settle(c.outcome("e00001", relay.StateDead))
	r := b.row("e00001")
	require.Equal(b, relay.StateDead, r.State)
	require.Equal(b, 1, r.RetryCount)
	if !b.h.Traits.NoLastError {
		require.Equal(b, "[permanent] TEST: refused for good", r.LastError)
	}
	require.Empty(b, c.fetch(), "dead rows are not due")
}

func settleAttempts(b *bed) {
	b.commit(events("e", 3, "a", "b", "c")...)
	c := b.open()
	require.Len(b, c.fetch(), 3)
	free := func(o *relay.Outcome) { o.Attempt = false }
	c.settle(c.outcome("e00001", relay.StateFailed, free), c.outcome("e00002", relay.StateDead, free),
		c.outcome("e00003", relay.StateFailed))
	require.Zero(b, b.row("e00001").RetryCount)
	require.Zero(b, b.row("e00002").RetryCount)
	require.Equal(b, 1, b.row("e00003").RetryCount)
}

func settleMixed(b *bed) {
	b.commit(events("e", 4, "a", "b", "c", "d")...)
	c := b.open()
	require.Len(b, c.fetch(), 4)
	c.settle(c.outcome("e00003", relay.StateDead), c.outcome("e00001", relay.StateSent),
		c.outcome("e00004", relay.StateNew), c.outcome("e00002", relay.StateFailed))
	require.Equal(b, relay.StateSent, b.row("e00001").State)
	require.Equal(b, b.failedState(), b.row("e00002").State)
	require.Equal(b, relay.StateDead, b.row("e00003").State)
	require.Equal(b, relay.StateNew, b.row("e00004").State)
	require.Zero(b, b.row("e00004").RetryCount, "a row that goes back unsent has no attempt more")
	require.Equal(b, []string{"e00004"}, c.fetch())
}

func settleMany(b *bed) {
	rows := events("e", 3000, "a", "b", "c")
	b.commit(rows...)
	c := b.open()
	evs := c.fetchEvents(5000, 1<<24)
	require.Len(b, evs, len(rows))
	c.sent(ids(evs)...)
	require.Empty(b, c.fetch())
}

func settleNothing(b *bed) {
	c := b.open()
	lost, err := c.Settle(b.ctx, nil)
	require.NoError(b, err)
	require.Empty(b, lost)
}

func settleTwice(b *bed) {
	b.commit(events("e", 3, "a", "b", "c")...)
	c := b.open()
	require.Len(b, c.fetch(), 3)
	outs := []relay.Outcome{
		c.outcome("e00001", relay.StateSent), c.outcome("e00002", relay.StateFailed),
		c.outcome("e00003", relay.StateDead),
	}
	for range 2 { // as after an answer that was lost on the way
		_, err := c.Settle(b.ctx, outs)
		require.NoError(b, err)
		require.Equal(b, relay.StateSent, b.row("e00001").State)
		require.Equal(b, 1, b.row("e00002").RetryCount)
		require.Equal(b, 1, b.row("e00003").RetryCount)
	}
}

func settleAfterFailure(b *bed) {
	b.commit(event("e1", "K"))
	c := b.open()
	require.Len(b, c.fetch(), 1)
	c.settle(c.outcome("e1", relay.StateFailed))
	b.due("e1")
	require.Equal(b, []string{"e1"}, c.fetch())
	c.sent("e1")
	r := b.row("e1")
	require.Equal(b, relay.StateSent, r.State)
	require.Equal(b, 1, r.RetryCount, "the attempts that failed stay counted")
	require.Empty(b, r.LastError)
	require.Empty(b, c.fetch())
}

func settleLost(b *bed) {
	b.commit(events("e", 4, "a", "b", "c", "d")...)
	c := b.open()
	require.Len(b, c.fetch(), 4)
	b.table.Edit(b.T, "e00001", Edit{State: ptr(relay.StateSent)})
	b.table.Edit(b.T, "e00002", Edit{State: ptr(relay.StateDead), LastError: b.anyError("discarded: by hand")})
	outs := []relay.Outcome{
		c.outcome("e00001", relay.StateFailed), c.outcome("e00002", relay.StateSent),
		c.outcome("e00003", relay.StateSent), c.outcome("e00004", relay.StateFailed),
	}
	lost, err := c.Settle(b.ctx, outs)
	require.NoError(b, err)
	want, dead := []relay.RowID{outs[0].Row, outs[1].Row}, relay.StateDead
	if b.claim == relay.ClaimLanes && b.h.Traits.NoLastError { // nothing says that the row was given up
		want, dead = want[:1], relay.StateSent
	}
	require.ElementsMatch(b, want, lost)
	require.Equal(b, relay.StateSent, b.row("e00001").State)
	require.Zero(b, b.row("e00001").RetryCount)
	require.Equal(b, dead, b.row("e00002").State)
	require.Equal(b, dead == relay.StateSent && !b.h.Traits.NoSentAt, b.row("e00002").HasSent)
	require.Equal(b, relay.StateSent, b.row("e00003").State)
	require.Equal(b, b.failedState(), b.row("e00004").State)
}

func settleDeleted(b *bed) {
	b.commit(events("e", 2, "a", "b")...)
	c := b.open()
	require.Len(b, c.fetch(), 2)
	b.table.Edit(b.T, "e00001", Edit{Delete: true})
	outs := []relay.Outcome{c.outcome("e00001", relay.StateFailed), c.outcome("e00002", relay.StateSent)}
	lost, err := c.Settle(b.ctx, outs)
	require.NoError(b, err)
	require.Equal(b, []relay.RowID{outs[0].Row}, lost)
}

func settleLongError(b *bed) {
	b.commit(events("e", 2, "a", "b")...)
	c := b.open()
	require.Len(b, c.fetch(), 2)
	long := "begin\x00" + strings.Repeat("ü€", 3000)
	c.settle(
		c.outcome("e00001", relay.StateFailed, func(o *relay.Outcome) { o.LastError = long }),
		c.outcome("e00002", relay.StateDead, func(o *relay.Outcome) { o.LastError = "a\x00b \xff\xfe c" }),
	)
	got := b.row("e00001").LastError
	require.True(b, strings.HasPrefix(got, "beginü€ü€"), "without the NUL, from the front")
	require.GreaterOrEqual(b, len([]rune(got)), 200)
	if n := b.h.Traits.LastErrorMax; n > 0 {
		require.LessOrEqual(b, len([]rune(got)), n)
	}
	require.NotContains(b, b.row("e00002").LastError, "\x00")
	require.True(b, strings.HasPrefix(b.row("e00002").LastError, "ab "))
}
