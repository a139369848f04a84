package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func sized(n int, payload int) []*Event {
	evs := make([]*Event, n)
	for i := range evs {
		evs[i] = &Event{Payload: make([]byte, payload)}
	}
	return evs
}

func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBudget(30, 1<<20)
	events, bytes, ok := b.wait(t.Context(), func() {})
	require.True(t, ok)
	require.Equal(t, 30, events)
	require.EqualValues(t, 1<<20, bytes)

	evs := sized(10, 1000)
	b.take(evs)
	n, held := b.load()
	require.Equal(t, 10, n)
	require.EqualValues(t, 10*evs[0].Size(), held)
	for i := range evs {
		b.give(evs[i])
		b.give(evs[i]) // a share is given back once
	}
	n, held = b.load()
	require.Zero(t, n)
	require.Zero(t, held)
}

func TestBudget_Wait(t *testing.T) {
	t.Parallel()
	for name, evs := range map[string][]*Event{"events": sized(26, 0), "bytes": sized(3, 300<<10)} {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(30, 1<<20)
			b.take(evs)
			time.AfterFunc(time.Second, func() { b.give(evs[0]) })
			began := time.Now()
			_, _, ok := b.wait(t.Context(), func() {})
			require.True(t, ok)
			require.Equal(t, time.Second, time.Since(began), "%s: a sixth must be free", name)
		})
	}
}

func TestBudget_WaitEnds(t *testing.T) {
	t.Parallel()
	b := newBudget(3, 1<<20)
	b.take(sized(3, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, ok := b.wait(ctx, func() {})
	require.False(t, ok)
}

// TestBudget_Smallest: batches of one event are bounded too.
func TestBudget_Smallest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(3, 3)
		for range 3 {
			events, bytes, ok := b.wait(t.Context(), func() {})
			require.True(t, ok)
			require.GreaterOrEqual(t, events, 1)
			require.GreaterOrEqual(t, bytes, int64(1))
			if evs := sized(1, 0); true {
				b.take(evs)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				_, _, ok := b.wait(ctx, func() {})
				require.False(t, ok, "an event larger than the whole budget fills it")
				cancel()
				b.give(evs[0])
			}
		}
	})
}
