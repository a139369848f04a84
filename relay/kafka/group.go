package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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
	// refuse less than group.min.session.timeout.ms (6 s). With group.protocol: consumer the brokers' own
	// group.consumer.session.timeout.ms (45 s unless changed) takes its place.
	SessionTimeout time.Duration
	// Hooks hear of changes in the group. Defaults to none.
	Hooks GroupHooks
	// GiveTimeout bounds how long lanes that another relay is to have may be in flight. Defaults to 30 s.
	GiveTimeout time.Duration
}

// GroupHooks lets metrics hang on what happens in the group. They are called one after the other and must not block.
type GroupHooks interface {
	// Rebalanced is called when the group has begun to share its lanes out anew.
	Rebalanced()
	// TookOver is called when lanes are open, with the time since they were assigned to this relay.
	TookOver(lanes int, took time.Duration)
}

type noGroupHooks struct{}

func (noGroupHooks) Rebalanced()                 {}
func (noGroupHooks) TookOver(int, time.Duration) {}

func (o GroupOptions) withDefaults() GroupOptions {
	if o.Hooks == nil {
		o.Hooks = noGroupHooks{}
	}
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
	doubts chan struct{} // buffered 1: the control topic is to be looked at
	fatal  chan error    // buffered 1

	mu      sync.Mutex
	topicID [16]byte
	client  *kgo.Client // the member, once a callback has named it
	id      string
	gen     int32
	refused int32               // a generation that the broker has refused
	counted int32               // the last that was told of
	have    map[int32]time.Time // assigned, and when
	own     map[int32]bool      // taken over: open for transactions
	late    map[int32]bool      // taken over, and about to be open
	logs    map[int32]*laneLog  // of own
	lows    map[int32]string    // the last that is known
	changed chan struct{}       // closed, and made anew, with every change of the above
	undo    context.CancelFunc  // ends the opening under way
	wrote   map[int32]committed // what was committed last, outside of transactions
	fenced  map[string]bool     // runs that were fenced

	lists       uint64 // number of the last transaction that carried its progress
	recordsOnly bool   // brokers take too little metadata for it, or a late commit could hide a list
}

// NewGroup makes a relay's part in the group. Nothing connects before Run.
func NewGroup(cfg Config, opts Options, o GroupOptions) (*Group, error) {
	lend, err := NewSink(cfg, opts)
	if err != nil {
		return nil, err
	}
	g := &Group{
		o: o.withDefaults(), lend: lend, runID: newRun(o.Relay), topic: o.Name + ".postrider", log: lend.opts.Logger,
		calls: make(chan struct{}, 1), work: make(chan struct{}, 1), doubts: make(chan struct{}, 1), fatal: make(chan error, 1),
		gen: -1, refused: -1, have: map[int32]time.Time{}, own: map[int32]bool{}, late: map[int32]bool{},
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
	if ctx.Err() != nil {
		return nil
	}
	g.keeper = k
	for {
		if err := g.prepare(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if anew, err := g.takePart(ctx); !anew {
			return err
		}
		g.forget()
	}
}

// takePart is a member of the group until ctx ends, or it can be none. With anew set that is for the control topic, which
// was deleted.
func (g *Group) takePart(ctx context.Context) (anew bool, err error) {
	life, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	client, err := kgo.NewClient(append(append(g.lend.clientOptions(), g.memberOptions()...), kgo.WithContext(life))...)
	if err != nil {
		return false, fmt.Errorf("make the group's client: %w", err)
	}
	client.PauseFetchTopics(g.topic)
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	worker, watch := make(chan struct{}), make(chan bool, 1)
	go func() {
		defer close(worker)
		g.openAll(working)
	}()
	go func() { watch <- g.watchControl(working) }()
	select {
	case <-ctx.Done():
	case err = <-g.fatal:
	case anew = <-watch:
		watch <- anew
	}
	stop()
	<-worker
	<-watch
	if anew {
		g.surrender(ctx)
	}
	g.leave(ctx, client, cutOff)
	return anew && ctx.Err() == nil, err
}

// leave gives up membership. A rebalance under way may keep the client waiting as long as it likes, and Close with it:
// then its connections are cut, and the coordinator is told by another one.
func (g *Group) leave(ctx context.Context, client *kgo.Client, cutOff func()) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if client.LeaveGroupContext(leaving) != nil {
		id, _ := client.GroupMetadata()
		cutOff()
		g.leaveAs(context.WithoutCancel(ctx), id)
	}
	g.announceReturn(leaving)
	client.Close()
}

// leaveAs tells the coordinator that a member is gone. Else the others would wait for its session to end. Members that
// will be back under their group.instance.id do not leave, and those of the other protocol leave in another way.
func (g *Group) leaveAs(ctx context.Context, id string) {
	if cfg := &g.lend.cfg; id == "" || cfg.InstanceID != "" || cfg.consumerProtocol {
		return
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = g.topic, id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	if _, err := req.RequestWith(within, g.lend.current().Client); err != nil {
		g.log.Debug("the group was not told that this relay leaves", "error", err.Error())
	}
}

// announceReturn tells the brokers that a member with a group.instance.id will be back, so that it may return before its session
// is over. (With the classic protocol it just stops; with the other one the library leaves the id out when it tells
// them, and brokers do not take that.)
func (g *Group) announceReturn(ctx context.Context) {
	cfg := &g.lend.cfg
	g.mu.Lock()
	id := g.id
	g.mu.Unlock()
	if !cfg.consumerProtocol || cfg.InstanceID == "" || id == "" {
		return
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = g.topic, id, &cfg.InstanceID, -2
	if _, err := req.RequestWith(ctx, g.lend.current().Client); err != nil {
		g.log.Debug("the group was not told of the stop", "error", err.Error())
	}
}

func (g *Group) memberOptions() []kgo.Opt {
	cfg := &g.lend.cfg
	opts := []kgo.Opt{
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
	if cfg.consumerProtocol {
		// The library takes the brokers for balancers with this one only, and the classic protocol in silence otherwise.
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if cfg.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(cfg.InstanceID))
	}
	return opts
}
