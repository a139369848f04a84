package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

var errFault = errors.New("the connection broke")

// session is one life of a relay.
type session struct {
	*relaytest.FakeStore
	w     *world
	slot  int
	name  string
	sinks []*watchedSink
	relay *relay.Relay

	member *relaytest.FakeMember // claim: lanes
	stop   context.CancelFunc
	done   chan struct{}
	err    error // of Run; to be read after done

	mu       sync.Mutex
	inFlight map[relay.RowID]string // read and not settled: event ids
	stopping bool
	still    time.Time // until then the process does nothing
	hurt     bool      // a call to the store went wrong after the stop
}

func (w *world) open(slot, life int, drained bool) *session {
	s := &session{w: w, slot: slot, name: fmt.Sprintf("relay-%d-%d", slot, life), done: make(chan struct{}), inFlight: map[relay.RowID]string{}}
	s.FakeStore = w.db.Open(relaytest.FakeStoreOptions{
		StoreOptions: relay.StoreOptions{Name: "outbox", Relay: s.name, Claim: w.claim, Lanes: w.lanes, OnDead: w.onDead, ClaimTimeout: 20 * time.Second},
		Cursor:       w.cursor, NewHeads: w.newHeads, Fault: s.fault,
	})
	o := relay.Options{
		Name: s.name, Store: s, Claim: w.claim, OnDead: w.onDead, DeadLetterTopic: w.deadTopic,
		Retry: relay.Backoff{Initial: time.Second, Max: 8 * time.Second, MaxAttempts: w.attempts},
		Batch: w.batch, BatchBytes: w.bytes, MaxBlockedKeys: w.maxBlocked, ClaimTimeout: 20 * time.Second,
		DrainTimeout: w.drain, UntilDrained: drained, Hooks: hooks{w}, Logger: s.logger(),
	}
	s.produce(&o)
	s.relay = relay.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		defer close(s.done)
		s.err = s.relay.Run(ctx)
	}()
	return s
}

func (s *session) logger() *slog.Logger {
	log := io.Discard
	if os.Getenv("POSTRIDER_SIM_LOG") != "" {
		log = os.Stderr
	}
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("relay", s.name)
}

// produce gives the relay its way to Kafka.
func (s *session) produce(o *relay.Options) {
	w := s.w
	so := relaytest.FakeSinkOptions{
		Patience: w.patience, Check: w.check, Written: w.written, Shuffle: w.shuffle,
		Latency: func(topic string, partition int32) time.Duration {
			return w.latency(topic, partition) + s.standsStill()
		},
		Silence: func(_ string, partition int32) time.Duration { return w.silence(s.slot, partition) },
		Answer:  func(r *relay.Record, partition int32) *relay.Failure { return w.answer(s.slot, r, partition) },
	}
	if w.group == nil {
		s.sinks = []*watchedSink{watch(w, w.kafka.Sink(so))}
		o.Sink = s.sinks[0]
		return
	}
	s.member = w.group.Member()
	o.Lanes, o.LaneCount = s.member, w.lanes
	for range w.flows {
		var sink producer = w.kafka.Sink(so)
		if !w.plain {
			sink = s.member.Transactions(so, w.outcome)
		}
		s.sinks = append(s.sinks, watch(w, sink))
		o.Flows = append(o.Flows, s.sinks[len(s.sinks)-1])
	}
}

// pause lets the process do nothing for a while.
func (s *session) pause(d time.Duration) {
	s.mu.Lock()
	s.still = time.Now().Add(d)
	s.mu.Unlock()
	s.member.Pause(d)
}

func (s *session) standsStill() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, time.Until(s.still))
}

// slowest is how long the way to the database and the way back may take at most, each.
const slowest = 5 * time.Second

func (s *session) fault(c relaytest.FakeCall) (f relaytest.FakeFault) {
	defer func() { f.Wait += s.standsStill() }()
	w := s.w
	if w.isOver() {
		return f
	}
	r := w.draw("store", s.name, c.Op, c.N)
	switch {
	case c.Op == "Acquire" || c.Op == "Doubts":
		return f // what they return ends Run: the caller's business
	case in(w.dbOutages, s.slot, -1, w.now()) > 0:
		f.Before = errFault
	case r.Float64() < w.dbFlaky:
		switch r.IntN(4) {
		case 0:
			f.Before = errFault
		case 1:
			f.After = errFault
		case 2:
			f.Part, f.Wait = errFault, time.Duration(r.IntN(2000))*time.Millisecond
		case 3:
			f.Wait = time.Duration(r.IntN(5000)) * time.Millisecond
		}
	case r.Float64() < w.slowReads && c.Op == "Fetch":
		f.Wait, f.Late = time.Duration(r.Int64N(int64(slowest))), time.Duration(r.Int64N(int64(slowest)))
	case c.Op == "Settle" && r.Float64() < w.slowMarks:
		f.Wait = time.Duration(r.Int64N(int64(2 * w.session)))
	}
	if f != (relaytest.FakeFault{}) {
		s.mu.Lock()
		s.hurt = s.hurt || s.stopping
		s.mu.Unlock()
	}
	return f
}

// Fetch keeps account of what is in flight.
func (s *session) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	got, err := s.FakeStore.Fetch(ctx, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.inFlight
	s.inFlight = map[relay.RowID]string{}
	for _, row := range f.Busy {
		if id, known := was[row]; known {
			s.inFlight[row] = id
		}
	}
	for _, e := range got.Events {
		s.inFlight[e.Row] = e.ID
	}
	return got, err
}

// Settle keeps account of what is in flight.
func (s *session) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	lost, err := s.FakeStore.Settle(ctx, outs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, o := range outs {
		row, there := s.w.db.Row(o.EventID)
		if there && s.w.sent[o.EventID] && row.State != relay.StateSent {
			s.w.fail("P9: event %s was SENT and is %s after a mark of %s", o.EventID, row.State, s.name)
		}
		s.w.sent[o.EventID] = row.State == relay.StateSent
		if there && s.w.givenUp[o.EventID] && row.State != relay.StateDead {
			s.w.fail("P9: event %s was given up by a person and is %s after a mark of %s", o.EventID, row.State, s.name)
		}
		if err == nil {
			delete(s.inFlight, o.Row)
			s.w.checkVerdict(o)
		} else {
			s.w.unsettled[o.EventID]++
		}
	}
	return lost, err
}

// excuse accounts for the doubles that the end of this session may make: what was in flight.
func (s *session) excuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for _, id := range s.inFlight {
		s.w.excused[id]++
	}
}

// end ends the session in one of the ways there are.
func (s *session) end(how int) {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	began := time.Now()
	switch how {
	case 0: // kill -9
		s.excuse()
		if s.member != nil {
			s.member.Kill()
		}
		s.FakeStore.Kill()
		for _, sink := range s.sinks {
			sink.Kill()
		}
	case 1: // the session that guards the ownership breaks
		if s.LoseOwnership() {
			s.excuse()
			s.wait()
			if !errors.Is(s.err, relay.ErrOwnershipLost) {
				s.w.fail("Run ended with %v when the ownership was lost", s.err)
			}
			return
		}
	}
	s.stop()
	s.wait()
	s.mu.Lock()
	hurt := s.hurt
	s.mu.Unlock()
	if how > 0 && hurt {
		s.excuse()
	}
	if how > 0 && !hurt && s.err != nil {
		s.w.fail("a clean stop ended with an error: %v", s.err)
	}
	if n := s.dropped(); how > 0 && n > 0 && time.Since(began) < s.w.drain {
		s.w.fail("a clean stop did not wait for the answers of %d records", n)
	}
	s.inFlight = nil
}

func (s *session) dropped() (n int) {
	for _, sink := range s.sinks {
		if f, ok := sink.producer.(*relaytest.FakeSink); ok {
			n += f.Dropped()
		}
	}
	return n
}

// wait holds that Run ends in time.
func (s *session) wait() {
	defer s.stop()
	limit := s.w.drain + 2*time.Minute
	select {
	case <-s.done:
	case <-time.After(limit):
		s.w.fail("Run did not end within %s of its stop: %s", limit, relay.Leftovers(s.relay))
	}
}

// live runs relay after relay in one slot until the chaos is over, and returns the last one running.
func (w *world) live(slot int) *session {
	for life := 0; ; life++ {
		r := w.draw("life", slot, life)
		s := w.open(slot, life, false)
		rest := w.span + 10*time.Second - w.now()
		if w.ends == 0 {
			s.work(rest)
			return s
		}
		ends := time.Duration(r.ExpFloat64() / w.ends * float64(time.Minute))
		if ends >= rest {
			s.work(rest)
			return s
		}
		s.work(ends)
		s.end(r.IntN(4))
		time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
	}
}

// work lets the relay work, and stand still now and then.
func (s *session) work(d time.Duration) {
	w := s.w
	for i := 0; w.pauses > 0; i++ {
		r := w.draw("pause", s.name, i)
		next := time.Duration(r.ExpFloat64() / w.pauses * float64(time.Minute))
		if next >= d || w.now()+next > w.span {
			break
		}
		s.idle(next)
		d -= next
		s.pause(time.Duration(r.Int64N(int64(3 * w.session))))
	}
	s.idle(d)
}

// idle waits while the relay works. It may end early only when it is told to.
func (s *session) idle(d time.Duration) {
	select {
	case <-s.done:
		s.w.fail("Run ended by itself: %v", s.err)
	case <-time.After(max(0, d)):
	}
}

func (s *session) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}
