package sqlite

import (
	"time"

	"github.com/postrider/postrider/relay"
)

// parked is what a row of a table without a status column cannot say: that it was given up, and where
// the table lacks those columns too, how often it was tried and when the next attempt is due.
type parked struct {
	dead     bool
	due      time.Time
	attempts int
}

// park remembers what a table without a status column cannot say.
func (s *Store) park(outs []relay.Outcome) {
	if s.layout().cols.Status != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range outs {
		n, _ := rowid(o.Row)
		r := s.parked[n]
		if o.Attempt {
			r.attempts++
		}
		switch o.State {
		case relay.StateSent:
			delete(s.parked, n)
			continue
		case relay.StateDead:
			r.dead = true
		case relay.StateFailed:
			if s.layout().cols.NextRetryAt == "" {
				r.due = time.Now().Add(o.RetryAfter)
			}
		}
		s.parked[n] = r
	}
}

// parkedRows is a copy for one read.
func (s *Store) parkedRows() map[int64]parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := make(map[int64]parked, len(s.parked))
	for n, r := range s.parked {
		rows[n] = r
	}
	return rows
}
