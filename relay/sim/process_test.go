//go:build synctests

package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
	"github.com/postrider/postrider/relay/sqlite"
)

// process is one life of a relay.
type process struct {
	w     *world
	name  string
	link  *link
	store *store
	relay *relay.Relay
	stop  context.CancelFunc
	done  chan struct{}
	err   error // of Run; to be read after done

	reads map[int32]bool // lanes; guarded by w.mu
}

const outboxName = "orders"

// open starts a relay as package app does.
func (w *world) open(slot, life int) *process {
	relayName := fmt.Sprintf("relay-%d", slot)
	p := &process{w: w, name: fmt.Sprintf("%s.%d", relayName, life), done: make(chan struct{})}
	p.link = newLink(w, p.name)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	defaults := config.Default()
	inner, err := sqlite.Open(ctx, relay.StoreOptions{
		URL: "sqlite:" + w.path, Name: outboxName, Relay: relayName, Table: defaults.Table(), Claim: relay.ClaimLanes, Lanes: w.lanes, OnDead: w.onDead,
	})
	require.NoError(w.t, err)
	p.store = newStore(p, inner)
	o := relay.Options{
		Name: relayName, Store: p.store, Claim: relay.ClaimLanes, LaneCount: w.lanes, OnDead: w.onDead,
		Retry: relay.Backoff{Initial: time.Second, Max: 4 * time.Second, MaxAttempts: w.attempts},
		Batch: w.batch, DrainTimeout: w.drain, Hooks: hooks{p}, Logger: w.log.logger(p.name),
	}
	if w.deadTopic {
		o.DeadLetterTopic = deadTopic
	}
	p.connect(ctx, inner, &o)
	p.relay = relay.New(o)
	w.log.add(p.name, "starts")
	go func() {
		defer close(p.done)
		p.err = p.relay.Run(ctx)
		w.log.add(p.name, "has ended", p.err)
	}()
	return p
}

// connect gives the relay its way to Kafka.
func (p *process) connect(ctx context.Context, inner *sqlite.Store, o *relay.Options) {
	w := p.w
	seeds := make([]string, w.brokers)
	for i := range seeds {
		seeds[i] = brokerAddress(i)
	}
	cfg, problems, _ := kafka.Parse(map[string]string{"bootstrap.servers": strings.Join(seeds, ","), "request.timeout.ms": "4000"})
	require.Empty(w.t, problems)
	ko := kafka.Options{Logger: o.Logger, Dial: p.link.dial}
	table, err := inner.Identity(ctx)
	require.NoError(w.t, err)
	g := kafka.GroupOptions{Name: outboxName, Relay: o.Name, Table: table, Lanes: w.lanes, SessionTimeout: w.session, GiveTimeout: w.drain}
	if !w.atLeastOnce {
		g.Flows = w.flows
	}
	group, err := kafka.NewGroup(cfg, ko, g)
	require.NoError(w.t, err)
	o.Lanes = group
	for i := range w.flows {
		var flow relay.Sink
		if w.atLeastOnce {
			flow, err = kafka.NewSink(cfg, ko)
		} else {
			flow, err = kafka.NewTransactions(cfg, ko, group, i)
		}
		require.NoError(w.t, err)
		o.Flows = append(o.Flows, flow)
	}
}

// kill takes the process away: its connections vanish, and whatever it still does, nobody hears of it.
func (p *process) kill() {
	p.w.log.add(p.name, "KILLED")
	p.link.kill()
	p.store.kill()
	p.stop()
	p.w.rest.Go(func() { <-p.done })
}

// end stops the process cleanly.
func (p *process) end() {
	w := p.w
	w.log.add(p.name, "is stopped")
	began := time.Now()
	p.stop()
	limit := w.drain + 30*time.Second
	select {
	case <-p.done:
	case <-time.After(limit):
		w.fail("%s did not end within %s of its stop: %+v", p.name, limit, p.relay.Status())
		p.kill()
		return
	}
	if p.err != nil {
		w.fail("%s: a clean stop ended with an error: %v", p.name, p.err)
	}
	if took := time.Since(began); took > 4*time.Second && w.isOver() {
		w.fail("P7: %s took %s to stop with nothing to do", p.name, took)
	}
}

// pause lets the process stand still.
func (p *process) pause(d time.Duration) {
	p.w.log.add(p.name, "stands still", d)
	p.link.pause(d)
}

// idle lets the process work. It may end only when it is told to.
func (p *process) idle(d time.Duration) {
	select {
	case <-p.done:
		p.w.fail("%s: Run ended by itself: %v", p.name, p.err)
	case <-time.After(max(0, d)):
	}
}

// slot runs relay after relay in one place until the span is over, and returns the last, which runs.
func (w *world) slot(slot int) *process {
	for life := 0; ; life++ {
		d := w.draw("life", slot, life)
		p := w.open(slot, life)
		left := func() time.Duration { return w.span - w.now() }
		for w.pauses > 0 && left() > 0 {
			next := d.after(w.pauses)
			if next >= left() || next >= d.after(w.kills+w.stops) {
				break
			}
			p.idle(next)
			p.pause(min(d.upTo(2*w.session), left()))
		}
		ends := d.after(w.kills + w.stops)
		if ends >= left() {
			p.idle(left())
			return p
		}
		p.idle(ends)
		if d.Float64()*(w.kills+w.stops) < w.kills {
			p.kill()
		} else {
			p.end()
		}
		time.Sleep(min(d.upTo(10*time.Second), max(0, left())))
	}
}

// hooks listens to a relay.
type hooks struct{ p *process }

func (hooks) Sent(*relay.Event, relay.Receipt, time.Duration, time.Duration) {}
func (hooks) Lost(int)                                                       {}
func (hooks) Fenced(int)                                                     {}
func (hooks) Reclaimed(int)                                                  {}
func (hooks) LanesOwned(int)                                                 {}

func (h hooks) Failed(e *relay.Event, f *relay.Failure, next relay.State) {
	h.p.w.log.add(h.p.name, "failed", e.ID, f.Class, f.Code, next)
	if next == relay.StateDead {
		h.p.w.mu.Lock()
		defer h.p.w.mu.Unlock()
		h.p.w.wasDead[e.ID] = true
	}
}
