package relay_test

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// watchedSink holds at every Write what the gates promise: nothing of a key is handed over while an
// earlier event of it is in doubt. It sees more than the topics tell, since a partition that owes an
// answer takes nothing new and so hides some of the gates' mistakes.
type watchedSink struct {
	producer
	w *world

	mu    sync.Mutex
	owed  map[string]bool        // event ids without an answer
	given map[string][]time.Time // when the event was handed over
}

// producer is a sink that can be killed.
type producer interface {
	relay.Sink
	Kill()
}

func watch(w *world, sink producer) *watchedSink {
	return &watchedSink{producer: sink, w: w, owed: map[string]bool{}, given: map[string][]time.Time{}}
}

func (s *watchedSink) Write(ctx context.Context, recs []relay.Record, report func(int, relay.Result)) {
	ids := make([]string, len(recs))
	for i := range recs {
		if recs[i].Topic != s.w.deadTopic {
			ids[i] = eventID(&recs[i])
		}
	}
	s.look(ids)
	s.producer.Write(ctx, recs, func(i int, r relay.Result) {
		s.mu.Lock()
		delete(s.owed, ids[i])
		s.mu.Unlock()
		report(i, r)
	})
}

func (s *watchedSink) look(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if id == "" {
			continue
		}
		if s.given[id] = append(s.given[id], time.Now()); s.often(s.given[id]) {
			s.w.fail("P08: event %s is handed over again and again", id)
		}
		if s.w.ordered() {
			s.lookAt(id)
		}
	}
	for _, id := range ids {
		if id != "" {
			s.owed[id] = true
		}
	}
}

// often says whether something was tried a hundred times within two seconds.
func (s *watchedSink) often(at []time.Time) bool {
	const most = 100
	return len(at) > most && at[len(at)-1].Sub(at[len(at)-1-most]) < 2*time.Second
}

func (s *watchedSink) lookAt(id string) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	this := s.w.ledger[id]
	if !this.serial {
		return
	}
	for other, c := range s.w.ledger {
		if c.key != this.key || c.seq >= this.seq {
			continue
		}
		if s.owed[other] {
			s.w.fail("P3: event %s of key %s was handed over while %s had no answer", id, c.key, other)
		}
		row, _ := s.w.db.Row(other)
		if s.w.pauses > 0 {
			continue // a relay that stood still may have written its verdict on what is not its own any more
		}
		if row.State == relay.StateFailed && !(s.w.wasDead[other] && s.w.onDead == relay.OnDeadSkip) {
			s.w.fail("P3: event %s of key %s was handed over while %s was FAILED", id, c.key, other)
		}
	}
}

// checkVerdict holds that a verdict reaches the table only when no earlier event of the key is still to
// come: a relay that starts anew would hold that one behind the later. w.mu is held.
func (w *world) checkVerdict(o relay.Outcome) {
	this := w.ledger[o.EventID]
	if !w.ordered() || w.pauses > 0 || !this.serial || o.State != relay.StateFailed && o.State != relay.StateDead {
		return
	}
	for other, c := range w.ledger {
		row, there := w.db.Row(other)
		if there && c.key == this.key && c.seq < this.seq && row.State == relay.StateNew {
			w.fail("P3: event %s of key %s is marked %s while %s is NEW", o.EventID, c.key, o.State, other)
		}
	}
}
