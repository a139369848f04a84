//go:build synctests

package sim

import (
	"context"
	"fmt"
	"sync"
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
	slot  int
	name  string
	link  *link
	store *store
	relay *relay.Relay
	stop  context.CancelFunc
	done  chan struct{}
	err   error // of Run; to be read after done

	mu    sync.Mutex
	lanes int // that are its own
}

const outboxName = "orders"

// open starts a relay as package app does.
func (w *world) open(slot, life int) *process {
	p := &process{w: w, slot: slot, name: fmt.Sprintf("relay-%d.%d", slot, life), done: make(chan struct{})}
	p.link = newLink(w, p.name)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	defaults := config.Default()
	inner, err := sqlite.Open(ctx, relay.StoreOptions{
		URL: "sqlite:" + w.path, Name: outboxName, Relay: p.name, Table: defaults.Table(), Claim: relay.ClaimLanes, Lanes: w.lanes,
	})
	require.NoError(w.t, err)
	p.store = newStore(p, inner)
	o := relay.Options{
		Name: p.name, Store: p.store, Claim: relay.ClaimLanes, LaneCount: w.lanes,
		Retry: relay.Backoff{Initial: time.Second, Max: 4 * time.Second, MaxAttempts: w.attempts},
		Batch: w.batch, DrainTimeout: w.drain, Hooks: hooks{p}, Logger: w.log.logger(p.name),
	}
	p.connect(ctx, inner, &o)
	p.relay = relay.New(o)
	w.mu.Lock()
	w.alive[p] = true
	w.mu.Unlock()
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
	seeds := "localhost:9092"
	for i := 1; i < w.brokers; i++ {
		seeds += fmt.Sprintf(",localhost:%d", 9092+i)
	}
	cfg, problems, _ := kafka.Parse(map[string]string{"bootstrap.servers": seeds})
	require.Empty(w.t, problems)
	ko := kafka.Options{Logger: o.Logger, Dial: p.link.dial}
	table, err := inner.Identity(ctx)
	require.NoError(w.t, err)
	group, err := kafka.NewGroup(cfg, ko, kafka.GroupOptions{Name: outboxName, Relay: p.name, Table: table, Lanes: w.lanes,
		Flows: w.flows, SessionTimeout: w.session, GiveTimeout: w.drain})
	require.NoError(w.t, err)
	o.Lanes = group
	for i := range w.flows {
		flow, err := kafka.NewTransactions(cfg, ko, group, i)
		require.NoError(w.t, err)
		o.Flows = append(o.Flows, flow)
	}
}

// kill takes the process away: its connections vanish, and whatever it still does, nobody hears of it.
func (p *process) kill() {
	w := p.w
	w.log.add(p.name, "KILLED")
	w.mu.Lock()
	delete(w.alive, p)
	w.mu.Unlock()
	p.link.kill()
	p.store.kill()
	p.stop()
	w.rest.Go(func() { <-p.done })
}

// end stops the process cleanly.
func (p *process) end() {
	w := p.w
	w.log.add(p.name, "is stopped")
	p.stop()
	limit := w.drain + 15*time.Second
	select {
	case <-p.done:
	case <-time.After(limit):
		w.fail("%s did not end within %s of its stop: %+v", p.name, limit, p.relay.Status())
		p.kill()
		return
	}
	w.mu.Lock()
	delete(w.alive, p)
	w.mu.Unlock()
	if p.err != nil {
		w.fail("%s: a clean stop ended with an error: %v", p.name, p.err)
	}
}

// idle lets the process work. It may end only when it is told to.
func (p *process) idle(d time.Duration) {
	select {
	case <-p.done:
		p.w.fail("%s: Run ended by itself: %v", p.name, p.err)
	case <-time.After(max(0, d)):
	}
}

// slot runs relay after relay in one place until the faults are over, and returns the last, which runs.
func (w *world) slot(slot int) *process {
	for life := 0; ; life++ {
		r := w.draw("life", slot, life)
		p := w.open(slot, life)
		rest := w.span - w.now()
		ends := time.Duration(r.ExpFloat64() / w.kills * float64(time.Minute))
		if w.kills == 0 || ends >= rest {
			p.idle(rest)
			return p
		}
		p.idle(ends)
		p.kill()
		time.Sleep(upTo(r, 10*time.Second))
	}
}

// hooks listens to a relay.
type hooks struct{ p *process }

func (hooks) Sent(*relay.Event, relay.Receipt, time.Duration, time.Duration) {}
func (hooks) Failed(*relay.Event, *relay.Failure, relay.State)               {}
func (hooks) Lost(int)                                                       {}
func (hooks) Fenced(int)                                                     {}
func (hooks) Reclaimed(int)                                                  {}

func (h hooks) LanesOwned(n int) {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.p.lanes = n
}
