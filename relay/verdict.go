package relay

import (
	"math/rand/v2"
	"time"
)

// CodePartitionBusy is the Failure.Code of a record for a partition that still owes an answer. The
// event was not sent, and waits in memory for that answer.
const CodePartitionBusy = "PARTITION_BUSY"

// sent is the outcome of an acknowledged event.
func (s *sender) sent(e *Event, r Result, started time.Time) settling {
	now := time.Now()
	s.status.acked(now)
	s.found(r.Receipt.Topic)
	s.reportSent(e, r.Receipt, now, started)
	return settling{event: e, marked: r.Marked, out: Outcome{
		Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: StateSent, Receipt: r.Receipt}}
}

// fail decides what becomes of an event that was refused, and appends its outcome to outs if the table
// is to know. The key's gate shuts here, before anything else of the key can be sent.
func (s *sender) fail(outs []settling, r refused) []settling {
	e, f := r.event, r.failure
	blameless := f.Class == ClassUnavailable || f.Class == ClassRelay
	switch {
	case f.Class == ClassHeld && e.Key != nil, f.Class == ClassFenced, !s.owner.has(e):
		s.handBack(e)
		return outs
	case !s.gate.oldest(e):
		s.o.Hooks.Failed(e, f, StateNew)
		s.handBack(e)
		return outs
	case blameless && e.Key != nil:
		// Nothing is written for what is not the event's fault: however long an outage lasts and
		// however often it is tried, the row stays as it was (case P08).
		s.report(e, f, StateNew)
		s.gate.away(e, r.topic, time.Now().Add(awayFor))
		s.handBack(e)
		return outs
	}
	out := Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State}
	s.verdict(&out, e, f, r.topic)
	s.gate.fail(e, out.State == StateDead)
	s.report(e, f, out.State)
	if out.State == StateDead && s.o.DeadLetterTopic != "" {
		s.bury(settling{event: e, out: out}, f, r.topic)
		return outs
	}
	return append(outs, settling{event: e, out: out})
}

// verdict decides between another attempt and the end.
func (s *sender) verdict(out *Outcome, e *Event, f *Failure, topic string) {
	out.LastError = f.Error()
	if f.Class != ClassRetriable && f.Class != ClassPermanent {
		// Without a key there is no gate to wait behind: the table brings the event again.
		out.State, out.RetryAfter = StateFailed, awayFor
		return
	}
	wait, more := s.o.Retry.Next(e.RetryCount+1, rand.Float64())
	switch {
	case f.Class == ClassPermanent && (f.Grace <= 0 || s.graceOver(topic, f.Grace)):
		out.State, out.Attempt = StateDead, true
	case f.Class == ClassPermanent:
		// Within its grace time the cause may pass (a topic that is being created): ask again soon,
		// at no cost.
		waiting := *f
		waiting.Class = ClassUnavailable
		out.LastError = waiting.Error()
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
	const most = 10_000 // topics; beyond that all knowledge is dropped and grace starts anew
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
