package relaytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// BesideSent measures reads with lanes beside rows that are done. A key is blocked at the bottom of the table, below
// all of them: its first event, "dead", is DEAD, and two NEW ones, "behind-1" and "behind-2", wait behind it.
type BesideSent struct {
	Open  func() Store // claim: lanes
	Lanes int32
	Fill  func(sent int)             // the key at the bottom and so many SENT rows
	Write func(prefix string, n int) // NEW rows of keys of their own
}

// BesidePace is how long things took; medians but for those that happen once.
type BesidePace struct {
	First    time.Duration // the first owner, who must read what is there
	TakeOver time.Duration // Own, Doubts and a read of the next owner
	Idle     time.Duration
	Busy     time.Duration // a read of 100 events
	Reopened time.Duration // until the events behind the dead one have come
}

// besideClient is a relay's part in the measurement.
type besideClient struct {
	Store
	t       testing.TB
	blocked []relay.Blocked
}

// Measure fills the table and measures.
func (b BesideSent) Measure(t testing.TB, sent int) (p BesidePace) {
	t.Helper()
	b.Fill(sent)
	began := time.Now()
	c := b.takeOver(t, "")
	p.First = time.Since(began)
	low := c.Low()
	require.NoError(t, c.Close())
	began = time.Now()
	c = b.takeOver(t, low)
	p.TakeOver = time.Since(began)
	defer func() { require.NoError(t, c.Close()) }()
	var idle, busy []time.Duration
	for round := range 20 {
		began = time.Now()
		require.Empty(t, c.read().Events)
		idle = append(idle, time.Since(began))
		b.Write(fmt.Sprintf("n%d-", round), 100)
		began = time.Now()
		got := c.read()
		busy = append(busy, time.Since(began))
		require.Len(t, got.Events, 100)
		c.sent(got.Events)
	}
	slices.Sort(idle)
	slices.Sort(busy)
	p.Idle, p.Busy = idle[len(idle)/2], busy[len(busy)/2]
	p.Reopened = c.reopen()
	return p
}

func (b BesideSent) takeOver(t testing.TB, low string) *besideClient {
	t.Helper()
	c := &besideClient{Store: b.Open(), t: t}
	var own []relay.OwnLane
	for lane := range b.Lanes {
		own = append(own, relay.OwnLane{Lane: lane, Low: low})
	}
	require.NoError(t, c.Own(t.Context(), own))
	ds, err := c.Doubts(t.Context(), 1000)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	c.blocked = []relay.Blocked{{Key: ds[0].Key, Head: ds[0].Row}}
	for {
		got := c.read()
		require.Empty(t, got.Events)
		if !got.More {
			return c
		}
	}
}

func (c *besideClient) read(reopened ...relay.Blocked) relay.Fetched {
	c.t.Helper()
	got, err := c.Fetch(c.t.Context(), relay.Fetch{Limit: 2000, MaxBytes: 8 << 20, Blocked: c.blocked, Reopened: reopened})
	require.NoError(c.t, err)
	return got
}

func (c *besideClient) sent(evs []relay.Event) {
	c.t.Helper()
	outs := make([]relay.Outcome, len(evs))
	for i, e := range evs {
		outs[i] = relay.Outcome{Row: e.Row, EventID: e.ID, From: e.State, State: relay.StateSent}
	}
	lost, err := c.Settle(c.t.Context(), outs)
	require.NoError(c.t, err)
	require.Empty(c.t, lost)
}

func (c *besideClient) reopen() time.Duration {
	c.t.Helper()
	_, _, err := c.Discard(c.t.Context(), relay.Filter{EventIDs: []string{"dead"}}, "not needed", false)
	require.NoError(c.t, err)
	began := time.Now()
	opened := c.blocked
	c.blocked = nil
	var came []relay.Event
	for len(came) < 2 {
		require.Less(c.t, time.Since(began), 10*time.Minute)
		came = append(came, c.read(opened...).Events...)
		opened = nil
	}
	require.Equal(c.t, []string{"behind-1", "behind-2"}, ids(came))
	return time.Since(began)
}

// CompareBesideSent holds that what a relay does all the time, and a take-over, cost the same beside a million sent
// rows as beside few. bed gives a table of its own each time.
func CompareBesideSent(t *testing.T, bed func() BesideSent) {
	const few, many = 10_000, 1_000_000
	t.Helper()
	less, more := bed().Measure(t, few), bed().Measure(t, many)
	for _, p := range []struct {
		what       string
		less, more time.Duration
		flat       bool
	}{
		{"first owner", less.First, more.First, false}, {"take-over", less.TakeOver, more.TakeOver, true},
		{"idle read", less.Idle, more.Idle, true}, {"read of 100 events", less.Busy, more.Busy, true},
		{"key reopens after all", less.Reopened, more.Reopened, false},
	} {
		t.Logf("%-24s %12s beside %d, %12s beside %d", p.what, p.less.Round(time.Microsecond), few, p.more.Round(time.Microsecond), many)
		if p.flat {
			require.Less(t, p.more, 3*p.less+50*time.Millisecond, p.what)
		}
	}
}
