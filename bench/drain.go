package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay/config"
)

// drain measures events a second from a full table to the last mark, rows kept, each contender on a
// fresh table and a fresh topic, in turn.
func drain(ctx context.Context, s settings) error {
	contenders := []struct {
		name   string
		events int
		run    func(context.Context, *bed, settings, string, int) error
		rates  []float64
	}{
		{name: "article", events: s.article, run: articleRelay},
		{name: "ceiling", events: s.events, run: ceiling},
		{name: "product", events: s.events, run: product},
		{name: "lanes", events: s.events, run: shared(config.AtLeastOnce)},
		{name: "exactly-once", events: s.events, run: shared(config.ExactlyOnce)},
	}
	for round := range s.rounds {
		for i := range contenders {
			c := &contenders[i]
			if s.only != "" && s.only != c.name {
				continue
			}
			rate, err := once(ctx, s, c.name, c.events, c.run)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rates = append(c.rates, rate)
			fmt.Printf("round %d  %-12s %9.0f events/s\n", round+1, c.name, rate)
		}
	}
	article, top := median(contenders[0].rates), median(contenders[1].rates)
	fmt.Printf("\n%-12s %12s %10s %10s\n", "", "events/s", "x article", "of ceiling")
	for _, c := range contenders {
		m := median(c.rates)
		fmt.Printf("%-12s %12.0f %10.1f %10.2f\n", c.name, m, m/article, m/top)
	}
	return nil
}

func once(ctx context.Context, s settings, name string, n int, run func(context.Context, *bed, settings, string, int) error) (float64, error) {
	b, err := newBed(ctx, s.database)
	if err != nil {
		return 0, err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, name)
	if err != nil {
		return 0, err
	}
	defer remove()
	if err := b.fill(ctx, n, s.size, s.keys, topic); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := run(ctx, b, s, topic, n); err != nil {
		return 0, err
	}
	took := time.Since(began)
	marked, err := b.sent(ctx)
	if err != nil {
		return 0, err
	}
	written, err := records(ctx, s.kafka, topic)
	if err != nil {
		return 0, err
	}
	if marked != n || written != int64(n) {
		return 0, fmt.Errorf("of %d events %d were marked and %d records written", n, marked, written)
	}
	return float64(n) / took.Seconds(), nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	if len(xs) == 0 {
		return 0
	}
	return xs[len(xs)/2]
}
