package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options is what a Relay is made of. Store, Sink and Router.Default are required.
type Options struct {
	Name  string // relay.name, in logs
	Store Store
	Sink  Sink
	Claim ClaimMode // defaults to ClaimSingle
	// Lanes and LaneCount are required with ClaimLanes, for which Store is a LaneStore.
	Lanes     Lanes
	LaneCount int32
	// Flows, when set, stand in for Sink: each sends side by side with the others, the events of its own share
	// of the keys.
	Flows  []Sink
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
	if o.Claim != ClaimLanes {
		o.LaneCount = 0
	}
	if len(o.Flows) == 0 {
		o.Flows = []Sink{o.Sink}
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
	owner  *owner
	send   []*sender // one a flow
	settle *settler
	wake   chan struct{}
	status status
}

// New makes a relay. Nothing runs or connects before Run.
func New(o Options) *Relay {
	o = o.withDefaults()
	r := &Relay{o: o, wake: make(chan struct{}, 1)}
	// Three batches: one being read, one in flight, one being marked.
	r.budget = newBudget(3*o.Batch, 3*o.BatchBytes)
	r.gate = newGate(o.OnDead, o.LaneCount, r.Wake)
	r.owner = newOwner(o, r.gate, r.Wake, r.mostDoubts())
	r.poller = newPoller(o, r.owner, r.gate, r.wake)
	r.settle = newSettler(o, r.owner, r.gate, r.budget, &r.status)
	for _, sink := range o.Flows {
		r.send = append(r.send, newSender(o, sink, r.owner, r.gate, r.budget, r.settle, &r.status))
	}
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
	var former *string // who owned the table when this relay came
	waiting, acquired := context.WithCancel(ctx)
	lost, err := r.o.Store.Acquire(ctx, func(holder string) {
		former = &holder
		r.status.standby(holder)
		r.tellStandby(waiting, holder)
	})
	acquired()
	if err != nil {
		r.closeAll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("acquire the table: %w", err)
	}
	r.status.active()
	if former != nil {
		r.o.Logger.Info("the table is free, taking over", "from", *former)
	}
	if r.o.Claim != ClaimLanes {
		if err := r.loadDoubts(ctx); err != nil {
			r.closeAll(ctx)
			return err
		}
	}
	r.o.Logger.Info("relaying", "claim", string(r.o.Claim))

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
	done := make(chan struct{}) // closed when the senders have ended
	g.Go(func() error {
		select {
		case <-lost:
			stopReading()
			cut(ErrOwnershipLost)
		case <-done:
		}
		return nil
	})
	settled, end := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return r.keepLanes(settled, stopReading) })
	g.Go(func() error {
		defer r.endQueues()
		defer stopReading()
		asking, stopAsking := r.asking(reading, hard)
		defer stopAsking()
		return r.read(reading, asking)
	})
	g.Go(func() error {
		defer r.settle.end()
		defer close(done)
		r.sendAll(reading, hard)
		return nil
	})
	g.Go(func() error {
		defer end()
		r.settle.run(hard)
		return nil
	})
	err = g.Wait()
	if errors.Is(context.Cause(hard), ErrOwnershipLost) {
		return ErrOwnershipLost
	}
	return err
}

// keepLanes takes part in sharing the lanes until everything is settled, so that what is in flight when the
// end comes stays this relay's until it has come down.
func (r *Relay) keepLanes(settled context.Context, stopReading func()) error {
	if r.o.Claim != ClaimLanes {
		return nil
	}
	defer stopReading()
	if err := r.o.Lanes.Run(settled, r.owner); err != nil {
		return fmt.Errorf("share the lanes: %w", err)
	}
	return nil
}

// sendAll runs the flows side by side.
func (r *Relay) sendAll(reading, hard context.Context) {
	var wg sync.WaitGroup
	for _, s := range r.send {
		wg.Go(func() { s.run(reading, hard) })
	}
	wg.Wait()
}

func (r *Relay) endQueues() {
	for _, s := range r.send {
		s.queue.end()
	}
}

// closeAll closes what would have been run.
func (r *Relay) closeAll(ctx context.Context) {
	for _, s := range r.o.Flows {
		_ = s.Close(ctx)
	}
	if r.o.Claim == ClaimLanes {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = r.o.Lanes.Run(ended, r.owner)
	}
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

// mostDoubts bounds the rows in doubt that are loaded. When the bound on closed keys is reached, what is in
// flight may still fail: a relay that stood there must be able to start again.
func (r *Relay) mostDoubts() int {
	return r.o.MaxBlockedKeys + r.budget.maxEvents + len(r.o.Flows)*newLate(r.o).maxEvents
}

// readDoubts lists the rows in doubt. More than the bound is a person's to solve.
func readDoubts(ctx context.Context, store Store, most int) ([]Doubt, error) {
	ds, err := store.Doubts(ctx, most+1)
	if err != nil {
		return nil, fmt.Errorf("read the events in doubt: %w", err)
	}
	if len(ds) > most {
		return nil, &SetupError{Kind: SetupConflict, Thing: "outbox",
			Reason: fmt.Sprintf("more than %d events are FAILED or DEAD and block their keys", most),
			Fix:    "retry or discard them (postrider events list --status DEAD), or set relay.retry.on_dead: skip"}
	}
	return ds, nil
}

// loadDoubts closes the gates of rows that were in doubt before.
func (r *Relay) loadDoubts(ctx context.Context) error {
	ds, err := readDoubts(ctx, r.o.Store, r.mostDoubts())
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.gate.load(ds)
	return nil
}

// read hands events to the senders until ctx ends or, with UntilDrained, nothing is left to do.
func (r *Relay) read(ctx, asking context.Context) error {
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
			r.o.Logger.Warn("events cannot be read, trying again", "error", err.Error())
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
		r.dispatch(evs)
		r.poller.rest(ctx)
	}
	return nil
}

// dispatch hands events to their flows. A key has one lane and a lane one flow, so a key keeps its order.
func (r *Relay) dispatch(evs []*Event) {
	if len(r.send) == 1 {
		r.send[0].queue.push(evs)
		return
	}
	shares := make([][]*Event, len(r.send))
	for _, e := range evs {
		flow := int(e.lane) % len(shares)
		shares[flow] = append(shares[flow], e)
	}
	for i, s := range r.send {
		s.queue.push(shares[i])
	}
}

// nothingLeft says whether nothing that was read before can lead to more work by itself.
func (r *Relay) nothingLeft() bool {
	return r.gate.quiet() && !r.settle.expects(time.Now()) && !r.owner.waiting()
}
