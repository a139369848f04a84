package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// pending is one Write and its reports so far.
type pending struct {
	mu      sync.Mutex
	results map[int]relay.Result
	twice   []int
	changed chan struct{}
}

// begin calls Write and returns with it.
func begin(ctx context.Context, s relay.Sink, recs ...relay.Record) *pending {
	p := &pending{results: map[int]relay.Result{}, changed: make(chan struct{}, 1)}
	s.Write(ctx, recs, func(i int, r relay.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, twice := p.results[i]; twice {
			p.twice = append(p.twice, i)
		}
		p.results[i] = r
		select {
		case p.changed <- struct{}{}:
		default:
		}
	})
	return p
}

func (p *pending) reported() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.results)
}

func (p *pending) result(i int) relay.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.results[i]
}

// await waits for n reports.
func (p *pending) await(t require.TestingT, n int) {
	deadline := time.After(30 * time.Second)
	for p.reported() < n {
		select {
		case <-p.changed:
		case <-deadline:
			require.FailNow(t, "records are not reported", "%d of %d", p.reported(), n)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.twice, "reported twice")
}

// record makes one with a key.
func record(topic, key, value string) relay.Record {
	return relay.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
}
