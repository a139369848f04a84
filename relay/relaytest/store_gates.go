package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func gateCases() []storeCase {
	noStatus := func(tr Traits) bool { return tr.NoStatus }
	return []storeCase{
		{name: "Case_O01 a blocked key waits, the others pass", run: gateBlocked},
		{name: "Case_O01 a blocked head comes when it is due, before its successors", run: gateHead, skip: noStatus},
		{name: "Reopened brings passed rows before later ones", run: gateReopened},
		{name: "Reopened brings more rows than a batch in order", run: gateReopenedMany},
		{name: "Reopened may close again before all came", run: gateReopenedTwice, skip: noStatus},
		{name: "Reopened brings a late lower id of the key", run: gateLateID, skip: func(tr Traits) bool { return tr.OneWriter || tr.NoStatus }},
		{name: "rows handed back come again", run: gateHandedBack},
		{name: "HeadsOnly brings due heads and nothing else", run: gateHeadsOnly, skip: noStatus},
		{name: "Case_D01 many failed rows that wait do not starve the rest", run: gateManyWaiting},
		{name: "Case_D01 many dead rows do not starve the rest", run: gateManyDead, skip: noStatus},
		{name: "a retried key with many failed rows does not starve other retries", run: gateManyDueOfOneKey, skip: noStatus},
	}
}

func gateBlocked(b *bed) {
	b.commit(events("e", 9, "a", "b", "c")...) // a: 1 4 7, b: 2 5 8, c: 3 6 9
	c := b.open()
	c.block("a", "e00001")
	require.Equal(b, []string{"e00002", "e00003", "e00005", "e00006", "e00008", "e00009"}, c.fetch())
	b.commit(events("f", 3, "a", "b", "c")...)
	require.Equal(b, []string{"f00002", "f00003"}, c.fetch())
}

func gateHead(b *bed) {
	b.commit(events("e", 3, "K")...)
	c := b.open()
	require.Equal(b, []string{"e00001"}, ids(c.fetchOnce(1, 1<<20).Events))
	c.settle(c.outcome("e00001", relay.StateFailed))
	c.block("K", "e00001")
	b.commit(event("l1", "L"))
	require.Equal(b, []string{"l1"}, c.fetch(), "the head is not due, its successors wait")
	b.due("e00001")
	evs := c.fetchEvents(100, 1<<20)
	require.Equal(b, []string{"e00001"}, ids(evs), "the head alone")
	require.Equal(b, 1, evs[0].RetryCount)
	if b.claim != relay.ClaimRows {
		require.Equal(b, relay.StateFailed, evs[0].State)
	}
	require.Empty(b, c.fetch(), "the head is busy")
	c.sent("e00001")
	c.reopen("K")
	require.Equal(b, []string{"e00002", "e00003"}, c.fetch())
}

func gateReopened(b *bed) {
	b.commit(events("e", 6, "K", "L")...)
	c := b.open()
	c.block("K", "e00001")
	require.Equal(b, []string{"e00002", "e00004", "e00006"}, c.fetch())
	c.reopen("K")
	b.commit(events("f", 4, "K", "L")...)
	got := c.fetch()
	require.ElementsMatch(b, []string{"e00001", "e00003", "e00005", "f00001", "f00002", "f00003", "f00004"}, got)
	require.Empty(b, c.fetch())
}

func gateReopenedMany(b *bed) {
	const n = 700
	b.commit(events("e", n, "K")...)
	b.commit(events("m", 20, "L")...)
	c := b.open()
	c.block("K", "e00001")
	require.Len(b, c.fetch(), 20)
	c.reopen("K")
	var got []relay.Event
	for i := 0; len(got) < n+100; i++ {
		part := c.fetchOnce(40, 1<<20)
		require.NotEmpty(b, part.Events)
		got = append(got, part.Events...)
		if i < 10 {
			b.commit(events(fmt.Sprintf("f%02d-", i), 10, "K", "L")...)
		}
	}
	c.checkOrder(got) // over all answers: nothing of K overtakes
}

func gateReopenedTwice(b *bed) {
	b.commit(events("e", 10, "K")...)
	c := b.open()
	c.block("K", "e00001")
	require.Empty(b, c.fetch())
	c.reopen("K")
	require.Equal(b, []string{"e00001", "e00002", "e00003"}, ids(c.fetchOnce(3, 1<<20).Events))
	c.sent("e00001")
	c.settle(c.outcome("e00002", relay.StateFailed))
	c.block("K", "e00002")
	c.handBack("e00003")
	b.commit(event("l1", "L"))
	require.Equal(b, []string{"l1"}, c.fetch())
	b.due("e00002")
	require.Equal(b, []string{"e00002"}, c.fetch())
	c.sent("e00002")
	c.reopen("K")
	b.commit(event("f1", "K"))
	require.Equal(b, []string{
		"e00003", "e00004", "e00005", "e00006", "e00007", "e00008", "e00009", "e00010", "f1",
	}, c.fetch())
}

// handBack frees rows that were read and not sent, as the relay does: with claims the claim is given
// up in the table, without claims nothing is written. A key that is open is named as reopened.
func (c *client) handBack(ids ...string) {
	c.Helper()
	var outs []relay.Outcome
	for _, id := range ids {
		e := c.take(id)
		outs = append(outs, c.outcome(id, relay.StateNew))
		closed := func(b relay.Blocked) bool { return e.Key != nil && b.Key == *e.Key }
		if e.Key != nil && !slices.ContainsFunc(c.blocked, closed) {
			c.reopened = append(c.reopened, relay.Blocked{Key: *e.Key, Head: e.Row})
		}
	}
	if c.claim == relay.ClaimRows {
		lost, err := c.Settle(c.ctx, outs)
		require.NoError(c, err)
		require.Empty(c, lost)
	}
	c.free(outs...)
}

func gateLateID(b *bed) {
	c := b.open()
	late := b.table.Begin(b.T)
	late.Insert(event("a-late", "K"))
	b.commit(events("e", 3, "K")...)
	require.Equal(b, []string{"e00001"}, ids(c.fetchOnce(1, 1<<20).Events))
	c.settle(c.outcome("e00001", relay.StateFailed))
	c.block("K", "e00001")
	require.Empty(b, c.fetch())
	late.Commit() // lower than the head: it may not pass the closed gate, and must not be forgotten
	require.Empty(b, c.fetch())
	b.due("e00001")
	require.Equal(b, []string{"e00001"}, c.fetch())
	c.sent("e00001")
	c.reopen("K")
	require.Equal(b, []string{"a-late", "e00002", "e00003"}, c.fetch())
}

func gateHandedBack(b *bed) {
	b.commit(events("e", 6, "a", "b")...)
	c := b.open()
	require.Len(b, c.fetch(), 6)
	for id, e := range map[string]relay.State{"e00001": relay.StateSent, "e00002": relay.StateSent} {
		c.settle(c.outcome(id, e))
	}
	c.handBack("e00003", "e00004", "e00005", "e00006")
	b.commit(events("f", 2, "a", "b")...)
	evs := c.fetchEvents(100, 1<<20)
	require.ElementsMatch(b, []string{"e00003", "e00004", "e00005", "e00006", "f00001", "f00002"}, ids(evs))
	c.checkOrder(evs)
	for _, e := range evs {
		require.Zero(b, e.RetryCount, "a row handed back has no attempt more")
	}
}

func gateHeadsOnly(b *bed) {
	b.commit(events("e", 4, "a", "b")...)
	c := b.open()
	require.Equal(b, []string{"e00001", "e00002"}, ids(c.fetchOnce(2, 1<<20).Events))
	c.settle(c.outcome("e00001", relay.StateFailed), c.outcome("e00002", relay.StateFailed))
	c.block("a", "e00001")
	b.due("e00001")
	b.due("e00002") // due, and the head of no closed gate
	f := c.request(10, 1<<20)
	f.HeadsOnly = true
	got, err := c.Fetch(b.ctx, f)
	require.NoError(b, err)
	require.Equal(b, []string{"e00001"}, ids(got.Events))
	c.busy[got.Events[0].Row] = got.Events[0]
	require.Equal(b, []string{"e00002", "e00004"}, c.fetch(), "nothing was lost by asking for heads")
}

func gateManyWaiting(b *bed) {
	const n = 300
	rows := make([]NewRow, n)
	for i := range rows {
		rows[i] = event(fmt.Sprintf("bad%04d", i), fmt.Sprintf("bad-key-%d", i))
	}
	b.commit(rows...)
	c := b.open()
	for _, id := range c.fetch() {
		c.settle(c.outcome(id, relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = time.Hour }))
		c.block(fmt.Sprintf("bad-key-%d", mustInt(id[3:])), id)
	}
	good := events("good", 50, "x", "y")
	b.commit(good...)
	require.Equal(b, rowIDs(good), ids(c.fetchOnce(100, 1<<20).Events), "one read is enough")
}

func mustInt(s string) (n int) {
	_, _ = fmt.Sscanf(s, "%d", &n)
	return n
}

func gateManyDead(b *bed) {
	const n = 1000
	rows := make([]NewRow, n)
	for i := range rows {
		rows[i] = event(fmt.Sprintf("bad%04d", i), fmt.Sprintf("bad-key-%d", i))
	}
	b.commit(rows...)
	c := b.open()
	outs := []relay.Outcome{}
	for _, id := range c.fetch() {
		outs = append(outs, c.outcome(id, relay.StateDead))
		c.blocked = append(c.blocked, relay.Blocked{Key: fmt.Sprintf("bad-key-%d", mustInt(id[3:])), Head: c.take(id).Row})
	}
	require.Len(b, outs, n)
	c.settle(outs...)
	good := events("good", n, "x", "y", "bad-key-7")
	b.commit(good...)
	want := []string{}
	for i, r := range good {
		if i%3 != 2 {
			want = append(want, r.EventID)
		}
	}
	require.Equal(b, want, ids(c.fetchOnce(n, 1<<22).Events), "one read is enough")
}

// gateManyDueOfOneKey: a person retried many dead rows of one key; all are due, only the head may come.
func gateManyDueOfOneKey(b *bed) {
	const n = 400
	b.commit(events("k", n, "K")...)
	b.commit(event("other", "L"))
	c := b.open()
	got := c.fetch()
	require.Len(b, got, n+1)
	var outs []relay.Outcome
	for _, id := range got {
		outs = append(outs, c.outcome(id, relay.StateFailed))
	}
	c.settle(outs...)
	c.block("K", "k00001")
	c.block("L", "other")
	for _, id := range got {
		b.due(id)
	}
	c.until("both heads, with a small limit", func([]relay.Event) bool {
		c.fetchOnce(10, 1<<20)
		return len(c.busy) == 2
	})
	require.Contains(b, ids(values(c.busy)), "k00001")
	require.Contains(b, ids(values(c.busy)), "other")
}

func values(m map[relay.RowID]relay.Event) (evs []relay.Event) {
	for _, e := range m {
		evs = append(evs, e)
	}
	return evs
}
