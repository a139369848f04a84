package relay

import (
	"context"
	"time"
)

// maxLate is how many batches may wait for late answers before the relay stops handing over more: the
// bound on memory while destinations do not answer. minLate keeps small batches from making it so
// small that a few silent partitions stop the others.
const (
	maxLate = 4
	minLate = 1000
)

// late holds the events whose answer was not there when Write returned. Guarded by sender.mu.
type late struct {
	events    map[RowID]*Event
	bytes     int64
	maxEvents int
	maxBytes  int64
}

func newLate(o Options) late {
	return late{events: map[RowID]*Event{}, maxEvents: max(maxLate*o.Batch, minLate), maxBytes: maxLate * o.BatchBytes}
}

// addLate moves an event from the budget of batches to the bounded number of late ones, and shuts its
// key. It returns a copy, so that one late event does not keep its whole batch in memory.
func (s *sender) addLate(e *Event) *Event {
	s.gate.pend(e)
	return s.keepLate(e)
}

func (s *sender) keepLate(e *Event) *Event {
	own := *e
	s.budget.give(e)
	own.given = true
	s.mu.Lock()
	s.late.events[own.Row] = &own
	s.late.bytes += own.Size()
	n := len(s.late.events)
	s.mu.Unlock()
	s.status.late(n)
	return &own
}

// arrived ends an event's being late; false when it was given up before.
func (s *sender) arrived(e *Event) bool {
	s.mu.Lock()
	_, known := s.late.events[e.Row]
	if known {
		delete(s.late.events, e.Row)
		s.late.bytes -= e.Size()
	}
	n := len(s.late.events)
	s.mu.Unlock()
	s.status.late(n)
	return known
}

func (s *sender) lateAnswer(e *Event, topic string, r Result, started time.Time) {
	if !s.arrived(e) {
		return
	}
	var outs []settling
	if r.Failure == nil {
		outs = append(outs, s.sent(e, r, started))
	} else {
		outs = s.fail(outs, refused{e, topic, r.Failure})
	}
	s.settle.push(outs)
	s.gate.answered(topic)
	s.signal()
}

// awaitRoom waits until the bound on late answers is kept.
func (s *sender) awaitRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		room := len(s.late.events) <= s.late.maxEvents && s.late.bytes <= s.late.maxBytes
		s.mu.Unlock()
		if room || !s.awaitLanding(ctx) {
			return
		}
	}
}

// awaitLate waits until no answer is outstanding, and returns false when ctx ends first.
func (s *sender) awaitLate(ctx context.Context) bool {
	for s.lateCount() > 0 {
		if !s.awaitLanding(ctx) {
			return false
		}
	}
	return true
}

func (s *sender) awaitLanding(ctx context.Context) bool {
	select {
	case <-s.landed:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *sender) lateCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late.events)
}

// dropLate gives up waiting for answers: the rows were not marked and come again, here or elsewhere.
func (s *sender) dropLate() {
	s.mu.Lock()
	left := s.late.events
	s.late.events, s.late.bytes = map[RowID]*Event{}, 0
	s.mu.Unlock()
	if len(left) == 0 {
		return
	}
	s.status.late(0)
	s.o.Logger.Warn("stopped with records whose fate is unknown: they will be sent again", "records", len(left))
	for _, e := range left {
		s.handBack(e)
	}
}
