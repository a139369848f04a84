package relaytest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func adminCases() []storeCase {
	all := []storeCase{
		{name: "Counts counts by state, bounded", run: adminCounts},
		{name: "List filters and pages", run: adminList},
		{name: "Get returns a row with its payload", run: adminGet},
		{name: "Case_C11 Retry touches failed and dead rows only", run: adminRetry},
		{name: "Retry of a filter, dry and real", run: adminRetryFilter},
		{name: "Discard gives dead rows up", run: adminDiscard},
	}
	for i := range all {
		all[i].skip = func(tr Traits) bool { return tr.NoStatus }
	}
	return all
}

func adminCounts(b *bed) {
	c := b.open()
	counts, err := c.Counts(b.ctx, 1000)
	require.NoError(b, err)
	require.Equal(b, relay.Counts{
		New: relay.Count{Exact: true}, Sending: relay.Count{Exact: true}, Failed: relay.Count{Exact: true},
		Dead: relay.Count{Exact: true}, BlockedKeys: relay.Count{Exact: true},
	}, counts, "an empty table")
	b.failures(c) // two failed, two dead, one sent, one read and not settled
	b.commit(events("n", 10, "x", "y")...)
	counts, err = c.Counts(b.ctx, 1000)
	require.NoError(b, err)
	exact := func(n int64) relay.Count { return relay.Count{Value: n, Exact: true} }
	inFlight := int64(0)
	if b.claim == relay.ClaimRows {
		inFlight = 1
	}
	require.Equal(b, exact(inFlight), counts.Sending)
	require.Equal(b, exact(11-inFlight), counts.New)
	require.Equal(b, exact(2), counts.Failed)
	require.Equal(b, exact(2), counts.Dead)
	require.Equal(b, exact(4), counts.BlockedKeys)
	require.GreaterOrEqual(b, counts.OldestPendingAge, time.Duration(0))
	require.Less(b, counts.OldestPendingAge, time.Minute)
	counts, err = c.Counts(b.ctx, 5)
	require.NoError(b, err)
	require.Equal(b, relay.Count{Value: 5, Exact: false}, counts.New)
	require.Equal(b, exact(2), counts.Dead)
}

func (b *bed) list(c *client, f relay.Filter) []string {
	b.Helper()
	rows, err := c.List(b.ctx, f)
	require.NoError(b, err)
	out := []string{}
	for _, r := range rows {
		require.Nil(b, r.Payload, "a list has no payloads")
		out = append(out, r.ID)
	}
	return out
}

func adminList(b *bed) {
	c := b.open()
	b.failures(c)
	other := event("other", "a")
	other.Type, other.AggregateType, other.Topic = "Refunded", "refund", "refunds"
	b.commit(other)
	require.Equal(b, []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006", "other"}, b.list(c, relay.Filter{}))
	require.Equal(b, []string{"e00002", "e00006"}, b.list(c, relay.Filter{States: []relay.State{relay.StateDead}}))
	require.Equal(b, []string{"e00001", "e00002", "e00004", "e00006"},
		b.list(c, relay.Filter{States: []relay.State{relay.StateFailed, relay.StateDead}}))
	require.Equal(b, []string{"e00001"}, b.list(c, relay.Filter{Key: "a", Type: "OrderCreated"}))
	require.Equal(b, []string{"e00001", "other"}, b.list(c, relay.Filter{Key: "a"}))
	require.Equal(b, []string{"other"}, b.list(c, relay.Filter{Type: "Refunded"}))
	require.Equal(b, []string{"other"}, b.list(c, relay.Filter{AggregateType: "refund"}))
	require.Equal(b, []string{"e00003", "e00005"}, b.list(c, relay.Filter{EventIDs: []string{"e00005", "e00003", "nope"}}))
	require.Equal(b, []string{"e00001", "e00002"}, b.list(c, relay.Filter{Limit: 2}))
	require.Equal(b, []string{"e00003", "e00004"}, b.list(c, relay.Filter{Limit: 2, After: b.row("e00002").ID}))
	require.Len(b, b.list(c, relay.Filter{Since: time.Hour}), 7)
	require.Empty(b, b.list(c, relay.Filter{Key: "nobody"}))
	require.Empty(b, b.list(c, relay.Filter{Type: "' OR 1=1 --"}))
	if !b.h.Traits.NoTopic {
		require.Equal(b, []string{"other"}, b.list(c, relay.Filter{Topic: "refunds"}))
	}
	if !b.h.Traits.NoLastError {
		require.Equal(b, []string{"e00002", "e00006"}, b.list(c, relay.Filter{Error: "for good"}))
		require.Empty(b, b.list(c, relay.Filter{Error: "for%good"}), "no patterns")
		rows, err := c.List(b.ctx, relay.Filter{EventIDs: []string{"e00004"}})
		require.NoError(b, err)
		require.Equal(b, "[retriable] TEST: refused", rows[0].LastError)
		require.Equal(b, time.UTC, rows[0].NextRetryAt.Location())
	}
	rows, err := c.List(b.ctx, relay.Filter{States: []relay.State{relay.StateSent}})
	require.NoError(b, err)
	require.Len(b, rows, 1)
	require.Equal(b, relay.StateSent, rows[0].State)
	require.Equal(b, b.h.Traits.NoSentAt, rows[0].SentAt.IsZero())
	require.NotEmpty(b, rows[0].Status)
	if !b.h.Traits.NoReceipt {
		require.Equal(b, b.row("e00003").Receipt, rows[0].Receipt)
	}
}

func adminGet(b *bed) {
	c := b.open()
	b.commit(NewRow{EventID: "e1", AggregateID: "K", Payload: []byte(`{"v":1}`)})
	row, found, err := c.Get(b.ctx, "e1")
	require.NoError(b, err)
	require.True(b, found)
	require.Equal(b, "e1", row.ID)
	require.Equal(b, relay.StateNew, row.State)
	require.Equal(b, b.row("e1").ID, row.Row)
	require.Equal(b, b.row("e1").Payload, row.Payload)
	require.True(b, row.SentAt.IsZero())
	require.Nil(b, row.Receipt)
	_, found, err = c.Get(b.ctx, "nope")
	require.NoError(b, err)
	require.False(b, found)
}

func adminRetry(b *bed) {
	c := b.open()
	b.failures(c)
	all := relay.Filter{EventIDs: []string{"e00001", "e00002", "e00003", "e00004", "e00005", "e00006"}}
	done, skipped, err := c.Retry(b.ctx, all, true)
	require.NoError(b, err)
	require.EqualValues(b, 4, done, "dry run")
	require.EqualValues(b, 2, skipped)
	require.Equal(b, 1, b.row("e00002").RetryCount, "a dry run changes nothing")
	require.Equal(b, relay.StateDead, b.row("e00002").State)
	done, skipped, err = c.Retry(b.ctx, all, false)
	require.NoError(b, err)
	require.EqualValues(b, 4, done)
	require.EqualValues(b, 2, skipped, "one sent, one in flight")
	require.Equal(b, relay.StateSent, b.row("e00003").State)
	for _, id := range []string{"e00001", "e00002", "e00004", "e00006"} {
		require.Zero(b, b.row(id).RetryCount)
		require.Equal(b, b.failedState(), b.row(id).State)
	}
	got := c.until("the retried rows", func([]relay.Event) bool { return len(c.busy) >= 5 })
	require.Subset(b, ids(got), []string{"e00001", "e00002", "e00004", "e00006"})
	c.sent("e00001", "e00002", "e00004", "e00006")
}

func adminRetryFilter(b *bed) {
	c := b.open()
	b.failures(c)
	done, _, err := c.Retry(b.ctx, relay.Filter{States: []relay.State{relay.StateDead}, Key: "f"}, false)
	require.NoError(b, err)
	require.EqualValues(b, 1, done)
	require.Equal(b, relay.StateDead, b.row("e00002").State)
	require.Equal(b, b.failedState(), b.row("e00006").State)
	done, _, err = c.Retry(b.ctx, relay.Filter{Limit: 1, States: []relay.State{relay.StateDead}}, true)
	require.NoError(b, err)
	require.EqualValues(b, 1, done)
}

func adminDiscard(b *bed) {
	c := b.open()
	b.failures(c)
	all := relay.Filter{EventIDs: []string{"e00001", "e00002", "e00003", "e00006"}}
	done, skipped, err := c.Discard(b.ctx, all, "sent by hand", true)
	require.NoError(b, err)
	require.EqualValues(b, 2, done)
	require.EqualValues(b, 2, skipped)
	done, _, err = c.Discard(b.ctx, relay.Filter{EventIDs: []string{"e00002"}}, "sent by hand\x00", false)
	require.NoError(b, err)
	require.EqualValues(b, 1, done)
	require.Equal(b, !b.h.Traits.NoLastError, c.KeepsDiscarded())
	if b.h.Traits.NoLastError {
		_, there := b.table.Row(b.T, "e00002")
		require.False(b, there)
		return
	}
	counts, err := c.Counts(b.ctx, 1000)
	require.NoError(b, err)
	require.Equal(b, relay.Count{Value: 1, Exact: true}, counts.Dead, "what a person gave up waits for nobody")
	require.Equal(b, []string{"e00006"}, b.list(c, relay.Filter{States: []relay.State{relay.StateDead}}))
	require.Equal(b, []string{"e00002"}, b.list(c, relay.Filter{States: []relay.State{relay.StateDiscarded}}))
	require.Equal(b, []string{"e00002", "e00006"}, b.list(c, relay.Filter{States: []relay.State{relay.StateDiscarded, relay.StateDead}}))
	r := b.row("e00002")
	require.Equal(b, relay.StateDead, r.State)
	require.True(b, strings.HasPrefix(r.LastError, "discarded: sent by hand"), r.LastError)
	require.Contains(b, r.LastError, "refused for good", "the last error stays behind the reason")
	row, _, err := c.Get(b.ctx, "e00002")
	require.NoError(b, err)
	require.True(b, row.Discarded)
	done, _, err = c.Discard(b.ctx, relay.Filter{EventIDs: []string{"e00002"}}, "again", false)
	require.NoError(b, err)
	require.Zero(b, done, "a discarded row is not discarded again")
	done, _, err = c.Retry(b.ctx, relay.Filter{States: []relay.State{relay.StateDead}, Key: "b"}, false)
	require.NoError(b, err)
	require.Zero(b, done, "a discarded row does not come back with others")
	done, _, err = c.Retry(b.ctx, relay.Filter{EventIDs: []string{"e00002"}}, false)
	require.NoError(b, err)
	require.EqualValues(b, 1, done, "a discarded row comes back when it is named")
	require.Equal(b, b.failedState(), b.row("e00002").State)
}
