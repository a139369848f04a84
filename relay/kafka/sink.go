// Package kafka brings records to Kafka. It owns the client, its settings under the names the Java
// client knows, what the relay must know of topics, and the account of every error. It refuses to know
// events, tables and configuration files: records come in, receipts and failures go out.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

var _ relay.Sink = (*Sink)(nil)

// Options is what a Sink may be told beside its Config. The zero value works.
type Options struct {
	// Patience is how long Write waits for a partition that does not answer, and for topics to be
	// looked up. Write takes at most five times as long, answers or not. Defaults to 1 s.
	Patience time.Duration
	// UnknownTopicGrace is the Grace of failures for topics that do not exist. Defaults to 1 minute;
	// negative for none.
	UnknownTopicGrace time.Duration
	// TopicTTL is how long knowledge of a topic is good for without cause to doubt it. Defaults to 30 s.
	TopicTTL time.Duration
	// CreateTopics lets the sink create topics that are missing. The zero value creates none.
	CreateTopics CreateTopics
	// Logger takes what the sink does on its own. Nil discards it.
	Logger *slog.Logger
	// Dial replaces the network, for brokers in the same process and for tests. It is called with a
	// context that bounds the attempt.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// CreateTopics says how topics are created. A field that is 0 beside one that is not leaves the number
// to the broker.
type CreateTopics struct {
	Partitions        int32
	ReplicationFactor int16
}

func (o Options) withDefaults() Options {
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	if o.UnknownTopicGrace == 0 {
		o.UnknownTopicGrace = defaultGrace
	}
	o.UnknownTopicGrace = max(0, o.UnknownTopicGrace)
	if o.TopicTTL <= 0 {
		o.TopicTTL = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Sink is a relay.Sink that writes to a Kafka cluster with an idempotent producer and acks=all.
//
// A record is reported as acknowledged only when all in-sync replicas have it. While the cluster does
// not answer, records stay with the sink, unreported, for as long as it takes; no partition takes new
// records until its old ones are answered. Order and holding back go by topic and key.
type Sink struct {
	cfg     Config
	opts    Options
	topics  *topics
	trouble trouble
	settle  func(*kgo.Record, error) // s.settled, bound once

	turn chan struct{} // holds one token while a Write runs
	stop chan struct{} // closed when Close begins

	mu      sync.Mutex
	client  *client            // takes new flights
	clients map[*client]bool   // client, and older ones that still owe answers
	busy    map[target]*flight // partitions that owe an answer
	bytes   int64              // of the records in busy
	empty   chan struct{}      // made by Close, closed when busy is empty
	renewed time.Time
	suspect map[string]bool // topics that the client must not trust its memory of

	dropped atomic.Bool    // Close has given up waiting: nothing is reported any more
	calls   sync.WaitGroup // callbacks and goroutines that may report
	brokers atomic.Int32   // of the cluster, as last seen; 0 before that
	keyless atomic.Uint32  // where records without a key go next
}

// target names a partition.
type target struct {
	topic     string
	partition int32
}

// client is a kgo client and the number of flights that use it.
type client struct {
	*kgo.Client
	flights int
}

// NewSink makes a sink. It connects when it is first used. Errors are those of a Config that did not
// come from Parse.
func NewSink(cfg Config, opts Options) (*Sink, error) {
	s := &Sink{
		cfg: cfg, opts: opts.withDefaults(),
		turn: make(chan struct{}, 1), stop: make(chan struct{}),
		clients: map[*client]bool{}, busy: map[target]*flight{}, suspect: map[string]bool{},
	}
	s.settle = s.settled
	s.topics = newTopics(s)
	if len(cfg.Seeds) == 0 {
		return nil, errors.New("make a Kafka client: bootstrap.servers is missing")
	}
	c, err := s.newClient()
	if err != nil {
		return nil, fmt.Errorf("make a Kafka client: %w", err)
	}
	s.client = c
	s.clients[c] = true
	return s, nil
}

// Write implements relay.Sink. Writes take turns: a second one waits for the first to return. On a
// closed sink it returns without reporting anything.
func (s *Sink) Write(ctx context.Context, recs []relay.Record, report func(i int, r relay.Result)) {
	w := &write{planner: planner{s: s, recs: recs, owes: s.owes}, report: report, done: make(chan struct{})}
	select {
	case <-s.stop:
		return
	default:
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.stop:
		return
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		w.rejectAll(&relay.Failure{Class: relay.ClassUnavailable, Code: CodeCancelled, Text: "the relay stopped before the record was sent"})
		return
	}
	w.plan(ctx)
	w.launch() //nolint:contextcheck // a record on its way cannot be called back
	w.wait(ctx)
}

// Close implements relay.Sink. It is not to be called from a report. The error counts the records that
// were dropped, whose fate is unknown: what the operating system had already taken for sending may still
// reach a broker.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.empty != nil {
		s.mu.Unlock()
		return nil
	}
	s.empty = make(chan struct{})
	close(s.stop)
	s.mu.Unlock()

	select {
	case s.turn <- struct{}{}: // for good
	case <-ctx.Done():
	}
	s.mu.Lock()
	if len(s.busy) == 0 {
		s.closeEmpty()
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
	case <-ctx.Done():
	}
	return s.drop(ctx)
}

func (s *Sink) drop(ctx context.Context) error {
	s.mu.Lock()
	s.dropped.Store(true)
	left := 0
	for _, f := range s.busy {
		left += f.size
	}
	clients := s.clients
	s.clients = map[*client]bool{}
	s.mu.Unlock()
	for c := range clients {
		c.Close()
	}
	s.calls.Wait()
	if left > 0 {
		return fmt.Errorf("close the Kafka client: up to %d records are not answered: %w", left, context.Cause(ctx))
	}
	return nil
}

// closeEmpty tells Close that nothing is outstanding. Called with mu held.
func (s *Sink) closeEmpty() {
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// tell reports unless the sink has been dropped. Once Close has returned, no report runs.
func (s *Sink) tell(report func(int, relay.Result), i int, r relay.Result) {
	if !s.begin() {
		return
	}
	defer s.calls.Done()
	report(i, r)
}

// owes says whether a partition owes an answer. Called with mu held.
func (s *Sink) owes(to target) bool { return s.busy[to] != nil }

// begin counts a goroutine or callback that may report, unless the sink has been dropped.
func (s *Sink) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped.Load() {
		return false
	}
	s.calls.Add(1)
	return true
}
