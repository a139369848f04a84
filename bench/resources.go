package main

import (
	"context"
	"fmt"
	"time"
)

// memory drains a backlog of a million small events, then 2,000 of 2 MB, and shows the peaks.
func memory(ctx context.Context, s settings) error {
	for _, c := range []struct {
		what      string
		n, size   int
		env       []string
		topicSize string
	}{
		{"1,000,000 events of 300 B", 1_000_000, 300, nil, ""},
		{"2,000 events of 2 MB, GOMEMLIMIT=200MiB", 2_000, 2_000_000, []string{"GOMEMLIMIT=200MiB"}, "3000000"},
	} {
		peak, err := peakOf(ctx, s, c.n, c.size, c.env, c.topicSize)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		fmt.Printf("%-42s peak resident memory %.0f MiB\n", c.what, peak)
	}
	return nil
}

func peakOf(ctx context.Context, s settings, n, size int, env []string, topicSize string) (float64, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return 0, err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, "memory")
	if err != nil {
		return 0, err
	}
	defer remove()
	if topicSize != "" {
		if err := setTopic(ctx, s.kafka, topic, "max.message.bytes", topicSize); err != nil {
			return 0, err
		}
	}
	if err := b.fill(ctx, n, size, s.keys, topic); err != nil {
		return 0, err
	}
	c, err := startChild(ctx, b, s, "bench", env, "--until-drained")
	if err != nil {
		return 0, err
	}
	var peak float64
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
			peak = max(peak, c.peak())
		case err := <-c.exited:
			if err != nil {
				return 0, err
			}
			got, err := b.sent(ctx)
			if err == nil && got != n {
				err = fmt.Errorf("%d of %d marked", got, n)
			}
			if err != nil {
				return 0, err
			}
			return peak, nil
		}
	}
}

// idle shows the processor time of a relay with nothing to do.
func idle(ctx context.Context, s settings) error {
	b, err := newBed(ctx, s)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := startChild(ctx, b, s, "bench", nil)
	if err != nil {
		return err
	}
	defer c.stop()
	time.Sleep(5 * time.Second) // start-up is not idling
	before := c.cpu()
	const span = 20 * time.Second
	select {
	case <-time.After(span):
	case err := <-c.exited:
		return fmt.Errorf("the relay ended: %w", err)
	}
	used := c.cpu() - before
	fmt.Printf("idle for %s: %s of processor time, %.2f %% of a core\n", span, used, 100*used.Seconds()/span.Seconds())
	return nil
}
