package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options is what a Relay is made of. Store, Sink and Router.Default are required.
type Options struct {
	Name   string // relay.name, in logs
	Store  Store
	Sink   Sink
	Claim  ClaimMode // defaults to ClaimSingle
	Router Router
	Encode Encoder
	Retry  Backoff
	OnDead string // OnDeadHold (default) or OnDeadSkip
	// DeadLetterTopic, when set, also gets a copy of each event that becomes DEAD.
	DeadLetterTopic string

	Batch        int           // events a batch; defaults to 2000
	BatchBytes   int64         // bytes a batch; defaults to 8 MiB
	PollInterval time.Duration // longest pause when idle; defaults to 500 ms
	// MaxBlockedKeys bounds the memory of gates: from so many closed keys on, new events wait. Defaults to 50,000.
	MaxBlockedKeys int
	// ClaimTimeout is the Store's (claim: rows): an event whose claim is older than half of it is handed
	// back instead of sent. Defaults to 60 s.
	ClaimTimeout time.Duration
	// DrainTimeout bounds the end: how long in-flight records may still be answered. Defaults to 30 s.
	DrainTimeout time.Duration
	// UntilDrained ends Run once nothing is due and nothing is in flight. Events that wait for a
	// destination that does not answer count as in flight, those that wait for their next attempt do not.
	UntilDrained bool

	Hooks  Hooks        // defaults to none
	Logger *slog.Logger // defaults to silence
}

func (o Options) withDefaults() Options {
	if o.Claim == "" {
		o.Claim = ClaimSingle
	}
	if o.Router.Default.Empty() {
		o.Router.Default = MustTemplate(DefaultTopic)
	}
	if o.Batch <= 0 {
		o.Batch = 2000
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 8 << 20
	}
	if o.PollInterval <= 0 {
		o.PollInterval = 500 * time.Millisecond
	}
	if o.MaxBlockedKeys <= 0 {
		o.MaxBlockedKeys = 50_000
	}
	if o.ClaimTimeout <= 0 {
		o.ClaimTimeout = 60 * time.Second
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	if o.Hooks == nil {
		o.Hooks = noHooks{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// ErrOwnershipLost ends Run when the session that made this relay the only one of its table ended.
// What Kafka had acknowledged was marked if the database let it, everything else in flight was dropped
// unmarked; the caller opens a fresh store and sink and runs again.
var ErrOwnershipLost = errors.New("ownership of the table was lost")

// Relay reads, sends and settles side by side: the next batch is read while the last is in flight and
// the one before is being marked.
type Relay struct {
	o      Options
	gate   *gate
	poller *poller
	budget *budget
	send   *sender
	settle *settler
	wake   chan struct{}
	status status
}

// New makes a relay. Nothing runs or connects before Run.
func New(o Options) *Relay {
	o = o.withDefaults()
	r := &Relay{o: o, wake: make(chan struct{}, 1)}
	r.gate = newGate(o.OnDead, r.Wake)
	r.poller = newPoller(o, r.gate, r.wake)
	// Three batches: one being read, one in flight, one being marked.
	r.budget = newBudget(3*o.Batch, 3*o.BatchBytes)
	r.settle = newSettler(o, r.gate, r.budget, &r.status)
	r.send = newSender(o, r.gate, r.budget, r.settle, &r.status)
	return r
}

// Wake ends an idle pause: call it after a local commit. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run relays until ctx ends, then drains: what is in flight is awaited up to DrainTimeout and marked,
// what was read and not sent is released. It returns nil after a clean end (or when drained, with
// UntilDrained), ErrOwnershipLost, or the error that makes going on senseless. The store and the sink
// are closed in every case.
func (r *Relay) Run(ctx context.Context) error {
	err := r.run(ctx)
	if cerr := r.o.Store.Close(); cerr != nil && err == nil {
		err = fmt.Errorf("close store: %w", cerr)
	}
	return err
}

func (r *Relay) run(ctx context.Context) error {
	lost, err := r.o.Store.Acquire(ctx, func(holder string) {
		r.status.standby(holder)
		r.o.Logger.Info("another relay owns the table, waiting as standby", "holder", holder)
	})
	if err != nil {
		_ = r.o.Sink.Close(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("acquire the table: %w", err)
	}
	r.status.active()
	if err := r.loadDoubts(ctx); err != nil {
		_ = r.o.Sink.Close(ctx)
		return err
	}

	// hard outlives ctx by the drain timeout, and ends at once when the ownership is lost: from then
	// on another relay may be at work, and every further answer or mark would be a guess.
	hard, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	defer context.AfterFunc(reading, func() {
		select {
		case <-time.After(r.o.DrainTimeout):
			cut(context.DeadlineExceeded)
		case <-hard.Done():
		}
	})()

	g := new(errgroup.Group)
	batches := make(chan []Event)
	done := make(chan struct{}) // closed when the sender has ended
	g.Go(func() error {
		select {
		case <-lost:
			stopReading()
			cut(ErrOwnershipLost)
		case <-done:
		}
		return nil
	})
	g.Go(func() error {
		defer close(batches)
		defer stopReading()
		asking, stopAsking := r.asking(reading, hard)
		defer stopAsking()
		return r.read(reading, asking, batches)
	})
	g.Go(func() error {
		defer r.settle.end()
		defer close(done)
		r.send.run(reading, hard, batches)
		return nil
	})
	g.Go(func() error {
		r.settle.run(hard)
		return nil
	})
	err = g.Wait()
	if errors.Is(context.Cause(hard), ErrOwnershipLost) {
		return ErrOwnershipLost
	}
	return err
}

// claimGrace is how long a Fetch with claims may still take when reading has ended.
const claimGrace = 2 * time.Second

// asking is the context of Fetch. With claims it outlives reading a little: rows that were claimed while
// the end came must be learnt of and released, or they would wait for the claim timeout (case C09).
func (r *Relay) asking(reading, hard context.Context) (context.Context, context.CancelFunc) {
	if r.o.Claim != ClaimRows {
		return reading, func() {}
	}
	asking, cancel := context.WithCancel(hard)
	stop := context.AfterFunc(reading, func() {
		select {
		case <-time.After(claimGrace):
			cancel()
		case <-asking.Done():
		}
	})
	return asking, func() { stop(); cancel() }
}

// loadDoubts closes the gates of rows that were in doubt before.
func (r *Relay) loadDoubts(ctx context.Context) error {
	// When the bound is reached, what is in flight may still fail: a relay that stood there must be able
	// to start again.
	most := r.o.MaxBlockedKeys + r.budget.maxEvents + r.send.late.maxEvents
	ds, err := r.o.Store.Doubts(ctx, most+1)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("read the events in doubt: %w", err)
	}
	if len(ds) > most {
		return &SetupError{Kind: SetupConflict, Thing: "outbox",
			Reason: fmt.Sprintf("more than %d events are FAILED or DEAD and block their keys", most),
			Fix:    "retry or discard them (postrider events list --status DEAD), or set relay.retry.on_dead: skip"}
	}
	r.gate.load(ds)
	return nil
}

// read hands batches to the sender until ctx ends or, with UntilDrained, nothing is left to do.
func (r *Relay) read(ctx, asking context.Context, batches chan<- []Event) error {
	for ctx.Err() == nil {
		limit, bytes, ok := r.budget.wait(ctx, r.status.tick)
		if !ok {
			return nil
		}
		idleBefore := r.nothingLeft()
		evs, err := r.poller.read(asking, min(limit, r.o.Batch), min(bytes, r.o.BatchBytes))
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			r.status.trouble(err)
			r.o.Logger.Warn("the database does not answer, trying again", "error", err.Error())
			r.poller.backOff(ctx)
			continue
		}
		r.status.polled()
		if len(evs) == 0 {
			if r.o.UntilDrained && idleBefore && !r.poller.more && r.nothingLeft() {
				return nil
			}
			r.poller.rest(ctx)
			continue
		}
		r.budget.take(evs)
		select {
		case batches <- evs:
		case <-ctx.Done():
			r.send.handBackAll(evs)
			return nil
		}
		r.poller.rest(ctx)
	}
	return nil
}

// nothingLeft says whether nothing that was read before can lead to more work by itself.
func (r *Relay) nothingLeft() bool {
	return r.gate.quiet() && !r.settle.expects(time.Now())
}
