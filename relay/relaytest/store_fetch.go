package relaytest

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func oneWriter(tr Traits) bool { return tr.OneWriter }

func fetchCases() []storeCase {
	return []storeCase{
		{name: "Fetch returns committed rows with every column", run: fetchColumns},
		{name: "Fetch returns nothing from an empty table", run: fetchEmpty},
		{name: "Fetch returns no rolled back row", run: fetchRolledBack},
		{name: "Fetch returns a row only once", run: fetchOnlyOnce},
		{name: "Fetch keeps each key in row order", run: fetchOrder},
		{name: "Case_C01 lower ids that commit late come", run: fetchLateIDs, skip: oneWriter},
		{name: "Case_C01 late ids of many transactions come", run: fetchManyLateIDs, skip: oneWriter},
		{name: "Case_C01 a rolled back gap loses nothing", run: fetchGapRolledBack, skip: oneWriter},
		{name: "Case_O07 a serialised key keeps commit order", run: fetchSerialised, skip: oneWriter},
		{name: "Case_O07 transactions that overlap come in row order, none is lost", run: fetchOverlapped, skip: oneWriter},
		{name: "Case_C02 rows moved by updates come in order", run: fetchShuffled},
		{name: "Fetch after a cancelled Fetch loses nothing", run: fetchCancelled},
		{name: "Fetch leaves unknown and finished states alone", run: fetchStates,
			skip: func(tr Traits) bool { return tr.NoStatus }},
	}
}

func fetchColumns(b *bed) {
	b.commit(NewRow{
		EventID: "e1", AggregateType: "invoice", AggregateID: "i-7", Type: "InvoicePaid",
		Topic: "billing", Key: ptr("tenant-1"), Payload: []byte(`{"a":1}`), Headers: `{"h":"v"}`,
	})
	c := b.open()
	evs := c.fetchEvents(10, 1<<20)
	require.Len(b, evs, 1)
	e := evs[0]
	require.Equal(b, "e1", e.ID)
	require.Equal(b, "invoice", e.AggregateType)
	require.Equal(b, "i-7", e.AggregateID)
	require.Equal(b, "InvoicePaid", e.Type)
	require.Equal(b, b.row("e1").ID, e.Row)
	require.Equal(b, b.row("e1").Payload, e.Payload)
	require.NoError(b, e.Malformed)
	require.Zero(b, e.RetryCount)
	if b.h.Traits.NoMessageKey {
		require.Equal(b, ptr("i-7"), e.Key, "aggregate_id is the key")
	} else {
		require.Equal(b, ptr("tenant-1"), e.Key, "message_key goes before aggregate_id")
	}
	if !b.h.Traits.NoTopic {
		require.Equal(b, "billing", e.Topic)
	}
	if !b.h.Traits.NoHeaders {
		require.Equal(b, []relay.Header{{Name: "h", Value: []byte("v")}}, e.Headers)
	}
	if !e.CreatedAt.IsZero() {
		require.Equal(b, time.UTC, e.CreatedAt.Location())
		require.GreaterOrEqual(b, e.Age, time.Duration(0))
		require.Less(b, e.Age, time.Minute, "age by the database's clock")
	}
	if b.claim != relay.ClaimRows {
		require.Equal(b, relay.StateNew, e.State)
		require.Empty(b, e.Claim)
		return
	}
	require.Equal(b, relay.StateSending, e.State)
	require.NotEmpty(b, e.Claim)
	require.Equal(b, relay.StateSending, b.row("e1").State)
}

func fetchEmpty(b *bed) {
	c := b.open()
	for range 3 {
		got := c.fetchOnce(10, 1<<20)
		require.Empty(b, got.Events)
		require.False(b, got.More, "an empty table has no more")
	}
}

func fetchRolledBack(b *bed) {
	c := b.open()
	tx := b.table.Begin(b.T)
	tx.Insert(events("ghost", 5, "a", "b")...)
	if !b.h.Traits.OneWriter { // SQLite may make the reader wait
		require.Empty(b, c.fetch(), "rows of an open transaction")
	}
	tx.Rollback()
	require.Empty(b, c.fetch(), "rows of a transaction that rolled back")
	b.commit(event("real", "a"))
	require.Equal(b, []string{"real"}, c.fetch())
}

func fetchOnlyOnce(b *bed) {
	rows := events("e", 50, "a", "b", "c")
	b.commit(rows...)
	c := b.open()
	require.ElementsMatch(b, rowIDs(rows), c.fetch())
	for range 3 {
		require.Empty(b, c.fetch(), "busy rows must not come again")
	}
	c.sent(rowIDs(rows)...)
	require.Empty(b, c.fetch(), "sent rows must not come again")
}

func fetchOrder(b *bed) {
	rows := events("e", 500, "a", "b", "c", "d", "e")
	for chunk := range slices.Chunk(rows, 7) {
		b.commit(chunk...)
	}
	c := b.open()
	var got []relay.Event
	for len(got) < len(rows) {
		part := c.fetchEvents(13, 1<<20)
		require.NotEmpty(b, part)
		got = append(got, part...)
		c.sent(ids(part)...)
	}
	c.checkOrder(got)
	require.ElementsMatch(b, rowIDs(rows), ids(got))
}

func fetchLateIDs(b *bed) {
	c := b.open()
	late := b.table.Begin(b.T)
	late.Insert(event("late", "A"))
	b.commit(event("early", "B"))
	require.Equal(b, []string{"early"}, c.fetch())
	c.sent("early")
	require.Empty(b, c.fetch(), "the late row is not committed yet")
	late.Commit()
	require.Equal(b, []string{"late"}, c.fetch(), "the next read after the commit returns it")
}

func fetchManyLateIDs(b *bed) {
	c := b.open()
	const n = 12
	var open [n]Tx
	for i := range open {
		open[i] = b.table.Begin(b.T)
		open[i].Insert(events(string(rune('a'+i)), 3, string(rune('A'+i)))...)
		b.commit(event("x"+string(rune('a'+i)), "X"))
	}
	require.Len(b, c.fetch(), n)
	for i := n - 1; i >= 0; i-- { // the youngest commits first, each third one rolls back
		if i%3 == 0 {
			open[i].Rollback()
			require.Empty(b, c.fetch())
			continue
		}
		open[i].Commit()
		require.Equal(b, rowIDs(events(string(rune('a'+i)), 3, "")), c.fetch())
	}
	require.Empty(b, c.fetch())
}

func fetchGapRolledBack(b *bed) {
	c := b.open()
	for i := range 20 {
		name := string(rune('a' + i))
		gone := b.table.Begin(b.T)
		gone.Insert(events("gone-"+name, 2, "G")...)
		b.commit(event("kept-"+name, "K"))
		require.Equal(b, []string{"kept-" + name}, c.fetch())
		gone.Rollback()
		require.Empty(b, c.fetch())
	}
}

// fetchSerialised: two transactions on one key that wait for each other have an order, whatever their
// neighbours do, and the later one must not overtake through a gap.
func fetchSerialised(b *bed) {
	c := b.open()
	for i := range 10 {
		n := string(rune('a' + i))
		first := b.table.Begin(b.T)
		first.Insert(event("e-"+n+"1", "K"))
		b.commit(event("other-"+n, "L"))
		require.Equal(b, []string{"other-" + n}, c.fetch())
		first.Commit()
		b.commit(event("e-"+n+"2", "K"))
		require.Equal(b, []string{"e-" + n + "1", "e-" + n + "2"}, c.fetch())
	}
}

// fetchOverlapped: two transactions on one key that nothing serialises have no order to keep. Who sees
// both takes the order of the rows; who has read the later one already gets the earlier one after it.
func fetchOverlapped(b *bed) {
	overlap := func(earlier, later string) (commit func()) {
		first, second := b.table.Begin(b.T), b.table.Begin(b.T)
		first.Insert(event(earlier, "K"))
		second.Insert(event(later, "K"))
		second.Commit()
		return first.Commit
	}
	overlap("e-1", "e-2")()
	c := b.open()
	require.Equal(b, []string{"e-1", "e-2"}, c.fetch(), "a relay that starts after both")
	c.sent("e-1", "e-2")
	commit := overlap("e-3", "e-4")
	require.Equal(b, []string{"e-4"}, c.fetch())
	c.sent("e-4")
	commit()
	require.Equal(b, []string{"e-3"}, c.fetch())
}

func fetchShuffled(b *bed) {
	rows := events("e", 1500, "K")
	b.commit(rows...)
	for i := 0; i < len(rows); i += 3 { // an update moves the row's tuple to another page
		b.table.Edit(b.T, rows[i].EventID, Edit{RetryCount: ptr(0), LastError: b.anyError("moved")})
		b.table.Edit(b.T, rows[i].EventID, Edit{RetryCount: ptr(0), LastError: b.anyError("moved twice")})
	}
	c := b.open()
	var got []string
	for len(got) < len(rows) {
		part := c.fetchOnce(200, 1<<20) // checks the limit and the order inside
		require.NotEmpty(b, part.Events)
		got = append(got, ids(part.Events)...)
		c.sent(ids(part.Events)...)
	}
	require.Equal(b, rowIDs(rows), got)
}

// anyError is an edit of last_error where the layout has the column.
func (b *bed) anyError(text string) *string {
	if b.h.Traits.NoLastError {
		return nil
	}
	return &text
}

func fetchCancelled(b *bed) {
	rows := events("e", 30, "a", "b")
	b.commit(rows...)
	c := b.open(func(o *relay.StoreOptions) { o.ClaimTimeout = time.Second })
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := c.Fetch(ended, c.request(100, 1<<20))
	require.Error(b, err)
	short, cancel := context.WithTimeout(b.ctx, 100*time.Microsecond)
	defer cancel()
	got, err := c.Fetch(short, c.request(100, 1<<20))
	if err == nil {
		for _, e := range got.Events {
			c.busy[e.Row] = e
		}
	}
	// A claim whose answer was lost comes back by its timeout; without claims the next read returns all.
	c.until("every row", func([]relay.Event) bool { return len(c.busy) == len(rows) })
}

func fetchStates(b *bed) {
	for _, s := range []relay.State{relay.StateSent, relay.StateDead} {
		b.commit(event("e-"+string(s), "K"))
		b.table.Edit(b.T, "e-"+string(s), Edit{State: ptr(s)})
	}
	b.commit(event("new", "K"))
	c := b.open()
	require.Equal(b, []string{"new"}, c.fetch())
}
