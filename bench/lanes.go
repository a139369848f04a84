package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// lanesBeside puts two relays beside one on the same backlog, then ends one of two in each way and takes the time
// until its lanes deliver again.
func lanesBeside(ctx context.Context, s settings) error {
	if s.delivery == "" || s.delivery == single {
		s.delivery = config.ExactlyOnce
	}
	c := config.Default()
	fmt.Printf("delivery %s, %d lanes, %d flows a relay, session timeout %s; %d events of %d B, then %d transactions a second\n",
		s.delivery, c.Relay.Lanes, c.Relay.Flows, c.Relay.SessionTimeout, s.events, s.size, s.rate)
	if s.only == "" {
		if err := oneAndTwo(ctx, s); err != nil {
			return err
		}
	}
	fmt.Printf("%-28s %10s %10s   %-28s %s\n", "one of two", "its lanes", "within", "longest wait in other lanes", "doubles")
	for _, end := range endings(c.Relay.SessionTimeout) {
		if s.only != "" && s.only != end.name {
			continue
		}
		if err := end.measure(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", end.name, err)
		}
	}
	return nil
}

// oneAndTwo drains the same backlog with one relay and with two.
func oneAndTwo(ctx context.Context, s settings) error {
	rates := map[int][]float64{}
	for range s.rounds {
		for _, relays := range []int{1, 2} {
			rate, err := drainTogether(ctx, s, relays)
			if err != nil {
				return fmt.Errorf("%d relays: %w", relays, err)
			}
			rates[relays] = append(rates[relays], rate)
		}
	}
	one, two := median(rates[1]), median(rates[2])
	fmt.Printf("one relay   %8.0f events/s\ntwo relays  %8.0f events/s, %.2f of one\n\n", one, two, two/one)
	return nil
}

// fleet is some relays that share the lanes of a table.
type fleet struct {
	s      settings
	b      *bed
	topic  string
	relays []*child
	owners map[int32]string // whose each lane is
	close  func()
}

// newFleet makes the table and the topic of relays that are to come.
func newFleet(ctx context.Context, s settings) (*fleet, error) {
	b, err := newBed(ctx, s)
	if err != nil {
		return nil, err
	}
	topic, remove, err := newTopic(ctx, s.kafka, "lanes")
	if err != nil {
		b.close()
		return nil, err
	}
	f := &fleet{s: s, b: b, topic: topic}
	f.close = func() {
		for _, c := range f.relays {
			c.kill()
		}
		remove()
		b.close()
	}
	return f, nil
}

// startFleet returns when each relay has its share of the lanes.
func startFleet(ctx context.Context, s settings, relays int) (*fleet, error) {
	f, err := newFleet(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := f.start(ctx, relays); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context, relays int) error {
	for i := range relays {
		if err := f.add(ctx, fmt.Sprintf("relay%d", i+1)); err != nil {
			return err
		}
	}
	return f.settle(ctx)
}

// add starts a relay; what it says of lanes that come and go is not asked for.
func (f *fleet) add(ctx context.Context, name string) error {
	c, err := startChild(ctx, f.b, f.s, name, []string{"POSTRIDER_LOG_LEVEL=error"})
	if err == nil {
		f.relays = append(f.relays, c)
	}
	return err
}

// settle waits until the lanes are shared evenly, and a moment for what follows an assignment.
func (f *fleet) settle(ctx context.Context) error {
	lanes := config.Default().Relay.Lanes
	var last error // a control topic that was just made has no leader yet
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if last = f.look(ctx); last != nil {
			continue
		}
		count := map[string]int{}
		for _, name := range f.owners {
			count[name]++
		}
		even := len(f.owners) == lanes // fewer until a relay has made the control topic
		for _, c := range f.relays {
			even = even && count[c.name] >= lanes/len(f.relays)
		}
		if even {
			time.Sleep(time.Second)
			return nil
		}
	}
	return errors.Join(errors.New("the lanes are not shared evenly after a minute"), last)
}

// look asks the cluster whose each lane is.
func (f *fleet) look(ctx context.Context) error {
	cfg, _, _ := kafka.Parse(map[string]string{"bootstrap.servers": f.s.kafka})
	lanes, err := kafka.DescribeLanes(ctx, cfg, f.b.name)
	if err != nil {
		return err
	}
	f.owners = map[int32]string{}
	for _, l := range lanes {
		f.owners[l.Lane] = l.Relay
	}
	return nil
}

// drainTogether is events a second of relays that are at work when a backlog is committed, to its last mark.
func drainTogether(ctx context.Context, s settings, relays int) (float64, error) {
	f, err := startFleet(ctx, s, relays)
	if err != nil {
		return 0, err
	}
	defer f.close()
	if err := f.warm(ctx, 0); err != nil {
		return 0, err
	}
	tx, err := f.b.pend(ctx, s.events, s.size, s.keys, f.topic)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	ended, err := f.b.drained(ctx, warmUp+s.events)
	if err != nil {
		return 0, err
	}
	written, err := records(ctx, s.kafka, f.topic)
	if err == nil && written != int64(warmUp+s.events) {
		err = fmt.Errorf("of %d events %d records written", warmUp+s.events, written)
	}
	return float64(s.events) / ended.Sub(began).Seconds(), err
}

// warmUp is events that go first: the first batches make clients and ask for metadata.
const warmUp = 10_000

// warm drains them, after what was sent before.
func (f *fleet) warm(ctx context.Context, before int) error {
	if err := f.b.insert(ctx, f.b.db, warmUp, f.s.size, f.s.keys, f.topic); err != nil {
		return err
	}
	_, err := f.b.drained(ctx, before+warmUp)
	return err
}
