package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Memory of the process, in bytes, that the collector may let it grow to before it works harder.
const (
	restingMemory = 40 << 20
	memorySlack   = 20 << 20
)

// tuneMemory lets the garbage collector rest while the heap is small: at the rate of a drain it would take a tenth
// of the relay's time otherwise. The limit follows what is alive, so a heap that must be large is collected as Go
// does by default. Who sets GOGC or GOMEMLIMIT knows better: then nothing is done. It returns when ctx ends, with
// everything as it was.
func tuneMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	percent := debug.SetGCPercent(400)
	limit := debug.SetMemoryLimit(restingMemory)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(alive)
		debug.SetMemoryLimit(memoryLimit(alive[0].Value.Uint64()))
	}
}

// memoryLimit is at least twice what is alive.
func memoryLimit(alive uint64) int64 {
	if alive > math.MaxInt64/4 {
		return math.MaxInt64
	}
	return max(restingMemory, 2*int64(alive)+memorySlack)
}
