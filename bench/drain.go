package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay/config"
)

// contender is one way to bring a backlog to Kafka.
type contender struct {
	name   string
	events int
	begin  func(context.Context, *bed, settings) error // before the backlog is written; nil: nothing to do
	run    func(context.Context, *bed, settings, string, int) (time.Duration, error)
	carry  carryFunc // the same at work on live traffic
	bare   bool      // it marks nothing
	rates  []float64
}

// contenders are in the order of their turns. Debezium is among them when there is a worker of Kafka Connect.
func contenders(s settings) []*contender {
	cs := []*contender{
		{name: "article", events: s.article, run: whole(articleRelay)},
		{name: "ceiling", events: s.events, run: whole(ceiling)},
	}
	for _, delivery := range []string{single, config.AtLeastOnce, config.ExactlyOnce} {
		cs = append(cs, &contender{name: delivery, events: s.events, run: whole(product(delivery)), carry: carryWith(delivery)})
	}
	if s.connect == "" || scheme(s.database) != "postgres" && scheme(s.database) != "postgresql" {
		return cs
	}
	for _, d := range []debezium{{name: "debezium"}, {"debezium tuned", tuned}} {
		cs = append(cs, &contender{name: d.name, events: s.events, begin: d.begin, run: d.drain, carry: d.carry, bare: true})
	}
	return cs
}

// whole takes the time of all that run does.
func whole(run func(context.Context, *bed, settings, string, int) error) func(context.Context, *bed, settings, string, int) (time.Duration, error) {
	return func(ctx context.Context, b *bed, s settings, topic string, n int) (time.Duration, error) {
		began := time.Now()
		err := run(ctx, b, s, topic, n)
		return time.Since(began), err
	}
}

// drain measures events a second from a full table to the last mark, rows kept, each contender on a
// fresh table and a fresh topic, in turn.
func drain(ctx context.Context, s settings) error {
	cs := contenders(s)
	if s.only != "" {
		cs = slices.DeleteFunc(cs, func(c *contender) bool { return c.name != s.only })
	}
	if err := race(ctx, s, cs); err != nil {
		return err
	}
	article, top, rival := rateOf(cs, "article"), rateOf(cs, "ceiling"), rateOf(cs, "debezium tuned")
	fmt.Printf("\n%-16s %10s %10s %10s %17s\n", "", "events/s", "of ceiling", "x article", "x debezium tuned")
	for _, c := range cs {
		m := median(c.rates)
		fmt.Printf("%-16s %10.0f %10s %10s %17s\n", c.name, m, ratio("%.2f", m, top), ratio("%.0f", m, article), ratio("%.1f", m, rival))
	}
	if rival > 0 {
		fmt.Println(aboutDebezium)
	}
	return nil
}

// race lets the contenders take turns, s.rounds times. A worker of Kafka Connect first drains once for nothing, so
// that its code is compiled.
func race(ctx context.Context, s settings, cs []*contender) error {
	if i := slices.IndexFunc(cs, func(c *contender) bool { return c.bare }); i >= 0 {
		if _, err := once(ctx, s, cs[i]); err != nil {
			return fmt.Errorf("%s, to warm up: %w", cs[i].name, err)
		}
	}
	for round := range s.rounds {
		for _, c := range cs {
			rate, err := once(ctx, s, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rates = append(c.rates, rate)
			fmt.Printf("round %d  %-16s %9.0f events/s\n", round+1, c.name, rate)
		}
	}
	return nil
}

func rateOf(cs []*contender, name string) float64 {
	for _, c := range cs {
		if c.name == name {
			return median(c.rates)
		}
	}
	return 0
}

// ratio is empty where there is nothing to compare with.
func ratio(format string, x, to float64) string {
	if to == 0 {
		return ""
	}
	return fmt.Sprintf(format, x/to)
}

func once(ctx context.Context, s settings, c *contender) (float64, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return 0, err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, "drain")
	if err != nil {
		return 0, err
	}
	defer remove()
	if c.begin != nil {
		if err := c.begin(ctx, b, s); err != nil {
			return 0, err
		}
	}
	if err := b.fill(ctx, c.events, s.size, s.keys, topic); err != nil {
		return 0, err
	}
	took, err := c.run(ctx, b, s, topic, c.events)
	if err != nil {
		return 0, err
	}
	marked, err := b.sent(ctx)
	if err != nil {
		return 0, err
	}
	written, err := records(ctx, s.kafka, topic)
	if err != nil {
		return 0, err
	}
	if written != int64(c.events) || marked != c.events && !c.bare {
		return 0, fmt.Errorf("of %d events %d were marked and %d records written", c.events, marked, written)
	}
	return float64(c.events) / took.Seconds(), nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	if len(xs) == 0 {
		return 0
	}
	return xs[len(xs)/2]
}
