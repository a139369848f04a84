package relay

import (
	"context"
	"sync"
	"time"
)

// awayFor is the longest that events wait for a destination that does not answer before they ask
// again. Answers end the wait at once; this bounds it for P7 (recovery within 5 s).
const awayFor = 3 * time.Second

// sender takes batches through gate, router and encoder to the sink, one after the other, and turns
// results into outcomes.
type sender struct {
	o      Options
	sink   Sink
	queue  *queue
	owner  *owner
	gate   *gate
	budget *budget
	settle *settler
	status *status

	trouble  pause // after failures of the relay's own set-up
	standing pause // after writes of which nothing got anywhere

	mu      sync.Mutex
	late    late
	graves  []grave
	missing map[string]time.Time // topics refused within their grace time, since when
	landed  chan struct{}        // buffered 1: a late answer came, or a grave is to be dug
}

func newSender(o Options, sink Sink, w *owner, g *gate, b *budget, s *settler, st *status) *sender {
	return &sender{
		o: o, sink: sink, queue: newQueue(), owner: w, gate: g, budget: b, settle: s, status: st,
		trouble:  pause{first: 500 * time.Millisecond, longest: 15 * time.Second},
		standing: pause{first: 50 * time.Millisecond, longest: time.Second},
		late:     newLate(o), missing: map[string]time.Time{}, landed: make(chan struct{}, 1),
	}
}

// run sends what comes until the queue has ended, then waits for late answers, then closes the sink.
// Events that come after reading has ended are handed back.
func (s *sender) run(reading, hard context.Context) {
	for {
		evs, open := s.queue.take(s.o.Batch, s.o.BatchBytes)
		switch {
		case !open:
			s.finish(hard)
			return
		case len(evs) == 0:
			select {
			case <-s.queue.ready:
			case <-s.landed:
			}
		case reading.Err() != nil || hard.Err() != nil:
			s.handBackAll(evs)
		default:
			s.batch(reading, hard, evs)
			s.digGraves(hard)
			s.awaitRoom(hard)
		}
		s.digGraves(hard)
	}
}

// finish waits for what is late and closes the sink.
func (s *sender) finish(hard context.Context) {
	for s.awaitLate(hard) && s.digGraves(hard) {
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(hard), 2*time.Second)
	defer cancel()
	if err := s.sink.Close(closing); err != nil {
		s.o.Logger.Warn("close the Kafka client", "error", err.Error())
	}
	s.dropLate()
	s.dropGraves()
}

// batch writes events; those that failed for the relay's own trouble are written again, in order, until
// they get through or reading ends. Nothing is counted against them.
func (s *sender) batch(reading, hard context.Context, todo []*Event) {
	for {
		var moved bool
		todo, moved = s.write(hard, todo)
		if len(todo) == 0 {
			s.trouble.reset()
			s.pace(reading, moved)
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

// pace waits a little after a write of which nothing got anywhere: a cluster that is down must not be
// met by reading the table through at full speed (case P08). Any answer that comes late ends it.
func (s *sender) pace(ctx context.Context, moved bool) {
	if moved {
		s.standing.reset()
		return
	}
	select {
	case <-time.After(s.standing.next()):
	case <-s.landed:
		s.signal()
	case <-ctx.Done():
	}
}

// write brings one batch to the sink. It returns the events to be written again, and whether anything
// came of the write: an acknowledgement, a verdict, or only events that their gates held.
func (s *sender) write(ctx context.Context, evs []*Event) (again []*Event, moved bool) {
	f := newFlight(s, len(evs))
	for _, e := range evs {
		if !s.owner.has(e) || !s.gate.passes(e) || s.claimAged(e) {
			s.handBack(e)
			continue
		}
		rec, failure := s.record(e)
		switch {
		case failure == nil:
			f.add(e, rec)
		case f.carries(e.Key):
			// Earlier events of the key come first. This one gets its verdict when it is read again.
			s.handBack(e)
		default:
			f.outs = s.fail(f.outs, refused{e, rec.Topic, failure})
			f.moved = true
		}
	}
	if len(f.recs) > 0 {
		s.sink.Write(ctx, f.recs, f.report)
	}
	return f.land()
}

// claimAged says whether so much of the claim's time has passed that another relay may take the row
// over while this one sends it. The time is measured from before the claim was written, so it is never
// too short.
func (s *sender) claimAged(e *Event) bool {
	return e.Claim != "" && time.Since(e.readAt) > s.o.ClaimTimeout/2
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
	rec, failure := s.o.Encode.Encode(e, d)
	rec.Topic = d.Topic
	if s.owner.n > 0 {
		rec.Row, rec.Event, rec.Lane = e.Row, HashEvent(e.ID), e.lane
	}
	return rec, failure
}

// handBack frees an event that was read and not sent, and shuts its key until all that was read of it
// is back. A claimed row goes back to NEW.
func (s *sender) handBack(e *Event) {
	s.gate.hold(e)
	if e.Claim != "" {
		s.settle.push([]settling{{event: e, out: Outcome{
			Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: StateNew}}})
		return
	}
	s.gate.handBack(e)
	s.budget.give(e)
}

func (s *sender) handBackAll(evs []*Event) {
	for _, e := range evs {
		s.handBack(e)
	}
}

func (s *sender) signal() {
	select {
	case s.landed <- struct{}{}:
	default:
	}
}
