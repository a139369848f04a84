package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// settling is an outcome on its way into the table.
type settling struct {
	event *Event
	out   Outcome
}

// settler writes outcomes, everything that has gathered since the last statement in one statement.
// Its queue is bounded by what the budget and the bound on late answers let into flight.
type settler struct {
	store  Store
	gate   *gate
	budget *budget
	status *status
	hooks  Hooks
	log    *slog.Logger
	most   int // outcomes a statement

	mu      sync.Mutex
	queue   []settling
	ended   bool
	ready   chan struct{} // buffered 1
	trouble pause
}

func newSettler(o Options, g *gate, b *budget, st *status) *settler {
	return &settler{
		store: o.Store, gate: g, budget: b, status: st, hooks: o.Hooks, log: o.Logger,
		most: 2 * o.Batch, ready: make(chan struct{}, 1),
		trouble: pause{first: 100 * time.Millisecond, longest: 5 * time.Second},
	}
}

func (s *settler) push(ss []settling) {
	if len(ss) == 0 {
		return
	}
	s.mu.Lock()
	s.queue = append(s.queue, ss...)
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
	outs := make([]Outcome, len(batch))
	for i := range batch {
		outs[i] = batch[i].out
	}
	lost, err := s.write(ctx, outs)
	if err != nil {
		s.log.Warn("stopped before all marks were written: those events will be sent again",
			"events", len(batch), "error", err.Error())
	}
	gone := make(map[RowID]bool, len(lost))
	for _, row := range lost {
		gone[row] = true
	}
	if len(gone) > 0 {
		s.hooks.Lost(len(gone))
	}
	for i := range batch {
		e, state := batch[i].event, batch[i].out.State
		if gone[e.Row] {
			s.log.Warn("the row had changed since it was read and was left as it is",
				append(eventAttrs(e), "row", string(e.Row), "outcome", string(state))...)
			state = StateSent // nothing of ours is in doubt about it any more
		}
		s.gate.settled(e, state)
		s.budget.give(e)
	}
}

// write calls the store until it succeeds. Outcomes are kept meanwhile: Kafka has acknowledged.
func (s *settler) write(ctx context.Context, outs []Outcome) ([]RowID, error) {
	for ctx.Err() == nil {
		lost, err := s.store.Settle(ctx, outs)
		if err == nil {
			s.trouble.reset()
			s.status.marked()
			return lost, nil
		}
		if ctx.Err() != nil {
			break
		}
		s.status.trouble(err)
		s.log.Warn("marks could not be written, trying again", "events", len(outs), "error", err.Error())
		select {
		case <-time.After(s.trouble.next()):
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return s.store.Settle(last, outs)
}
