package relay

import (
	"context"
	"sync"
	"time"
)

// budget bounds what is read and not yet settled, in events and bytes.
type budget struct {
	mu                sync.Mutex
	events, maxEvents int
	bytes, maxBytes   int64
	changed           chan struct{} // buffered 1: something was given back
}

func newBudget(events int, bytes int64) *budget {
	return &budget{maxEvents: events, maxBytes: bytes, changed: make(chan struct{}, 1)}
}

// wait returns how much may be read, once that is worth a batch; false when ctx ends first. It calls
// tick at the start and while it waits, so that waiting for Kafka does not look like a stuck loop.
func (b *budget) wait(ctx context.Context, tick func()) (events int, bytes int64, ok bool) {
	for {
		tick()
		b.mu.Lock()
		events, bytes = b.maxEvents-b.events, b.maxBytes-b.bytes
		b.mu.Unlock()
		// Half of a third is free at the least: batches stay worth their round trip.
		if events >= max(1, b.maxEvents/6) && bytes >= max(1, b.maxBytes/6) {
			return events, bytes, true
		}
		select {
		case <-b.changed:
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
			return 0, 0, false
		}
	}
}

func (b *budget) take(evs []*Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events += len(evs)
	for _, e := range evs {
		b.bytes += e.Size()
	}
}

// give returns an event's share, once.
func (b *budget) give(e *Event) {
	b.mu.Lock()
	if !e.given {
		e.given = true
		b.events--
		b.bytes -= e.Size()
	}
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

func (b *budget) load() (events int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events, b.bytes
}
