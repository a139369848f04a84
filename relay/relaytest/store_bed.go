package relaytest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// patience bounds every wait of the suite. Nothing waits that long unless it is broken.
const patience = 20 * time.Second

// bed is what one case works with: a table, usually a store on it, and the rows that were read and are
// not settled, as the poller would keep them.
type bed struct {
	*testing.T
	h     Harness
	claim relay.ClaimMode
	table Table
	ctx   context.Context
}

func newBed(t *testing.T, h Harness, claim relay.ClaimMode) *bed {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &bed{T: t, h: h, claim: claim, table: h.Table(t), ctx: ctx}
}

// suiteLanes is how many lanes the suite's stores know.
const suiteLanes = 16

// open opens a store with the suite's defaults. With claim: lanes all of them are its own.
func (b *bed) open(change ...func(*relay.StoreOptions)) *client {
	b.Helper()
	c := b.openLaneless(change...)
	if b.claim == relay.ClaimLanes {
		c.own(allLanes()...)
	}
	return c
}

// openLaneless opens a store that has not been given any lane.
func (b *bed) openLaneless(change ...func(*relay.StoreOptions)) *client {
	b.Helper()
	o := relay.StoreOptions{Name: "suite", Relay: "relay-1", Claim: b.claim, ClaimTimeout: 30 * time.Second}
	if b.claim == relay.ClaimLanes {
		o.Lanes = suiteLanes
	}
	for _, f := range change {
		f(&o)
	}
	st, err := b.table.Open(b.ctx, o)
	require.NoError(b, err)
	return &client{bed: b, Store: st, busy: map[relay.RowID]relay.Event{}}
}

// commit writes rows in one transaction.
func (b *bed) commit(rows ...NewRow) {
	b.Helper()
	tx := b.table.Begin(b.T)
	tx.Insert(rows...)
	tx.Commit()
}

func (b *bed) row(eventID string) Row {
	b.Helper()
	r, ok := b.table.Row(b.T, eventID)
	require.True(b, ok, "row %s is gone", eventID)
	return r
}

// event is a plain row of a key.
func event(id, key string) NewRow { return NewRow{EventID: id, AggregateID: key} }

// events makes n rows named prefix001… of the keys in turn.
func events(prefix string, n int, keys ...string) []NewRow {
	rows := make([]NewRow, n)
	for i := range rows {
		rows[i] = event(fmt.Sprintf("%s%05d", prefix, i+1), keys[i%len(keys)])
	}
	return rows
}

// client is a store with the poller's memory beside it.
type client struct {
	*bed
	Store
	busy     map[relay.RowID]relay.Event
	blocked  []relay.Blocked
	reopened []relay.Blocked
	marked   []string // events that were settled as SENT, FAILED or DEAD
}

// request is the next Fetch as the poller would ask it.
func (c *client) request(limit int, maxBytes int64) relay.Fetch {
	f := relay.Fetch{Limit: limit, MaxBytes: maxBytes, Blocked: slices.Clone(c.blocked), Reopened: c.reopened}
	for row := range c.busy {
		f.Busy = append(f.Busy, row)
	}
	c.reopened = nil
	return f
}

// fetchOnce reads once and keeps what came as busy.
func (c *client) fetchOnce(limit int, maxBytes int64) relay.Fetched {
	c.Helper()
	f := c.request(limit, maxBytes)
	got, err := c.Fetch(c.ctx, f)
	require.NoError(c, err)
	require.LessOrEqual(c, len(got.Events), limit, "more events than the limit")
	var sum int64
	for _, e := range got.Events {
		sum += e.Size()
		_, twice := c.busy[e.Row]
		require.False(c, twice, "event %s came while busy", e.ID)
		c.busy[e.Row] = e
	}
	if len(got.Events) > 1 {
		require.LessOrEqual(c, sum, maxBytes, "more bytes than the limit")
	}
	c.checkOrder(got.Events)
	return got
}

// checkOrder holds that each key's events of one answer ascend. Event ids of the suite sort as their
// rows do, within a key.
func (c *client) checkOrder(evs []relay.Event) {
	c.Helper()
	last := map[string]string{}
	for _, e := range evs {
		if e.Key == nil {
			continue
		}
		require.Less(c, last[*e.Key], e.ID, "key %s is out of order", *e.Key)
		last[*e.Key] = e.ID
	}
}

// fetch reads until the table has no more to give, and returns the event ids in the order they came.
func (c *client) fetch() []string {
	c.Helper()
	return ids(c.fetchEvents(1000, 1<<20))
}

func (c *client) fetchEvents(limit int, maxBytes int64) []relay.Event {
	c.Helper()
	var evs []relay.Event
	for n := 0; ; n++ {
		require.Less(c, n, 10_000, "the store says More without end")
		got := c.fetchOnce(limit, maxBytes)
		evs = append(evs, got.Events...)
		if !got.More {
			return evs
		}
	}
}

// until reads again and again, as an idle poller does, until done; for what a store may look at only
// now and then, such as abandoned claims.
func (c *client) until(what string, done func([]relay.Event) bool) []relay.Event {
	c.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var evs []relay.Event
	for {
		evs = append(evs, c.fetchEvents(1000, 1<<20)...)
		if done(evs) {
			return evs
		}
		require.True(c, time.Now().Before(deadline), "waited %s for %s", patience, what)
		<-tick.C
	}
}

// take returns the busy event of an id.
func (c *client) take(id string) relay.Event {
	c.Helper()
	for _, e := range c.busy {
		if e.ID == id {
			return e
		}
	}
	require.Fail(c, "event was not read", id)
	return relay.Event{}
}

// outcome builds what the relay would write for a busy event.
func (c *client) outcome(id string, s relay.State, change ...func(*relay.Outcome)) relay.Outcome {
	c.Helper()
	e := c.take(id)
	o := relay.Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: s}
	switch s {
	case relay.StateSent:
		o.Receipt = relay.Receipt{Topic: "orders", Partition: 3, Offset: int64(len(id)) + 1000}
	case relay.StateFailed:
		o.Attempt, o.RetryAfter, o.LastError = true, time.Hour, "[retriable] TEST: refused"
	case relay.StateDead:
		o.Attempt, o.LastError = true, "[permanent] TEST: refused for good"
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

// settle writes outcomes, all of which must apply, and frees their rows.
func (c *client) settle(outs ...relay.Outcome) {
	c.Helper()
	lost, err := c.Settle(c.ctx, outs)
	require.NoError(c, err)
	require.Empty(c, lost, "lost marks")
	for _, o := range outs {
		if o.State != relay.StateNew {
			c.marked = append(c.marked, o.EventID)
		}
	}
	c.free(outs...)
}

func (c *client) free(outs ...relay.Outcome) {
	for _, o := range outs {
		delete(c.busy, o.Row)
	}
}

// sent settles all of the ids as SENT.
func (c *client) sent(ids ...string) {
	c.Helper()
	outs := make([]relay.Outcome, len(ids))
	for i, id := range ids {
		outs[i] = c.outcome(id, relay.StateSent)
	}
	c.settle(outs...)
}

// block closes a key's gate behind the row of an event id.
func (c *client) block(key, headID string) {
	c.Helper()
	c.blocked = append(c.blocked, relay.Blocked{Key: key, Head: c.row(headID).ID})
}

// reopen opens a key's gate: the next Fetch names it.
func (c *client) reopen(key string) {
	c.Helper()
	i := slices.IndexFunc(c.blocked, func(b relay.Blocked) bool { return b.Key == key })
	require.GreaterOrEqual(c, i, 0, "key %s is not blocked", key)
	c.reopened = append(c.reopened, c.blocked[i])
	c.blocked = slices.Delete(c.blocked, i, i+1)
}

// due makes a failed row's time come.
func (b *bed) due(id string) {
	b.Helper()
	b.table.Edit(b.T, id, Edit{DueIn: ptr(-time.Second)})
}

func ids(evs []relay.Event) []string {
	out := make([]string, len(evs))
	for i := range evs {
		out[i] = evs[i].ID
	}
	return out
}

func rowIDs(rows []NewRow) []string {
	out := make([]string, len(rows))
	for i := range rows {
		out[i] = rows[i].EventID
	}
	return out
}

func ptr[T any](v T) *T { return &v }
