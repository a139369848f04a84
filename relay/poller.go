package relay

import (
	"context"
	"log/slog"
	"time"
)

// minIdle is the shortest pause after a read that did not fill its batch. Under load the table is
// asked every few milliseconds; each empty answer doubles the pause up to the poll interval.
const minIdle = 2 * time.Millisecond

// headCheck is how often rows that hold their key for a person's act are looked at again, and how
// many of them at once.
const (
	headCheckEvery = 2 * time.Second
	headCheckRows  = 1000
)

// poller turns a Store into a stream of batches: no pause while there is work, a growing one when idle.
type poller struct {
	store    Store
	owner    *owner
	gate     *gate
	interval time.Duration // longest idle pause
	maxKeys  int           // closed keys from which new events are no longer read
	log      *slog.Logger
	hooks    Hooks

	wake      chan struct{} // buffered 1
	reads     uint64
	idle      time.Duration
	more      bool
	headsAt   time.Time
	overLimit bool
	swept     int64 // what the Store's sweeps had found
	trouble   pause
}

func newPoller(o Options, w *owner, g *gate, wake chan struct{}) *poller {
	return &poller{
		store: o.Store, owner: w, gate: g, interval: o.PollInterval, maxKeys: o.MaxBlockedKeys,
		log: o.Logger, hooks: o.Hooks, wake: wake, more: true,
		trouble: pause{first: 100 * time.Millisecond, longest: 3 * time.Second},
	}
}

// read asks once. It returns no events when nothing is due.
func (p *poller) read(ctx context.Context, limit int, maxBytes int64) ([]*Event, error) {
	now := time.Now()
	p.gate.expire(now)
	if p.owner.idle() {
		p.more = false
		return nil, nil
	}
	if err := p.checkHeads(ctx, now); err != nil {
		return nil, err
	}
	f := Fetch{Limit: limit, MaxBytes: maxBytes, HeadsOnly: p.tooMany()}
	got, evs, err := p.fetch(ctx, f, now)
	if err != nil {
		return nil, err
	}
	p.trouble.reset()
	if got.Reclaimed > 0 {
		p.log.Warn("took over rows whose claim had expired", "rows", got.Reclaimed)
		p.hooks.Reclaimed(got.Reclaimed)
	}
	p.more = got.More
	if len(evs) > 0 {
		p.idle = 0
	}
	return evs, nil
}

// fetch asks the Store. The lanes do not change before what it returned is known to be busy.
func (p *poller) fetch(ctx context.Context, f Fetch, now time.Time) (got Fetched, evs []*Event, err error) {
	p.owner.reading <- struct{}{}
	defer func() { <-p.owner.reading }()
	if err := p.owner.sync(ctx); err != nil {
		return got, nil, err
	}
	p.gate.snapshot(&f)
	got, err = p.store.Fetch(ctx, f)
	if err != nil {
		p.gate.restore(f.Reopened)
		return got, nil, err
	}
	evs = make([]*Event, 0, len(got.Events))
	for i := range got.Events {
		e := &got.Events[i]
		p.reads++
		e.read, e.readAt = p.reads, now
		p.owner.place(e)
		if p.owner.has(e) {
			evs = append(evs, e)
		}
	}
	p.gate.take(evs)
	return got, evs, nil
}

// sweeper is a Store that looks, slowly, for events that reading has missed.
type sweeper interface{ SweepFound() int64 }

// noteSwept tells of events that should have been read long before.
func (p *poller) noteSwept() {
	s, ok := p.store.(sweeper)
	if !ok {
		return
	}
	if found := s.SweepFound(); found > p.swept {
		p.log.Error("a sweep of the table found events that reading had missed, they are sent now",
			"events", found-p.swept, "hint", "unless a person made rows NEW by SQL this is a bug of the relay: please report it")
		p.swept = found
	}
}

// rest waits until the next read makes sense: at once after a full batch, else for a pause that grows
// while the table is idle, or until woken.
func (p *poller) rest(ctx context.Context) {
	if p.more {
		return
	}
	p.idle = min(max(p.idle*2, minIdle), p.interval)
	p.sleep(ctx, p.idle)
}

// backOff waits after the database did not answer.
func (p *poller) backOff(ctx context.Context) {
	p.sleep(ctx, p.trouble.next())
}

func (p *poller) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-p.wake:
		p.idle = 0
	}
}

// checkHeads asks now and then whether rows that hold their key still do: a person may have
// discarded, deleted or repaired them.
func (p *poller) checkHeads(ctx context.Context, now time.Time) error {
	if now.Sub(p.headsAt) < headCheckEvery && !p.gate.mustAsk() {
		return nil
	}
	held := p.gate.held(headCheckRows)
	if len(held) > 0 {
		still, err := p.store.StillBlocking(ctx, held)
		if err != nil {
			return err
		}
		p.gate.answer(held, still)
	}
	p.noteSwept()
	p.headsAt = now
	return nil
}

// tooMany says, and logs once, that the bound on closed keys is reached: then only their heads are
// retried until some open again.
func (p *poller) tooMany() bool {
	over := p.gate.size() >= p.maxKeys
	if over && !p.overLimit {
		p.log.Error("too many keys are blocked by events in doubt; new events wait",
			"blocked_keys", p.maxKeys, "hint", "see postrider events list --status FAILED,DEAD; retry or discard them, or set relay.retry.on_dead: skip")
	}
	p.overLimit = over
	return over
}
