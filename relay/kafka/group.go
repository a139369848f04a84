package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

var _ relay.Lanes = (*Group)(nil)

// GroupOptions is what a Group is made of. Name, Table and Lanes are required.
type GroupOptions struct {
	Name  string // outbox.name: the group and the control topic are Name + ".postrider"
	Relay string // relay.name
	Table string // names database and table; relays on another table are refused
	Lanes int32  // partitions of the control topic
	// Flows is how many flows send in transactions; 0 for at-least-once.
	Flows int
	// Replication of the control topic when it is made; 0 leaves it to the cluster.
	Replication int16
	// SessionTimeout is how long the group waits for a relay that is silent. Defaults to 10 s; brokers
	// refuse less than group.min.session.timeout.ms (6 s).
	SessionTimeout time.Duration
	// GiveTimeout bounds how long lanes that another relay is to have may be in flight. Defaults to 30 s.
	GiveTimeout time.Duration
}

func (o GroupOptions) withDefaults() GroupOptions {
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = 10 * time.Second
	}
	if o.GiveTimeout <= 0 {
		o.GiveTimeout = 30 * time.Second
	}
	return o
}

// heartbeat is how often a relay tells that it is there, and hears that lanes are to move.
const heartbeat = 400 * time.Millisecond

// Group shares lanes through a Kafka consumer group on the control topic, whose partitions are the lanes.
// Records of that topic are never consumed by way of the group: membership is all that is wanted of it.
//
// The broker checks that whoever commits offsets is a member at the current generation. It does not check that
// the member owns the partition. So the generation that a transaction commits with must be one under which the
// lane was this relay's, and the only moments that tell are the callbacks: between them the client may
// already have joined anew, under another member id even, while lanes of ours went to others and came back.
// Membership is therefore noted in callbacks alone (turn), and a new member id means that every lane was lost.
type Group struct {
	o      GroupOptions
	lend   *Sink // lends its settings, and its client for single requests
	runID  string
	topic  string
	log    *slog.Logger
	keeper relay.LaneKeeper
	calls  chan struct{} // holds a token while keeper is called
	work   chan struct{} // buffered 1: lanes are to be opened
	fatal  chan error    // buffered 1

	mu      sync.Mutex
	topicID [16]byte
	id      string
	gen     int32
	refused int32               // a generation that the broker has refused
	have    map[int32]bool      // assigned
	own     map[int32]bool      // taken over: open for transactions
	late    map[int32]bool      // taken over, and about to be open
	logs    map[int32]*laneLog  // of own
	lows    map[int32]string    // the last that is known
	changed chan struct{}       // closed, and made anew, with every change of the above
	undo    context.CancelFunc  // ends the opening under way
	wrote   map[int32]committed // what was committed last, outside of transactions
	fenced  map[string]bool     // runs that were fenced
}

// NewGroup makes a relay's part in the group. Nothing connects before Run.
func NewGroup(cfg Config, opts Options, o GroupOptions) (*Group, error) {
	lend, err := NewSink(cfg, opts)
	if err != nil {
		return nil, err
	}
	g := &Group{
		o: o.withDefaults(), lend: lend, runID: newRun(o.Relay), topic: o.Name + ".postrider", log: lend.opts.Logger,
		calls: make(chan struct{}, 1), work: make(chan struct{}, 1), fatal: make(chan error, 1),
		gen: -1, refused: -1, have: map[int32]bool{}, own: map[int32]bool{}, late: map[int32]bool{},
		logs: map[int32]*laneLog{}, lows: map[int32]string{}, changed: make(chan struct{}),
		wrote: map[int32]committed{}, fenced: map[string]bool{},
	}
	return g, nil
}

// Close ends a Group whose Run was never called; Run closes it itself.
func (g *Group) Close(ctx context.Context) error { return g.lend.Close(ctx) }

// newRun names this run: the relay's name and a number that no other run has.
func newRun(name string) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return strings.NewReplacer("/", "_", " ", "_").Replace(name) + "-" + hex.EncodeToString(b[:])
}

// relayOf is the relay's name in that of a run.
func relayOf(run string) string {
	if i := strings.LastIndexByte(run, '-'); i > 0 {
		return run[:i]
	}
	return run
}

// Run implements relay.Lanes.
func (g *Group) Run(ctx context.Context, k relay.LaneKeeper) error {
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = g.lend.Close(closing)
	}()
	g.keeper = k
	if err := g.prepare(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	client, err := kgo.NewClient(append(g.lend.clientOptions(), g.memberOptions()...)...)
	if err != nil {
		return fmt.Errorf("make the group's client: %w", err)
	}
	client.PauseFetchTopics(g.topic)
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	worker := make(chan struct{})
	go func() {
		defer close(worker)
		g.openAll(working)
	}()
	select {
	case <-ctx.Done():
	case err = <-g.fatal:
	}
	stop()
	<-worker
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = client.LeaveGroupContext(leaving)
	client.Close()
	return err
}

func (g *Group) memberOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.ClientID(g.runID),
		kgo.ConsumerGroup(g.topic),
		kgo.ConsumeTopics(g.topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(g.o.SessionTimeout),
		kgo.RebalanceTimeout(g.o.GiveTimeout + 10*time.Second),
		kgo.HeartbeatInterval(min(heartbeat, g.o.SessionTimeout/4)),
		// A coordinator that is silent must be noticed before the session is over.
		kgo.RequestTimeoutOverhead(g.o.SessionTimeout / 4),
		kgo.OnPartitionsAssigned(func(_ context.Context, c *kgo.Client, m map[string][]int32) { g.assigned(c, m[g.topic]) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, m map[string][]int32) { g.revoked(ctx, c, m[g.topic]) }),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) { g.lost() }),
		kgo.WithHooks(manageHook{g}),
	}
}

// manageHook hears of errors that no callback tells of.
type manageHook struct{ g *Group }

// OnGroupManageError ends Run when the error is one that waiting does not cure.
func (h manageHook) OnGroupManageError(err error) {
	var e *kerr.Error
	if !errors.As(err, &e) || e.Retriable || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) {
		h.g.log.Debug("the group's management starts over", "error", err.Error())
		return
	}
	h.g.fail(h.g.setup(e))
}

func (g *Group) fail(err error) {
	select {
	case g.fatal <- err:
	default:
	}
}

// turn notes the membership under which a callback runs. When the member id is a new one, every lane was
// lost in between, whatever the callback is called: they are returned. g.mu is held.
func (g *Group) turn(c *kgo.Client) (lost []int32) {
	id, gen := c.GroupMetadata()
	if g.id != "" && id != g.id {
		lost = sorted(g.own)
		clear(g.own)
		clear(g.late)
		g.cancelOpening()
	}
	if id != g.id || gen != g.gen {
		g.refused = -1
	}
	g.id, g.gen = id, gen
	g.notify()
	return lost
}

// notify is called with g.mu held.
func (g *Group) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// cancelOpening is called with g.mu held.
func (g *Group) cancelOpening() {
	if g.undo != nil {
		g.undo()
	}
}

func (g *Group) assigned(c *kgo.Client, added []int32) {
	g.mu.Lock()
	lost := g.turn(c)
	for _, lane := range added {
		g.have[lane] = true
	}
	g.mu.Unlock()
	g.lose(lost)
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// revoked gives lanes up. It may take its time: the member goes on telling that it is there.
func (g *Group) revoked(ctx context.Context, c *kgo.Client, lanes []int32) {
	g.mu.Lock()
	lost := g.turn(c)
	var give []int32
	for _, lane := range lanes {
		delete(g.have, lane)
		if g.own[lane] {
			give = append(give, lane)
		}
	}
	if len(lanes) > 0 {
		g.cancelOpening()
	}
	slices.Sort(give)
	g.mu.Unlock()
	g.lose(lost)
	if len(give) > 0 {
		g.give(ctx, give)
	}
}

func (g *Group) give(ctx context.Context, lanes []int32) {
	g.keepLows(lanes)
	within, cancel := context.WithTimeout(ctx, g.o.GiveTimeout)
	defer cancel()
	g.calls <- struct{}{}
	g.keeper.Give(within, lanes)
	<-g.calls
	g.commitOffsets(within, lanes)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		delete(g.own, lane)
		delete(g.logs, lane)
		delete(g.wrote, lane)
	}
	g.notify()
}

func (g *Group) lost() {
	g.mu.Lock()
	lost := sorted(g.own)
	clear(g.own)
	clear(g.late)
	clear(g.have)
	g.id, g.gen = "", -1
	g.cancelOpening()
	g.notify()
	g.mu.Unlock()
	g.lose(lost)
}

func (g *Group) lose(lanes []int32) {
	if len(lanes) == 0 {
		return
	}
	g.calls <- struct{}{}
	g.keeper.Lose(lanes)
	<-g.calls
}

func sorted(set map[int32]bool) []int32 { return slices.Sorted(maps.Keys(set)) }

// openAll opens lanes as they are assigned, and notes offsets now and then, until ctx ends.
func (g *Group) openAll(ctx context.Context) {
	const every = 5 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	pause := firstPause
	for ctx.Err() == nil {
		again := false
		attempt, lanes, m := g.nextOpening(ctx)
		if len(lanes) > 0 {
			if err := g.open(attempt, lanes, m); err != nil && attempt.Err() == nil {
				g.log.Warn("lanes could not be taken over, trying again", "lanes", lanes, "error", err.Error())
				again = true
			}
			again = again || attempt.Err() != nil
		}
		g.endOpening()
		if !again {
			pause = firstPause
			select {
			case <-ctx.Done():
			case <-g.work:
			case <-tick.C:
				g.mu.Lock()
				own := sorted(g.own)
				g.mu.Unlock()
				g.keepLows(own)
				g.commitOffsets(ctx, own)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-g.work:
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// Pauses between attempts to take lanes over.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 3 * time.Second
)

// nextOpening says which lanes are assigned and not open, under which membership.
func (g *Group) nextOpening(ctx context.Context) (attempt context.Context, lanes []int32, m member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane := range g.have {
		if !g.own[lane] {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	attempt, g.undo = context.WithCancel(ctx)
	return attempt, lanes, member{group: g.topic, id: g.id, generation: g.gen}
}

func (g *Group) endOpening() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undo()
	g.undo = nil
}

// open takes lanes over: what earlier owners had open is ended, what they had sent is marked, the lanes are
// read, and this relay is noted as their owner.
func (g *Group) open(ctx context.Context, lanes []int32, m member) error {
	taken, ends, err := g.barrier(ctx, lanes)
	if err != nil {
		return err
	}
	g.calls <- struct{}{}
	err = g.keeper.Take(ctx, taken)
	<-g.calls
	if err != nil {
		return err
	}
	g.mu.Lock()
	for i, lane := range lanes {
		g.logs[lane] = &laneLog{next: ends[i]}
		g.lows[lane] = taken[i].Low
		g.late[lane] = true
	}
	g.mu.Unlock()
	g.keepLows(lanes)
	err = g.noteOwner(ctx, lanes, m)
	g.mu.Lock()
	var gone []int32
	for _, lane := range lanes {
		delete(g.late, lane)
		if err == nil && g.have[lane] && g.id == m.id {
			g.own[lane] = true
		} else {
			gone = append(gone, lane)
		}
	}
	g.notify()
	g.mu.Unlock()
	g.lose(gone)
	return err
}
