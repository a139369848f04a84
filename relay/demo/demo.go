package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/sqlite"
)

// outboxName is the relay's and its group's.
const outboxName = "demo"

// processStart is as near to the start of the binary as Go lets us measure.
var processStart = time.Now()

// Limits of a run.
const (
	// MaxOrders bounds what a run keeps in memory: about half a gigabyte.
	MaxOrders = 100_000
	// settleTime bounds the end: what waits is still delivered, read and applied.
	settleTime = 10 * time.Second
)

// Options say what a run does. The zero value places orders until its context ends.
type Options struct {
	// Orders is how many orders are placed, rolled back ones included. Defaults to MaxOrders, which is
	// also the most.
	Orders int
	// For bounds the run: orders are placed in the first four fifths at most, the rest is for delivery.
	// Defaults to no limit.
	For time.Duration
	// Rate is orders a second; negative is as fast as the database commits. Defaults to DefaultRate, or
	// to what places Orders in half of For.
	Rate float64
	// Linger keeps the demo going after the last order, until For is over, its context ends or the
	// watcher returns.
	Linger bool
	// BreakBroker stops the broker after a third of the orders, for a fifth of the run.
	BreakBroker bool
	// CrashConsumers kills every consumer once in the middle, between database and offsets.
	CrashConsumers bool
	// Logger gets what the relay says. Defaults to silence.
	Logger *slog.Logger
	// Program is how a shell starts this program, for the lines that say what to look at. Defaults to postrider.
	Program string
	// Dir is where the temporary folder is made. Defaults to the system's.
	Dir string

	settle time.Duration // defaults to settleTime
}

// DefaultRate is orders a second.
const DefaultRate = 20

// Watcher shows a run while it goes on. Watch returns when ctx ends, or earlier to end the run.
type Watcher interface {
	Watch(ctx context.Context, d *Demo) error
}

// Demo is a run in progress.
type Demo struct {
	o       Options
	dir     string
	started time.Time
	stopped atomic.Bool

	broker    *broker
	orders    *sql.DB
	reader    *sql.DB // looks at the order service's file without waiting for its transactions
	book      *book
	shop      *shop
	relay     *relay.Relay
	admin     *sqlite.Store
	recorder  *recorder
	consumers []*consumer

	first  atomic.Int64 // nanoseconds from the process' start to the first delivered event
	faults faults
	rates  rates

	mu      sync.Mutex
	failed  error
	failing chan struct{} // closed with the first failure
	closers []func()
}

// start opens everything and sets it going; only the order service waits. close must be called on
// what it returns.
func start(ctx context.Context, o Options) (*Demo, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Program == "" {
		o.Program = "postrider"
	}
	if o.settle <= 0 {
		o.settle = settleTime
	}
	d := &Demo{o: o, started: time.Now(), book: newBook(), failing: make(chan struct{})}
	d.rates.points = []ratePoint{{at: d.started}}
	if err := d.open(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *Demo) open(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp(d.o.Dir, "postrider-demo-"); err != nil {
		return fmt.Errorf("make a temporary folder: %w; set TMPDIR to a folder that can be written", err)
	}
	d.later(func() { _ = os.RemoveAll(d.dir) })
	if d.broker, err = startBroker(ctx); err != nil {
		return err
	}
	d.later(d.broker.close)
	if err := d.openDatabases(ctx); err != nil {
		return err
	}
	if d.recorder, err = newRecorder(d.broker.addr(), d.book, d.noteFirst); err != nil {
		return err
	}
	d.later(d.recorder.client.Close)
	if err := d.openRelay(ctx); err != nil {
		return err
	}
	d.shop = newShop(d.orders, d.book, d.relay.Wake)
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := []<-chan struct{}{d.spawn(func() error { d.recorder.run(reading); return nil })}
	for _, c := range d.consumers {
		ended = append(ended, d.spawn(func() error { return c.run(reading) }))
	}
	d.later(func() {
		stop()
		for _, e := range ended {
			<-e
		}
	})
	return nil
}

func (d *Demo) openDatabases(ctx context.Context) (err error) {
	path := d.ordersPath()
	if d.orders, err = openDatabase(ctx, path, serviceTables); err != nil {
		return err
	}
	d.later(func() { _ = d.orders.Close() })
	if d.reader, err = openReader(path); err != nil {
		return err
	}
	d.later(func() { _ = d.reader.Close() })
	for _, t := range []trade{inventory(), points()} {
		db, err := openDatabase(ctx, filepath.Join(d.dir, t.name+".db"), effectsTable)
		if err != nil {
			return err
		}
		d.later(func() { _ = db.Close() })
		d.consumers = append(d.consumers, newConsumer(t, db, d.broker.addr()))
	}
	return nil
}

func (d *Demo) ordersPath() string { return filepath.Join(d.dir, "orders.db") }

// openRelay starts the real relay over the real store and sink, as `postrider run` composes them.
func (d *Demo) openRelay(ctx context.Context) error {
	o := relay.StoreOptions{URL: databaseURL(d.ordersPath()), Name: outboxName, Relay: outboxName, Table: ownTable(), Claim: relay.ClaimLanes, Lanes: lanes}
	store, err := sqlite.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("open the outbox: %w", err)
	}
	if d.admin, err = sqlite.Open(ctx, o); err != nil {
		_ = store.Close()
		return fmt.Errorf("open the outbox: %w", err)
	}
	d.later(func() { _ = d.admin.Close() })
	table, err := store.Identity(ctx)
	if err != nil {
		_ = store.Close()
		return err
	}
	ro := relay.Options{
		Name: outboxName, Store: store, Claim: relay.ClaimLanes,
		Router: relay.Router{Routes: []relay.Route{
			{AggregateType: aggregateType, Topic: relay.MustTemplate(topicName)},
		}, Default: relay.MustTemplate(relay.DefaultTopic)},
		DrainTimeout: 3 * time.Second,
		Logger:       d.o.Logger,
	}
	if err := openFlows(ctx, d.broker.addr(), table, d.o.Logger, &ro); err != nil {
		_ = store.Close()
		return err
	}
	d.relay = relay.New(ro)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := d.spawn(func() error {
		if err := d.relay.Run(running); err != nil {
			return fmt.Errorf("the relay ended: %w", err)
		}
		return nil
	})
	d.later(func() { stop(); <-ended })
	return nil
}

// later registers a cleanup; they run in reverse order, once.
func (d *Demo) later(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closers = append(d.closers, f)
}

// close ends everything and removes the files.
func (d *Demo) close() {
	d.mu.Lock()
	closers := d.closers
	d.closers = nil
	d.mu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
}

// spawn runs work beside the rest and returns a channel that is closed at its end. A failure ends the
// run; so does a panic, which must not leave the terminal in raw mode.
func (d *Demo) spawn(work func() error) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := guarded(work); err != nil {
			d.fail(err)
		}
	}()
	return ended
}

func guarded(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work()
}

func (d *Demo) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil {
		close(d.failing)
	}
	d.failed = errors.Join(d.failed, err)
}

func (d *Demo) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

func (d *Demo) noteFirst() {
	if d.first.Load() == 0 {
		d.first.CompareAndSwap(0, int64(max(time.Since(processStart), 1)))
	}
}

// FirstEvent is the time from the start of the process to the first event read from Kafka, 0 before.
func (d *Demo) FirstEvent() time.Duration { return time.Duration(d.first.Load()) }

// Kafka is the address of the broker.
func (d *Demo) Kafka() string { return d.broker.addr() }
