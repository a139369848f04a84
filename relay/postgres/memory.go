package postgres

import (
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// memory stands in for the status column of a table that has none: what failed and what is dead is known only
// while the relay runs. Sent rows are deleted, so they need no memory.
type memory struct {
	mu   sync.Mutex
	rows map[int64]verdict
}

type verdict struct {
	key      *string
	state    relay.State // StateFailed or StateDead
	due      time.Time   // by the relay's clock, which is all there is
	attempts int
}

func newMemory() *memory { return &memory{rows: map[int64]verdict{}} }

// settle notes outcomes other than SENT.
func (m *memory) settle(outs []relay.Outcome, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range outs {
		o := &outs[i]
		id := parseRow(o.Row)
		v := m.rows[id]
		if o.Attempt {
			v.attempts++
		}
		switch o.State {
		case relay.StateFailed, relay.StateDead:
			v.state, v.due = o.State, now.Add(o.RetryAfter)
			m.rows[id] = v
		case relay.StateSent:
			delete(m.rows, id)
		}
	}
}

// apply makes records say what the status column would.
func (m *memory) apply(recs []record, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range recs {
		r := &recs[i]
		v, known := m.rows[r.id]
		switch {
		case !known:
		case v.state == relay.StateDead:
			r.kind = kindOther
		case now.Before(v.due):
			r.kind, r.wait = kindLater, v.due.Sub(now)
		default:
			r.state, r.event.State, r.event.RetryCount = v.state, v.state, v.attempts
		}
		if known && v.key == nil {
			v.key = r.key
			m.rows[r.id] = v
		}
	}
}

// has says that the row failed or is dead.
func (m *memory) has(id int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.rows[id]
	return known
}
