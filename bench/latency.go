package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/relay/app"
)

// latency measures from the return of COMMIT in the service to the record in the hands of a
// read_committed consumer, at a steady rate of transactions, one event each.
func latency(ctx context.Context, s settings) error {
	l, err := latencyOf(ctx, s, carryHere)
	if err != nil {
		return err
	}
	fmt.Printf("%d transactions a second, %d events: commit to readable p50 %s  p95 %s  p99 %s  max %s\n",
		s.rate, l.events, l.p50, l.p95, l.p99, l.most)
	return nil
}

// carryFunc brings events from the table to Kafka until ctx ends; it calls ready when it has begun.
type carryFunc func(ctx context.Context, b *bed, s settings, ready func()) error

// carryHere is the relay in this process.
func carryHere(ctx context.Context, b *bed, s settings, ready func()) error {
	ready()
	return ignoreCancel(app.Run(ctx, app.Options{Config: productConfig(b, s), Logger: warnings()}))
}

func carryWith(delivery string) carryFunc {
	return func(ctx context.Context, b *bed, s settings, ready func()) error {
		s.delivery = delivery
		return carryHere(ctx, b, s, ready)
	}
}

func latencyOf(ctx context.Context, s settings, carry carryFunc) (spread, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return spread{}, err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, "latency")
	if err != nil {
		return spread{}, err
	}
	defer remove()

	n := s.rate * s.seconds
	p := newProbe()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	begun := make(chan struct{})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ignoreCancel(carry(gctx, b, s, sync.OnceFunc(func() { close(begun) }))) })
	g.Go(func() error { return ignoreCancel(p.consume(gctx, s.kafka, topic)) })
	g.Go(func() error {
		defer stop()
		select {
		case <-begun:
		case <-gctx.Done():
			return gctx.Err()
		}
		if err := p.write(gctx, b, s, topic, n); err != nil {
			return err
		}
		return p.await(gctx, n, 30*time.Second)
	})
	if err := g.Wait(); err != nil {
		return spread{}, err
	}
	return p.spread(), nil
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// spread is how long events took.
type spread struct {
	events              int
	p50, p95, p99, most time.Duration
}

// spread leaves the first two seconds out: clients connect and metadata is fetched then.
func (p *probe) spread() spread {
	first := time.Now()
	for _, e := range p.events {
		if e.committed.Before(first) {
			first = e.committed
		}
	}
	var ds []time.Duration
	for _, e := range p.events {
		if e.committed.Sub(first) > 2*time.Second {
			ds = append(ds, max(e.read.Sub(e.committed), 0))
		}
	}
	if len(ds) == 0 {
		return spread{}
	}
	slices.Sort(ds)
	q := func(x float64) time.Duration { return ds[int(float64(len(ds)-1)*x)].Round(10 * time.Microsecond) }
	return spread{len(ds), q(.5), q(.95), q(.99), q(1)}
}
