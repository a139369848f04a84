package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/outbox"
)

// probe writes events at a steady rate and notes when each was committed and when a reader of committed records had
// it.
type probe struct {
	mu     sync.Mutex
	events map[string]*passage // by event id
}

type passage struct {
	key             string
	committed, read time.Time // read: the first time
	times           int       // that it was read
}

func newProbe() *probe { return &probe{events: map[string]*passage{}} }

// of is called with mu held.
func (p *probe) of(id string) *passage {
	e := p.events[id]
	if e == nil {
		e = &passage{}
		p.events[id] = e
	}
	return e
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
				e := outbox.Event{ID: outbox.NewID(), AggregateType: "Order", AggregateID: fmt.Sprintf("ORD-%d", i%s.keys),
					Type: "OrderCreated", Topic: topic, Payload: body}
				if err := b.commit(ctx, w, e); err != nil {
					return err
				}
				now := time.Now()
				p.mu.Lock()
				passage := p.of(e.ID)
				passage.key, passage.committed = e.AggregateID, now
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
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case due <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// commit writes an event in a transaction of its own.
func (b *bed) commit(ctx context.Context, w *outbox.Writer, e outbox.Event) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := w.Write(ctx, tx, e); err != nil {
		return err
	}
	return tx.Commit()
}

// consume reads committed records until ctx ends.
func (p *probe) consume(ctx context.Context, addr, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now := time.Now()
		p.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { p.note(r, now) })
		p.mu.Unlock()
	}
}

func (p *probe) note(r *kgo.Record, now time.Time) {
	for _, h := range r.Headers {
		if h.Key != "event_id" && h.Key != "id" { // ours, or Debezium's
			continue
		}
		e := p.of(string(h.Value))
		if e.times++; e.times == 1 {
			e.read = now
		}
		return
	}
}

// await returns when n events have been read, or fails when that takes longer.
func (p *probe) await(ctx context.Context, n int, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got := p.count(func(e *passage) bool { return e.times > 0 })
		if got >= n {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("only %d of %d events arrived", got, n)
		}
	}
}

func (p *probe) count(which func(*passage) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if which(e) {
			n++
		}
	}
	return n
}
