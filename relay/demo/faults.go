package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// faults remembers what was done to the demo, for the story that the view tells.
type faults struct {
	mu sync.Mutex
	deeds
}

// deeds are times at which something was done last; zero when never.
type deeds struct {
	brokerDown    time.Time // since when it is down; zero while it is up
	brokerBack    time.Time
	waitedThen    int       // events that waited when the broker came back
	healed        time.Time // when those were delivered
	broken        bool      // the broker was stopped at least once
	poisoned      bool      // at least once
	crashed       time.Time
	skippedBefore int // repetitions skipped before the crash
	repaired      time.Time
	repairedCount int
	discarded     time.Time
}

func (f *faults) change(what func(*deeds)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what(&f.deeds)
}

func (f *faults) now() deeds {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deeds
}

// StopBroker begins an outage: connections break and new ones are refused.
func (d *Demo) StopBroker() {
	d.broker.door.shut()
	d.faults.change(func(f *deeds) {
		if f.brokerDown.IsZero() {
			f.brokerDown, f.broken = time.Now(), true
		}
	})
}

// StartBroker ends an outage; it does nothing while the broker is up.
func (d *Demo) StartBroker(ctx context.Context) error {
	if err := d.broker.door.open(ctx); err != nil {
		return err
	}
	table, err := d.look(ctx)
	d.faults.change(func(f *deeds) {
		if !f.brokerDown.IsZero() {
			f.brokerDown, f.brokerBack, f.waitedThen, f.healed = time.Time{}, time.Now(), table.due(), time.Time{}
		}
	})
	return err
}

// ToggleBroker stops the broker, or starts it again.
func (d *Demo) ToggleBroker(ctx context.Context) error {
	if d.broker.door.isOpen() {
		d.StopBroker()
		return nil
	}
	return d.StartBroker(ctx)
}

// Poison places an order whose first event nobody can send: its topic's name is illegal.
func (d *Demo) Poison(ctx context.Context) error {
	if err := d.shop.poison(ctx); err != nil {
		return err
	}
	d.faults.change(func(f *deeds) { f.poisoned = true })
	return nil
}

// CrashConsumers kills each consumer after its next commit to its database, before the commit of its
// offsets, and starts it again.
func (d *Demo) CrashConsumers() {
	skipped := 0
	for _, c := range d.consumers {
		_, s, _ := c.numbers()
		skipped += s
		c.kill()
	}
	d.faults.change(func(f *deeds) { f.crashed, f.skippedBefore = time.Now(), skipped })
}

// Repair does what an operator would: gives the dead events a topic and lets them be tried again.
func (d *Demo) Repair(ctx context.Context) error {
	rows, err := d.dead(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
		if _, err := d.orders.ExecContext(ctx, `UPDATE outbox_events SET topic = ? WHERE event_id = ?`, topicName, row.ID); err != nil {
			return fmt.Errorf("repair event: %w", err)
		}
	}
	if _, _, err := d.admin.Retry(ctx, relay.Filter{EventIDs: ids}, false); err != nil {
		return fmt.Errorf("retry events: %w", err)
	}
	d.relay.Wake()
	d.faults.change(func(f *deeds) { f.repaired, f.repairedCount = time.Now(), len(ids) })
	return nil
}

// Discard gives the dead events up, so that those behind them may go on.
func (d *Demo) Discard(ctx context.Context) error {
	rows, err := d.dead(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	if _, _, err := d.admin.Discard(ctx, relay.Filter{EventIDs: ids}, "given up in the demo", false); err != nil {
		return fmt.Errorf("discard events: %w", err)
	}
	d.relay.Wake()
	d.faults.change(func(f *deeds) { f.discarded = time.Now() })
	return nil
}
