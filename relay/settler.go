package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// settling is an outcome on its way into the table.
type settling struct {
	event  *Event
	out    Outcome
	marked func() // told once the table shows the outcome; may be nil
}

// settler writes outcomes, everything that has gathered since the last statement in one statement.
// Its queue is bounded by what the budget and the bound on late answers let into flight.
type settler struct {
	store  Store
	owner  *owner
	gate   *gate
	budget *budget
	status *status
	hooks  Hooks
	log    *slog.Logger
	most   int // outcomes a statement

	mu      sync.Mutex
	queue   []settling
	ended   bool
	back    time.Time     // when the last event that failed at no cost is due again
	ready   chan struct{} // buffered 1
	trouble pause
}

func newSettler(o Options, w *owner, g *gate, b *budget, st *status) *settler {
	return &settler{
		store: o.Store, owner: w, gate: g, budget: b, status: st, hooks: o.Hooks, log: o.Logger,
		most: 2 * o.Batch, ready: make(chan struct{}, 1),
		trouble: pause{first: 100 * time.Millisecond, longest: 3 * time.Second},
	}
}

// push takes ss over: the caller lets go of it.
func (s *settler) push(ss []settling) {
	if len(ss) == 0 {
		return
	}
	s.mu.Lock()
	if len(s.queue) == 0 {
		s.queue = ss
	} else {
		s.queue = append(s.queue, ss...)
	}
	s.mu.Unlock()
	s.signal()
}

// end makes run return once the queue is empty.
func (s *settler) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.signal()
}

func (s *settler) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *settler) take() (batch []settling, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.queue), s.most)
	batch, s.queue = s.queue[:n:n], s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil // lets go of what was settled
	}
	return batch, s.ended && n == 0
}

// run settles until end was called and nothing is left. When ctx ends first, what is left is written
// in one last bounded try: those answers are known, and a mark that is not written is a double later.
func (s *settler) run(ctx context.Context) {
	for {
		batch, ended := s.take()
		switch {
		case ended:
			return
		case len(batch) == 0:
			<-s.ready
		default:
			s.settle(ctx, batch)
		}
	}
}

func (s *settler) settle(ctx context.Context, batch []settling) {
	if batch = s.ours(batch); len(batch) == 0 {
		return
	}
	w := writing{outs: make([]Outcome, len(batch))}
	for i := range batch {
		w.outs[i] = batch[i].out
	}
	lost, err := s.write(ctx, &w)
	if err != nil {
		s.log.Warn("stopped before all marks were written: those events will be sent again",
			"events", len(batch), "error", err.Error())
	}
	if err != nil || ctx.Err() != nil {
		// The gates stay as they are: not all of these rows are done, and nothing is read any more.
		for i := range batch {
			s.budget.give(batch[i].event)
		}
		return
	}
	gone := make(map[RowID]bool, len(lost))
	for _, row := range lost {
		gone[row] = true
	}
	if len(gone) > 0 && !w.repeated { // else it was most probably our own mark, whose reply was lost
		s.hooks.Lost(len(gone))
		s.sayLost(batch, gone)
	}
	for i := range batch {
		e, out := batch[i].event, &batch[i].out
		s.note(out)
		if gone[e.Row] {
			s.gate.lost(e, out.State)
		} else {
			s.gate.settled(e, out.State)
		}
		if batch[i].marked != nil {
			batch[i].marked()
		}
		s.budget.give(e)
	}
}

// mostNamed is how many rows of a batch are named in the log that had changed.
const mostNamed = 5

// sayLost tells of marks that were not applied. A relay that wakes up after others took its lanes has many, and the
// others have marked those rows.
func (s *settler) sayLost(batch []settling, gone map[RowID]bool) {
	others, changed := 0, 0
	for i := range batch {
		e, out := batch[i].event, &batch[i].out
		switch {
		case !gone[e.Row]:
		case out.State == StateSent && !s.owner.has(e):
			others++
		default:
			if changed++; changed <= mostNamed {
				s.log.Warn("the row had changed since it was read and was left as it is",
					append(eventAttrs(e, e.RetryCount), "row", string(e.Row), "outcome", string(out.State))...)
			}
		}
	}
	if changed > mostNamed {
		s.log.Warn("more rows had changed since they were read and were left as they are", "events", changed-mostNamed)
	}
	if others > 0 {
		s.log.Info("rows of lanes that another relay has by now were left to it", "events", others)
	}
}

// ours leaves out verdicts on events whose lane another relay has by now: they are its to judge.
func (s *settler) ours(batch []settling) []settling {
	return slices.DeleteFunc(batch, func(b settling) bool {
		if b.out.State == StateSent || b.out.State == StateNew || s.owner.has(b.event) {
			return false
		}
		s.gate.handBack(b.event)
		s.budget.give(b.event)
		return true
	})
}

// note remembers when an event that failed at no cost is due again: until then its work is not done.
func (s *settler) note(out *Outcome) {
	if out.State != StateFailed || out.Attempt {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if due := time.Now().Add(out.RetryAfter); due.After(s.back) {
		s.back = due
	}
}

// expects says whether events that failed at no cost are still to come back. The margin is for the
// database's clock and the pause between two reads.
func (s *settler) expects(now time.Time) bool {
	const margin = time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.back.IsZero() && now.Before(s.back.Add(margin))
}

// writing is one set of outcomes on its way.
type writing struct {
	outs     []Outcome
	repeated bool // a try failed in a way that may have written some: rows of ours may be lost now
}

// write calls the store until it succeeds. Outcomes are kept meanwhile: Kafka has acknowledged.
func (s *settler) write(ctx context.Context, w *writing) ([]RowID, error) {
	for ctx.Err() == nil {
		lost, err := s.store.Settle(ctx, w.outs)
		if err == nil {
			s.trouble.reset()
			s.status.marked()
			return lost, nil
		}
		w.repeated = true
		if ctx.Err() != nil {
			break
		}
		s.status.trouble(err)
		s.log.Warn("marks could not be written, trying again", "events", len(w.outs), "error", err.Error())
		select {
		case <-time.After(s.trouble.next()):
		case <-ctx.Done():
		}
	}
	if errors.Is(context.Cause(ctx), ErrOwnershipLost) {
		// That Kafka has a record stays true whoever owns the table now; verdicts are the new owner's.
		w.outs = slices.DeleteFunc(w.outs, func(o Outcome) bool { return o.State != StateSent })
		if len(w.outs) == 0 {
			return nil, ErrOwnershipLost
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return s.store.Settle(last, w.outs)
}
