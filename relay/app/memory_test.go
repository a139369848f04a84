package app

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMemoryLimit(t *testing.T) {
	require.EqualValues(t, restingMemory, memoryLimit(0))
	require.EqualValues(t, restingMemory, memoryLimit(10<<20))
	require.EqualValues(t, 220<<20, memoryLimit(100<<20), "a large heap is not collected all the time")
	require.EqualValues(t, int64(math.MaxInt64), memoryLimit(math.MaxUint64))
}

// TestTuneMemory: what a relay sets ends with it, and a person's own settings are left alone.
func TestTuneMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); tuneMemory(ctx) }()
	require.Eventually(t, func() bool { return debug.SetMemoryLimit(-1) != before }, 5*time.Second, time.Millisecond)
	cancel()
	<-done
	require.Equal(t, before, debug.SetMemoryLimit(-1))
	t.Setenv("GOGC", "150")
	tuneMemory(t.Context()) // returns at once
	require.Equal(t, before, debug.SetMemoryLimit(-1))
}
