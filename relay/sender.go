package relay

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// awayFor is the longest that events wait for a destination that owes answers before one of them asks
// again. Answers end the wait at once; this bounds it for P7 (recovery within 5 s).
const awayFor = 3 * time.Second

// maxLate is how many batches may wait for late answers before the relay stops handing over more: the
// bound on memory while destinations do not answer.
const maxLate = 4

// sender takes batches through gate, router and encoder to the sink, one after the other, and turns
// results into outcomes.
type sender struct {
	o      Options
	gate   *gate
	budget *budget
	settle *settler
	status *status

	trouble pause
	mu      sync.Mutex
	late    map[RowID]*Event
	graves  []grave
	missing map[string]time.Time // topics refused within their grace time, since when
	landed  chan struct{}        // buffered 1: a late answer came
}

func newSender(o Options, g *gate, b *budget, s *settler, st *status) *sender {
	return &sender{
		o: o, gate: g, budget: b, settle: s, status: st,
		trouble: pause{first: 500 * time.Millisecond, longest: 15 * time.Second},
		late:    map[RowID]*Event{}, missing: map[string]time.Time{}, landed: make(chan struct{}, 1),
	}
}

// run sends what comes until batches is closed, then waits for late answers, then closes the sink.
// Batches that come after reading has ended are handed back.
func (s *sender) run(reading, hard context.Context, batches <-chan []Event) {
	for open := true; open; {
		select {
		case evs, ok := <-batches:
			switch {
			case !ok:
				open = false
			case reading.Err() != nil || hard.Err() != nil:
				s.handBackAll(evs)
			default:
				s.batch(reading, hard, evs)
				s.awaitLate(hard, maxLate*s.o.Batch)
			}
		case <-s.landed:
		}
		s.digGraves(hard)
	}
	s.awaitLate(hard, 0)
	s.digGraves(hard)
	closing, cancel := context.WithTimeout(context.WithoutCancel(hard), 2*time.Second)
	defer cancel()
	if err := s.o.Sink.Close(closing); err != nil {
		s.o.Logger.Warn("close the Kafka client", "error", err.Error())
	}
	s.dropLate()
}

// batch writes evs; those that failed for the relay's own trouble are written again, in order, until
// they get through or reading ends. Nothing is counted against them.
func (s *sender) batch(reading, hard context.Context, evs []Event) {
	todo := make([]*Event, len(evs))
	for i := range evs {
		todo[i] = &evs[i]
	}
	for {
		todo = s.write(hard, todo)
		if len(todo) == 0 {
			s.trouble.reset()
			return
		}
		select {
		case <-time.After(s.trouble.next()):
		case <-reading.Done():
			for _, e := range todo {
				s.handBack(e)
			}
			return
		}
	}
}

// write brings one batch to the sink and returns the events to be written again.
func (s *sender) write(ctx context.Context, evs []*Event) (again []*Event) {
	f := &flight{sender: s, started: time.Now()}
	for _, e := range evs {
		if !s.gate.passes(e) {
			s.handBack(e)
			continue
		}
		rec, failure := s.record(e)
		if failure != nil {
			f.outs = s.conclude(f.outs, e, Result{Failure: failure}, rec.Topic, f.started)
			continue
		}
		f.evs, f.recs = append(f.evs, e), append(f.recs, rec)
	}
	if len(f.recs) > 0 {
		f.done = make([]bool, len(f.recs))
		s.o.Sink.Write(ctx, f.recs, f.report)
	}
	return f.land()
}

// record routes and encodes.
func (s *sender) record(e *Event) (Record, *Failure) {
	if e.Malformed != nil {
		return Record{}, &Failure{Class: ClassPermanent, Code: "ROW_MALFORMED", Text: e.Malformed.Error(),
			Hint: "repair the row, then postrider events retry"}
	}
	d, failure := s.o.Router.Route(e)
	if failure != nil {
		return Record{Topic: d.Topic}, failure
	}
	return s.o.Encode.Encode(e, d)
}

// flight is one Write and its answers, those that come late included.
type flight struct {
	sender  *sender
	started time.Time
	evs     []*Event
	recs    []Record

	mu     sync.Mutex
	done   []bool
	outs   []settling
	again  []*Event
	landed bool // Write has returned
}

func (f *flight) report(i int, r Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, topic := f.evs[i], f.recs[i].Topic
	f.done[i] = true
	f.recs[i] = Record{Topic: topic} // the value's memory is free again
	if f.landed {
		f.sender.lateAnswer(e, topic, r, f.started)
		return
	}
	if r.Failure != nil && r.Failure.Class == ClassRelay {
		f.sender.report(e, r.Failure, StateNew)
		f.again = append(f.again, e)
		return
	}
	f.outs = f.sender.conclude(f.outs, e, r, topic, f.started)
}

// land is called once Write has returned: what is answered is settled together, the rest is late and
// holds its keys.
func (f *flight) land() []*Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.landed = true
	for i, e := range f.evs {
		if !f.done[i] {
			f.sender.addLate(e)
		}
	}
	f.sender.settle.push(f.outs)
	f.outs = nil
	return inReadOrder(f.again)
}

// conclude turns a result into what is written to the row and what it means for the key. The gate
// closes here, before anything else of the key can be sent.
func (s *sender) conclude(outs []settling, e *Event, r Result, topic string, started time.Time) []settling {
	now := time.Now()
	out := Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State}
	f := r.Failure
	switch {
	case f == nil:
		out.State, out.Receipt = StateSent, r.Receipt
		s.sent(e, r.Receipt, now, started)
	case f.Class == ClassHeld:
		s.handBack(e)
		return outs
	case f.Class == ClassRelay || f.Class == ClassUnavailable && e.Key != nil && f.Code == CodePartitionBusy:
		s.report(e, f, StateNew)
		s.gate.away(e, topic, now.Add(awayFor))
		s.handBack(e)
		return outs
	default:
		s.verdict(&out, e, f, topic)
		s.gate.fail(e, out.State == StateDead)
		s.report(e, f, out.State)
		if out.State == StateDead && s.o.DeadLetterTopic != "" {
			s.bury(settling{event: e, out: out}, f, topic)
			return outs
		}
	}
	return append(outs, settling{event: e, out: out})
}

// CodePartitionBusy is the Failure.Code of a record for a partition that still owes an answer. The
// event was not sent, and waits in memory for that answer.
const CodePartitionBusy = "PARTITION_BUSY"

// verdict decides between another attempt and the end.
func (s *sender) verdict(out *Outcome, e *Event, f *Failure, topic string) {
	out.LastError = f.Error()
	if f.Class == ClassUnavailable {
		out.State, out.RetryAfter = StateFailed, awayFor
		return
	}
	attempts := e.RetryCount + 1
	wait, more := s.o.Retry.Next(attempts, rand.Float64())
	switch {
	case f.Class == ClassPermanent && (f.Grace <= 0 || s.graceOver(topic, f.Grace)):
		out.State, out.Attempt = StateDead, true
	case f.Class == ClassPermanent:
		// Within its grace time the cause may pass (a topic that is being created): ask again soon,
		// at no cost.
		out.State, out.RetryAfter = StateFailed, min(f.Grace/4, 5*time.Second)
	case !more:
		out.State, out.Attempt = StateDead, true
	default:
		out.State, out.Attempt, out.RetryAfter = StateFailed, true, wait
	}
}

// graceOver measures from the first refusal for the topic that this relay saw, since a row's age says
// nothing about how long its cause exists: an old backlog meets a new topic too.
func (s *sender) graceOver(topic string, grace time.Duration) bool {
	const most = 10_000 // topics; beyond that the oldest knowledge is dropped and grace starts anew
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.missing[topic]
	if !known {
		if len(s.missing) >= most {
			clear(s.missing)
		}
		since = time.Now()
		s.missing[topic] = since
	}
	return time.Since(since) >= grace
}

func (s *sender) found(topic string) {
	s.mu.Lock()
	delete(s.missing, topic)
	s.mu.Unlock()
}

func (s *sender) sent(e *Event, r Receipt, now, started time.Time) {
	s.status.acked(now)
	s.found(r.Topic)
	var commitToAck time.Duration
	if !e.CreatedAt.IsZero() {
		commitToAck = e.Age + now.Sub(e.readAt)
	}
	s.o.Hooks.Sent(e, r, commitToAck, now.Sub(started))
	level := slog.LevelDebug
	if e.RetryCount > 0 || e.State == StateFailed {
		level = slog.LevelInfo
	}
	if s.o.Logger.Enabled(context.Background(), level) {
		s.o.Logger.Log(context.Background(), level, "event sent", append(eventAttrs(e),
			"topic", r.Topic, "partition", r.Partition, "offset", r.Offset)...)
	}
}

// report tells hooks and log of a failure, in the articles' fields, without payload.
func (s *sender) report(e *Event, f *Failure, next State) {
	s.o.Hooks.Failed(e, f, next)
	first := s.status.failed(f)
	level, message := slog.LevelWarn, "event failed, will be sent again"
	switch {
	case next == StateDead:
		level, message = slog.LevelError, "event is dead, a person must act"
	case next == StateNew || f.Class == ClassUnavailable:
		if !first {
			return // one line for an outage, not one an event
		}
		message = "the destination does not take records, events wait at no cost"
	}
	s.o.Logger.Log(context.Background(), level, message, append(eventAttrs(e),
		"class", string(f.Class), "code", f.Code, "error", f.Text, "hint", f.Hint)...)
}

// eventAttrs are the log fields that tell which event is meant.
func eventAttrs(e *Event) []any {
	attrs := []any{"event_id", e.ID, "aggregate_id", e.AggregateID, "event_type", e.Type, "retry_count", e.RetryCount}
	if id := traceID(e); id != "" {
		attrs = append(attrs, "trace_id", id)
	}
	return attrs
}

// handBack frees an event that was read and not sent. A claimed row goes back to NEW.
func (s *sender) handBack(e *Event) {
	if e.Claim != "" {
		s.settle.push([]settling{{event: e, out: Outcome{
			Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: StateNew}}})
		return
	}
	s.gate.handBack(e)
	s.budget.give(e)
}

func (s *sender) handBackAll(evs []Event) {
	for i := range evs {
		s.handBack(&evs[i])
	}
}

// addLate moves an event from the budget of batches to the bounded number of late ones.
func (s *sender) addLate(e *Event) {
	s.gate.wait(e)
	s.budget.give(e)
	s.mu.Lock()
	s.late[e.Row] = e
	n := len(s.late)
	s.mu.Unlock()
	s.status.late(n)
}

func (s *sender) lateAnswer(e *Event, topic string, r Result, started time.Time) {
	s.mu.Lock()
	_, known := s.late[e.Row]
	delete(s.late, e.Row)
	n := len(s.late)
	s.mu.Unlock()
	if !known {
		return
	}
	s.status.late(n)
	s.settle.push(s.conclude(nil, e, r, topic, started))
	s.gate.answered(topic)
	select {
	case s.landed <- struct{}{}:
	default:
	}
}

// awaitLate waits until at most n answers are outstanding.
func (s *sender) awaitLate(ctx context.Context, n int) {
	for s.lateCount() > n {
		select {
		case <-s.landed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *sender) lateCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late)
}

// dropLate gives up waiting for answers: the rows were not marked and come again, here or elsewhere.
func (s *sender) dropLate() {
	s.mu.Lock()
	left := s.late
	s.late = map[RowID]*Event{}
	s.mu.Unlock()
	if len(left) == 0 {
		return
	}
	s.o.Logger.Warn("stopped with records whose fate is unknown: they will be sent again", "records", len(left))
	for _, e := range left {
		s.handBack(e)
	}
}

func inReadOrder(evs []*Event) []*Event {
	slices.SortFunc(evs, func(a, b *Event) int { return cmp.Compare(a.read, b.read) })
	return evs
}

// traceID takes the trace id out of a W3C traceparent header, "" without one.
func traceID(e *Event) string {
	for _, h := range e.Headers {
		if h.Name == "traceparent" {
			if parts := strings.Split(string(h.Value), "-"); len(parts) >= 4 && len(parts[1]) == 32 {
				return parts[1]
			}
		}
	}
	return ""
}
