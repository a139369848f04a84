package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay/app"
)

// latency measures from the return of COMMIT in the service to the record in the hands of a
// read_committed consumer, at a steady rate of transactions, one event each.
func latency(ctx context.Context, s settings) error {
	b, err := newBed(ctx, s.database)
	if err != nil {
		return err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, "latency")
	if err != nil {
		return err
	}
	defer remove()

	n := s.rate * s.seconds
	p := &probe{committed: map[string]time.Time{}, read: map[string]time.Time{}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return ignoreCancel(app.Run(gctx, app.Options{Config: productConfig(b, s), Logger: warnings()}))
	})
	g.Go(func() error { return ignoreCancel(p.consume(gctx, s.kafka, topic, n)) })
	g.Go(func() error {
		defer stop()
		if err := p.write(gctx, b, s, topic, n); err != nil {
			return err
		}
		return p.await(gctx, n)
	})
	if err := g.Wait(); err != nil {
		return err
	}
	p.print(s)
	return nil
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type probe struct {
	mu        sync.Mutex
	committed map[string]time.Time
	read      map[string]time.Time
}

// write commits n transactions at the rate, over eight connections.
func (p *probe) write(ctx context.Context, b *bed, s settings, topic string, n int) error {
	w := outbox.New(b.dialect, outbox.Options{})
	body := []byte(`{"note":"` + strings.Repeat("x", max(s.size-11, 0)) + `"}`)
	due := make(chan int)
	g, ctx := errgroup.WithContext(ctx)
	for range 8 {
		g.Go(func() error {
			for i := range due {
				tx, err := b.db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				id := outbox.NewID()
				err = w.Write(ctx, tx, outbox.Event{ID: id, AggregateType: "Order", AggregateID: fmt.Sprintf("ORD-%d", i%s.keys),
					Type: "OrderCreated", Topic: topic, Payload: body})
				if err != nil {
					return err
				}
				if err := tx.Commit(); err != nil {
					return err
				}
				now := time.Now()
				p.mu.Lock()
				p.committed[id] = now
				p.mu.Unlock()
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(due)
		tick := time.NewTicker(time.Second / time.Duration(s.rate))
		defer tick.Stop()
		for i := range n {
			select {
			case <-tick.C:
				due <- i
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

func (p *probe) consume(ctx context.Context, addr, topic string, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	for got := 0; got < n; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		p.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			for _, h := range r.Headers {
				if h.Key == "event_id" {
					p.read[string(h.Value)] = now
				}
			}
		})
		p.mu.Unlock()
	}
	return nil
}

func (p *probe) await(ctx context.Context, n int) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		p.mu.Lock()
		got := len(p.read)
		p.mu.Unlock()
		if got >= n {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d events arrived", got, n)
		}
	}
}

// print leaves the first two seconds out: clients connect and metadata is fetched then.
func (p *probe) print(s settings) {
	first := time.Now()
	for _, t := range p.committed {
		if t.Before(first) {
			first = t
		}
	}
	var ds []time.Duration
	for id, at := range p.committed {
		if at.Sub(first) > 2*time.Second {
			ds = append(ds, max(p.read[id].Sub(at), 0))
		}
	}
	slices.Sort(ds)
	q := func(x float64) time.Duration { return ds[int(float64(len(ds)-1)*x)].Round(10 * time.Microsecond) }
	fmt.Printf("%d transactions a second, %d events: commit to readable p50 %s  p95 %s  p99 %s  max %s\n",
		s.rate, len(ds), q(.5), q(.95), q(.99), q(1))
}
