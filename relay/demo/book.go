package demo

import (
	"slices"
	"sync"
	"time"
)

// maxLatencies bounds the latencies kept for the summary; beyond, every second one is dropped and
// from then on every second one is taken, and so on.
const maxLatencies = 200_000

// book is what the demo knows in memory while it runs: when each event's COMMIT began, which events
// were rolled back, and how long delivery took. The verdict does not rest on it.
type book struct {
	mu     sync.Mutex
	begun  map[string]time.Time // event id: start of its COMMIT; removed once it was read from Kafka
	undone map[string]struct{}  // ids of rolled back events

	ordersCommitted, ordersRolledBack int
	eventsCommitted, eventsRolledBack int

	recent    []time.Duration // the last latencies, a ring
	recentAt  int
	latencies []time.Duration // a sample of all
	every     int             // 1: all are kept
	skipped   int
	longest   time.Duration
}

const recentLatencies = 500

func newBook() *book {
	return &book{begun: map[string]time.Time{}, undone: map[string]struct{}{}, every: 1}
}

func (b *book) committing(id string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[id] = at
}

func (b *book) committed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eventsCommitted++
}

func (b *book) rolledBack(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undone[id] = struct{}{}
	b.eventsRolledBack++
}

func (b *book) order(committed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if committed {
		b.ordersCommitted++
	} else {
		b.ordersRolledBack++
	}
}

// delivered notes that the event was read from Kafka and returns the time from COMMIT to then, 0 for a
// repetition. phantom says that its transaction had rolled back.
func (b *book) delivered(id string, at time.Time) (latency time.Duration, phantom bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, undone := b.undone[id]; undone {
		return 0, true
	}
	start, known := b.begun[id]
	if !known {
		return 0, false
	}
	delete(b.begun, id)
	latency = max(at.Sub(start), 0)
	b.sample(latency)
	return latency, false
}

func (b *book) sample(d time.Duration) {
	b.longest = max(b.longest, d)
	if len(b.recent) < recentLatencies {
		b.recent = append(b.recent, d)
	} else {
		b.recent[b.recentAt] = d
		b.recentAt = (b.recentAt + 1) % recentLatencies
	}
	if b.skipped++; b.skipped < b.every {
		return
	}
	b.skipped = 0
	if len(b.latencies) == maxLatencies {
		for i := range maxLatencies / 2 {
			b.latencies[i] = b.latencies[2*i]
		}
		b.latencies = b.latencies[:maxLatencies/2]
		b.every *= 2
	}
	b.latencies = append(b.latencies, d)
}

// counts are the book's numbers at one moment.
type counts struct {
	ordersCommitted, ordersRolledBack int
	eventsCommitted, eventsRolledBack int
	p50, p99                          time.Duration // of the last deliveries
}

func (b *book) counts() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	recent := slices.Sorted(slices.Values(b.recent))
	return counts{
		ordersCommitted: b.ordersCommitted, ordersRolledBack: b.ordersRolledBack,
		eventsCommitted: b.eventsCommitted, eventsRolledBack: b.eventsRolledBack,
		p50: percentile(recent, 0.50), p99: percentile(recent, 0.99),
	}
}

// overall returns the latencies of the whole run.
func (b *book) overall() (p50, p99, longest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Sorted(slices.Values(b.latencies))
	return percentile(all, 0.50), percentile(all, 0.99), b.longest
}

// percentile takes the nearest rank; 0 of nothing.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
