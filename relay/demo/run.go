package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run is the demo from start to verdict: it places orders, lets the watcher show it (nil: nobody does),
// waits until everything is delivered and applied or the time is over, and compares database, topic
// and consumers. An end of ctx ends it early, with a verdict on what was done. The error is about a
// demo that could not run; broken promises are in the Summary.
func Run(ctx context.Context, o Options, w Watcher) (Summary, error) {
	d, err := start(ctx, o)
	if err != nil {
		return Summary{}, err
	}
	defer d.close()
	d.perform(ctx, w)
	if err := d.failure(); err != nil {
		return Summary{}, err
	}
	return d.settleUp(context.WithoutCancel(ctx))
}

// perform goes on until the run's time is over or there is no more to see.
func (d *Demo) perform(ctx context.Context, w Watcher) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	plan := d.o.plan()
	if d.o.For > 0 {
		var stopTimer context.CancelFunc
		ctx, stopTimer = context.WithTimeout(ctx, d.o.For)
		defer stopTimer()
	}
	worked := d.spawn(func() error { return d.work(ctx, plan) })
	over := make(chan struct{})
	ended := []<-chan struct{}{worked}
	if w != nil {
		ended = append(ended, d.spawn(func() error {
			defer stop()
			return w.Watch(ctx, d)
		}))
	}
	if !d.o.Linger {
		ended = append(ended, d.spawn(func() error {
			<-worked
			if d.drain(ctx) == nil {
				close(over)
			}
			return nil
		}))
	}
	select {
	case <-ctx.Done():
	case <-d.failing:
	case <-over:
	}
	stop()
	for _, e := range ended {
		<-e
	}
}

// plan is what the options come to.
type plan struct {
	orders   int
	rate     float64       // 0: as fast as the database commits
	within   time.Duration // for placing them; 0: no limit
	breakAt  time.Duration
	breakFor time.Duration // 0: the broker stays up
	crashAt  time.Duration // 0: nobody crashes
}

func (o Options) plan() plan {
	p := plan{orders: o.Orders, rate: o.Rate, within: o.For * 4 / 5}
	if p.orders <= 0 || p.orders > MaxOrders {
		p.orders = MaxOrders
	}
	if p.rate == 0 {
		p.rate = DefaultRate
		if o.Orders > 0 && o.For > 0 {
			p.rate = max(p.rate, float64(p.orders)/(o.For/2).Seconds())
		} else if o.Orders > 0 {
			p.rate = max(p.rate, float64(p.orders)/5) // in five seconds
		}
	}
	length := o.For
	if p.rate > 0 {
		placing := time.Duration(float64(p.orders) / p.rate * float64(time.Second))
		if length == 0 || placing < length {
			length = placing
		}
	} else {
		p.rate = 0
	}
	length = min(max(length, time.Second), time.Minute)
	if o.BreakBroker {
		p.breakAt, p.breakFor = length/3, max(length/5, 200*time.Millisecond)
	}
	if o.CrashConsumers {
		p.crashAt = length / 2
	}
	return p
}

// work places the orders and plays the planned faults.
func (d *Demo) work(ctx context.Context, p plan) error {
	if p.within > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, p.within)
		defer stop()
	}
	broken := make(chan error, 1)
	go func() { broken <- guarded(func() error { return d.playFaults(ctx, p) }) }()
	err := d.shop.work(ctx, p.rate, p.orders)
	d.stopped.Store(true)
	return errors.Join(err, <-broken)
}

func (d *Demo) playFaults(ctx context.Context, p plan) error {
	start := time.Now()
	if p.breakFor > 0 && pause(ctx, p.breakAt) {
		d.StopBroker()
		pause(ctx, p.breakFor)
		if err := d.StartBroker(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	if p.crashAt > 0 && pause(ctx, p.crashAt-time.Since(start)) {
		d.CrashConsumers()
	}
	return nil
}

// pause says whether it lasted its time.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// drainEvery is how often it is asked whether everything has arrived.
const drainEvery = 20 * time.Millisecond

// drain returns nil once every event that can be sent was sent, read and applied. Events behind a dead
// one of their key do not count.
func (d *Demo) drain(ctx context.Context) error {
	for {
		done, err := d.drained(ctx)
		if done {
			return nil
		}
		if !pause(ctx, drainEvery) {
			return errors.Join(fmt.Errorf("not everything was delivered in time: %w", context.Cause(ctx)), err)
		}
	}
}

func (d *Demo) drained(ctx context.Context) (bool, error) {
	table, err := d.look(ctx)
	if err != nil || table.due() > 0 {
		return false, err
	}
	return d.consumed(ctx)
}

// consumed says whether the recorder and the consumers have come to the ends of the topics.
func (d *Demo) consumed(ctx context.Context) (bool, error) {
	if !d.broker.door.isOpen() {
		return false, nil // asking would hang
	}
	ends, err := d.recorder.ends(ctx)
	if err != nil {
		return false, err
	}
	all := d.recorder.reached(ends)
	for _, c := range d.consumers {
		all = all && c.reached(ends)
	}
	return all, nil
}

// settleUp ends the run: the broker is back, what waits is delivered within a limit of time, and everything
// is compared.
func (d *Demo) settleUp(ctx context.Context) (Summary, error) {
	if err := d.StartBroker(ctx); err != nil {
		return Summary{}, err
	}
	settling, stop := context.WithTimeout(ctx, d.o.settle)
	defer stop()
	late := d.drain(settling)
	took := time.Since(d.started)
	if err := d.failure(); err != nil {
		return Summary{}, err
	}
	evidence, err := d.evidence(ctx)
	if err != nil {
		return Summary{}, err
	}
	s := d.summary(Judge(evidence), took)
	if late != nil {
		s.Undelivered = late.Error()
	}
	return s, nil
}
