package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// rig is a table, a cluster and the options of the relays that a test starts on them, in virtual time.
type rig struct {
	*testing.T
	db    *relaytest.FakeDB
	kafka *relaytest.FakeKafka
	store relaytest.FakeStoreOptions
	sink  relaytest.FakeSinkOptions
	opts  relay.Options
	log   safeBuffer
	seen  counter
	start time.Time
	lives int

	relays int  // that runAll starts
	exact  bool // with lanes: in transactions
	group  *relaytest.FakeGroup
}

// rigSession is how long the group of a rig waits for a relay that is silent.
const rigSession = 6 * time.Second

func newRig(t *testing.T, partitions int32) *rig {
	r := &rig{T: t, db: relaytest.NewFakeDB(), kafka: relaytest.NewFakeKafka(partitions), start: time.Now()}
	r.store.Name = "outbox"
	r.opts = relay.Options{Hooks: &r.seen, Logger: slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	return r
}

// share lets the relays of a rig share lanes, at least once or in transactions.
func (r *rig) share(relays int, exact bool) {
	const lanes = 8
	r.relays, r.exact, r.store.Cursor = relays, exact, true
	r.opts.Claim, r.opts.LaneCount, r.store.Lanes = relay.ClaimLanes, lanes, lanes
	r.group = relaytest.NewFakeGroup(r.kafka, lanes, rigSession, 10*time.Second)
}

// life is one relay of a rig.
type life struct {
	*relay.Relay
	store  *relaytest.FakeStore
	sinks  []producer
	member *relaytest.FakeMember // with lanes
	stop   context.CancelFunc
	done   chan error
}

// runAll starts as many relays as the rig has, and lets them share their lanes.
func (r *rig) runAll() (ls []*life) {
	for range max(1, r.relays) {
		ls = append(ls, r.run())
	}
	if r.group != nil {
		time.Sleep(time.Second)
	}
	return ls
}

func (r *rig) run() *life {
	r.lives++
	o, so := r.opts, r.store
	so.Relay = fmt.Sprintf("relay-%d", r.lives)
	so.OnDead, so.Claim = o.OnDead, o.Claim
	l := &life{store: r.db.Open(so), done: make(chan error, 1)}
	o.Store = l.store
	l.produce(r, &o)
	l.Relay = relay.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.done <- l.Run(ctx)
	}()
	r.Cleanup(func() { // for tests that fail: a bubble does not end while a relay runs
		l.die()
		<-ended
	})
	return l
}

// produce gives the relay its ways to Kafka.
func (l *life) produce(r *rig, o *relay.Options) {
	if r.group == nil {
		sink := r.kafka.Sink(r.sink)
		l.sinks, o.Sink = []producer{sink}, sink
		return
	}
	l.member = r.group.Member()
	o.Lanes = l.member
	for range 2 {
		var sink producer = r.kafka.Sink(r.sink)
		if r.exact {
			sink = l.member.Transactions(r.sink, nil)
		}
		l.sinks, o.Flows = append(l.sinks, sink), append(o.Flows, sink)
	}
}

// die ends a relay as the death of its process does.
func (l *life) die() {
	if l.member != nil {
		l.member.Kill()
	}
	l.store.Kill()
	for _, s := range l.sinks {
		s.Kill()
	}
	l.stop()
}

// end stops relays and holds that they end well.
func (r *rig) end(ls ...*life) {
	r.Helper()
	for _, l := range ls {
		l.stop()
	}
	for _, l := range ls {
		require.NoError(r, <-l.done)
	}
}

func (r *rig) kill(ls ...*life) {
	for _, l := range ls {
		l.die()
	}
	for _, l := range ls {
		<-l.done
	}
}

// blocked counts the closed gates of relays.
func blocked(ls []*life) (n int) {
	for _, l := range ls {
		n += l.Status().BlockedKeys
	}
	return n
}

// idle holds that relays with nothing to do hold nothing.
func (r *rig) idle(ls ...*life) {
	r.Helper()
	for _, l := range ls {
		require.Empty(r, relay.Leftovers(l.Relay))
	}
}

// commit writes events in one transaction. Ids are taken from the list; the key is what stands before
// the first dash.
func (r *rig) commit(ids ...string) {
	tx := r.db.Begin()
	for _, id := range ids {
		tx.Insert(r.row(id))
	}
	tx.Commit()
}

func (r *rig) row(id string) relaytest.NewRow {
	key, _, _ := bytes.Cut([]byte(id), []byte("-"))
	return relaytest.NewRow{EventID: id, AggregateID: string(key), Topic: "t", Payload: []byte(`{"secret":"payload"}`)}
}

func (r *rig) state(id string) relaytest.FakeRow {
	r.Helper()
	row, there := r.db.Row(id)
	require.True(r, there, id)
	return row
}

// arrived lists the ids in a topic, each partition's in order, one partition after the other.
func (r *rig) arrived(topic string) (ids []string) {
	for _, p := range r.kafka.Records(topic) {
		for _, rec := range p {
			ids = append(ids, rec.Header("event_id"))
		}
	}
	return ids
}

// ofKey lists the ids of a key in a topic, in the order of their arrival. A key has one partition.
func (r *rig) ofKey(topic, key string) (ids []string) {
	for _, id := range r.arrived(topic) {
		if of, _, _ := strings.Cut(id, "-"); of == key {
			ids = append(ids, id)
		}
	}
	return ids
}

// at is when an event arrived first, since the start; negative when it has not.
func (r *rig) at(topic, id string) time.Duration {
	for _, p := range r.kafka.Records(topic) {
		for _, rec := range p {
			if rec.Header("event_id") == id {
				return rec.At.Sub(r.start)
			}
		}
	}
	return -1
}

func (r *rig) retry(ids ...string) {
	_, _, err := r.db.Open(relaytest.FakeStoreOptions{}).Retry(context.Background(), relay.Filter{EventIDs: ids}, false)
	require.NoError(r, err)
}

func (r *rig) discard(ids ...string) {
	_, _, err := r.db.Open(relaytest.FakeStoreOptions{}).Discard(context.Background(), relay.Filter{EventIDs: ids}, "by hand", false)
	require.NoError(r, err)
}

// refuse makes the sink refuse events by id while the function says so.
func (r *rig) refuse(f func(id string) *relay.Failure) {
	r.sink.Answer = func(rec *relay.Record, _ int32) *relay.Failure { return f(eventID(rec)) }
}

func retriable() *relay.Failure {
	return &relay.Failure{Class: relay.ClassRetriable, Code: "INVALID_RECORD", Text: "not now"}
}

func permanent() *relay.Failure {
	return &relay.Failure{Class: relay.ClassPermanent, Code: "MESSAGE_TOO_LARGE", Text: "too large"}
}

func unavailable() *relay.Failure {
	return &relay.Failure{Class: relay.ClassUnavailable, Code: "NOT_ENOUGH_REPLICAS", Text: "outage"}
}

// silentUntil is a Silence of one topic ("" for all) until a moment after the rig's start.
func (r *rig) silentUntil(topic string, end time.Duration) func(string, int32) time.Duration {
	return func(at string, _ int32) time.Duration {
		if topic != "" && at != topic {
			return 0
		}
		return end - time.Since(r.start)
	}
}

// counter counts what the hooks tell.
type counter struct {
	mu                    sync.Mutex
	sent, lost, reclaimed int
	failed                map[string]int // by event, class and what it became
}

func (c *counter) Sent(*relay.Event, relay.Receipt, time.Duration, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
}

func (c *counter) Failed(e *relay.Event, f *relay.Failure, next relay.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = map[string]int{}
	}
	c.failed[fmt.Sprintf("%s %s %s", e.ID, f.Class, next)]++
}

func (c *counter) Lost(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += n
}

func (c *counter) LanesOwned(int) {}

func (c *counter) Fenced(int) {}

func (c *counter) Reclaimed(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reclaimed += n
}

func (c *counter) count(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func many(prefix string, n int, keys ...string) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%s%04d", keys[i%len(keys)], prefix, i)
	}
	return ids
}
