package relaytest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func limitCases() []storeCase {
	return []storeCase{
		{name: "Fetch stops at Limit and says More", run: limitRows},
		{name: "Case_C16 Fetch stops at MaxBytes and says More", run: limitBytes},
		{name: "Case_C16 one event over MaxBytes comes alone", run: limitOversize},
		{name: "Case_C16 an oversize event is not starved by retries", run: limitOversizeAmongRetries,
			skip: func(tr Traits) bool { return tr.NoStatus }},
		{name: "Limit 1 delivers everything in order", run: limitOne},
	}
}

func limitRows(b *bed) {
	rows := events("e", 100, "a", "b", "c")
	b.commit(rows...)
	c := b.open()
	seen := 0
	for seen < len(rows) {
		got := c.fetchOnce(30, 1<<20)
		require.NotEmpty(b, got.Events)
		seen += len(got.Events)
		if seen < len(rows) {
			require.True(b, got.More, "%d of %d rows came", seen, len(rows))
		}
		if b.claim == relay.ClaimRows {
			require.Equal(b, seen, b.countState(relay.StateSending, rows), "no more is claimed than returned")
		}
	}
	require.Empty(b, c.fetch())
}

func (b *bed) countState(s relay.State, rows []NewRow) int {
	n := 0
	for _, r := range rows {
		if b.row(r.EventID).State == s {
			n++
		}
	}
	return n
}

// big is a JSON payload of about n bytes that does not compress.
func big(n int) []byte {
	var w bytes.Buffer
	w.WriteString(`{"v":"`)
	x := uint32(n)*2654435761 + 12345
	for w.Len() < n-2 {
		x = x*1664525 + 1013904223
		fmt.Fprintf(&w, "%08x", x)
	}
	w.WriteString(`"}`)
	return w.Bytes()
}

func limitBytes(b *bed) {
	const size, budget = 20_000, 100_000
	rows := events("e", 40, "a", "b")
	for i := range rows {
		rows[i].Payload = big(size)
	}
	b.commit(rows...)
	c := b.open()
	got := c.fetchOnce(1000, budget) // fetchOnce holds the bound
	require.GreaterOrEqual(b, len(got.Events), 2, "the budget is used")
	require.True(b, got.More)
	require.Len(b, c.fetchEvents(1000, budget), len(rows)-len(got.Events))
}

func limitOversize(b *bed) {
	rows := events("e", 6, "K")
	rows[0].Payload, rows[3].Payload = big(300_000), big(300_000)
	b.commit(rows...)
	c := b.open()
	first := c.fetchOnce(100, 50_000)
	require.Equal(b, []string{"e00001"}, ids(first.Events), "alone")
	require.True(b, first.More)
	var got []string
	for len(got) < 5 {
		part := c.fetchOnce(100, 50_000)
		require.NotEmpty(b, part.Events)
		if ids(part.Events)[0] == "e00004" {
			require.Len(b, part.Events, 1, "alone")
		}
		got = append(got, ids(part.Events)...)
	}
	require.Equal(b, []string{"e00002", "e00003", "e00004", "e00005", "e00006"}, got)
}

// limitOversizeAmongRetries: small retries that are due at every read must not keep a big event away.
func limitOversizeAmongRetries(b *bed) {
	retries := events("r", 4, "a", "b", "c", "d")
	b.commit(retries...)
	c := b.open()
	require.Len(b, c.fetch(), 4)
	fail := func() {
		for _, e := range c.busy {
			if e.ID[0] == 'r' {
				c.settle(c.outcome(e.ID, relay.StateFailed))
				b.due(e.ID)
			}
		}
	}
	fail()
	over := event("big", "z")
	over.Payload = big(300_000)
	b.commit(over)
	for range 20 {
		for _, e := range c.fetchOnce(100, 50_000).Events {
			if e.ID == "big" {
				return
			}
		}
		fail()
	}
	require.Fail(b, "the big event never came")
}

func limitOne(b *bed) {
	rows := events("e", 25, "a", "b")
	b.commit(rows...)
	c := b.open()
	require.Equal(b, rowIDs(rows), ids(c.fetchEvents(1, 1)))
}
