package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/relay"
)

// ending is a way in which one of two relays ends.
type ending struct {
	name   string
	signal os.Signal
	within time.Duration // the promise
	wakes  time.Duration // after this much a frozen one goes on; 0: it does not
	after  time.Duration // traffic that follows
}

func endings(session time.Duration) []ending {
	return []ending{
		{"kill -9", syscall.SIGKILL, session + 2*time.Second, 0, session + 5*time.Second},
		{"frozen, wakes up later", syscall.SIGSTOP, session + 2*time.Second, session + 4*time.Second, session + 8*time.Second},
		{"clean stop", syscall.SIGTERM, time.Second, 0, 4 * time.Second},
	}
}

// measure ends one of two relays amid steady traffic and prints how long its lanes stood still: until each of them
// had delivered an event that was committed after the end.
func (e ending) measure(ctx context.Context, s settings) error {
	f, err := startFleet(ctx, s, 2)
	if err != nil {
		return err
	}
	defer f.close()
	const before = 5 * time.Second
	n := int((before + e.after).Seconds()) * s.rate
	p := newProbe()
	var hit time.Time
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ignoreCancel(p.consume(gctx, s.kafka, f.topic)) })
	g.Go(func() error {
		wait(gctx, before)
		hit = time.Now()
		if err := f.relays[0].cmd.Process.Signal(e.signal); err != nil || e.wakes == 0 {
			return err
		}
		wait(gctx, e.wakes)
		return f.relays[0].cmd.Process.Signal(syscall.SIGCONT)
	})
	g.Go(func() error {
		defer stop()
		if err := p.write(gctx, f.b, s, f.topic, n); err != nil {
			return err
		}
		if err := p.await(gctx, n, 30*time.Second); err != nil {
			return errors.Join(err, p.missing(context.WithoutCancel(ctx), f.b, hit))
		}
		wait(gctx, 2*time.Second) // for doubles, which must not come
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	e.print(p, hit, f.owners, f.relays[0].name)
	return nil
}

// missing tells of events that did not arrive, for whoever has to find out why.
func (p *probe) missing(ctx context.Context, b *bed, hit time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for id, e := range p.events {
		if e.times > 0 || len(all) == 10 {
			continue
		}
		var status, topic, offset sql.NullString
		query := b.bind("SELECT status, kafka_partition, kafka_offset FROM outbox_events WHERE event_id = $1")
		if err := b.db.QueryRowContext(ctx, query, id).Scan(&status, &topic, &offset); err != nil {
			return err
		}
		all = append(all, fmt.Errorf("event %s, key %s, lane %d, committed %s after the end: %s, partition %s, offset %s", id, e.key,
			relay.LaneOf(e.key, 16), e.committed.Sub(hit), status.String, topic.String, offset.String))
	}
	return errors.Join(all...)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (e ending) print(p *probe, hit time.Time, owners map[int32]string, ended string) {
	again := map[int32]time.Time{} // by lane, when it delivered again
	var others time.Duration
	for _, ev := range p.events {
		lane := relay.LaneOf(ev.key, int32(len(owners)))
		switch {
		case ev.committed.Before(hit):
		case owners[lane] != ended:
			others = max(others, ev.read.Sub(ev.committed))
		case again[lane].IsZero() || ev.read.Before(again[lane]):
			again[lane] = ev.read
		}
	}
	var longest time.Duration
	for _, at := range again {
		longest = max(longest, at.Sub(hit))
	}
	doubles := p.count(func(ev *passage) bool { return ev.times > 1 })
	fmt.Printf("%-28s %10s %10s   %-28s %d\n", e.name, longest.Round(10*time.Millisecond), e.within, others.Round(time.Millisecond), doubles)
}
