package relay

import (
	"sync"
	"time"
)

// Status is what a relay knows of itself at one moment, for health checks and people.
type Status struct {
	Active      bool      // owns its table; false before, and while standby
	StandbyFor  string    // who owns the table while this relay waits
	InFlight    int       // events read and not settled
	FlightBytes int64     // their size
	Late        int       // records whose answer is overdue
	BlockedKeys int       // keys held by an event in doubt
	LastTick    time.Time // last turn of the reading loop, whatever came of it
	LastPoll    time.Time // last answer of the database to a read
	LastAck     time.Time // last record acknowledged by Kafka
	LastMark    time.Time // last statement that settled outcomes
	// Trouble is the last failure and when it happened; cleared by the next success of its kind.
	DatabaseTrouble, KafkaTrouble string
}

// Status returns the relay's state now.
func (r *Relay) Status() Status {
	s := r.status.copy()
	s.InFlight, s.FlightBytes = r.budget.load()
	s.BlockedKeys = r.gate.size()
	return s
}

type status struct {
	mu    sync.Mutex
	s     Status
	quiet map[string]time.Time // failure code: when a line about it was last logged
}

func (s *status) copy() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.s
}

func (s *status) change(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.s)
}

func (s *status) standby(holder string) { s.change(func(t *Status) { t.StandbyFor = holder }) }

func (s *status) active() {
	s.change(func(t *Status) { t.Active, t.StandbyFor = true, "" })
}

func (s *status) tick() { s.change(func(t *Status) { t.LastTick = time.Now() }) }

func (s *status) polled() {
	s.change(func(t *Status) { t.LastPoll, t.DatabaseTrouble = time.Now(), "" })
}

func (s *status) marked() {
	s.change(func(t *Status) { t.LastMark, t.DatabaseTrouble = time.Now(), "" })
}

func (s *status) acked(now time.Time) {
	s.change(func(t *Status) { t.LastAck, t.KafkaTrouble = now, "" })
}

func (s *status) late(n int) { s.change(func(t *Status) { t.Late = n }) }

func (s *status) trouble(err error) {
	s.change(func(t *Status) { t.DatabaseTrouble = err.Error() })
}

// failed notes a failure and says whether a line about its code is due: one in half a minute.
func (s *status) failed(f *Failure) (first bool) {
	const every = 30 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Class != ClassPermanent {
		s.s.KafkaTrouble = f.Error()
	}
	now := time.Now()
	if now.Sub(s.quiet[f.Code]) < every {
		return false
	}
	if s.quiet == nil {
		s.quiet = map[string]time.Time{}
	}
	s.quiet[f.Code] = now
	return true
}
