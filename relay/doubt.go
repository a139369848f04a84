package relay

import (
	"slices"
	"time"
)

// doubt is an event that keeps its key shut.
type doubt struct {
	row    RowID
	read   uint64 // the event's place in the order of reading; 0 for rows of an earlier run
	kind   doubtKind
	topic  string // doubtAway: the destination that does not answer
	failed bool   // doubtAway: the row is FAILED in the table, and is doubtFailed when the wait is over
}

type doubtKind int

const (
	// doubtPending: handed to the sink, which has no answer yet.
	doubtPending doubtKind = iota
	// doubtAway: handed back unsent because its destination does not answer.
	doubtAway
	// doubtFailed: FAILED; the Store brings it when it is due.
	doubtFailed
	// doubtDead: DEAD, holds its key until a person acts.
	doubtDead
)

// wait ends a doubtAway: when its topic answers again, at until the latest.
type wait struct {
	key, topic string
	until      time.Time
}

// pend shuts the key of an event whose answer is late.
func (g *gate) pend(e *Event) {
	g.doubt(e, doubt{kind: doubtPending})
}

// fail shuts the key of an event that was refused. dead means that the event is given up.
func (g *gate) fail(e *Event, dead bool) {
	kind := doubtFailed
	if dead {
		kind = doubtDead
	}
	g.doubt(e, doubt{kind: kind})
}

// away shuts the key of an event that is handed back unsent, until its topic answers again. Every wait
// is equally long, so g.waits is in the order of their ends.
func (g *gate) away(e *Event, topic string, until time.Time) {
	g.doubt(e, doubt{kind: doubtAway, topic: topic, failed: e.State == StateFailed})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waits = append(g.waits, wait{key: *e.Key, topic: topic, until: until})
}

func (g *gate) doubt(e *Event, d doubt) {
	if e.Key == nil {
		return
	}
	d.row, d.read = e.Row, e.read
	g.mu.Lock()
	defer g.mu.Unlock()
	g.put(*e.Key, d)
}

// put must be called with the lock held. An event already in doubt keeps its place.
func (g *gate) put(key string, d doubt) {
	k := g.key(key)
	g.close(k, d.row)
	if i := k.find(d.row); i >= 0 {
		d.read = k.doubts[i].read
		k.doubts[i] = d
		return
	}
	i := len(k.doubts)
	for i > 0 && k.doubts[i-1].read > d.read {
		i--
	}
	k.doubts = slices.Insert(k.doubts, i, d)
}

// answered ends the wait of keys for a topic, because the topic answers again.
func (g *gate) answered(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endWaits(func(w *wait) bool { return w.topic == topic })
}

// expire ends the waits that have lasted their longest.
func (g *gate) expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waits) > 0 && !g.waits[0].until.After(now) {
		g.endWaits(func(w *wait) bool { return !w.until.After(now) })
	}
}

// endWaits must be called with the lock held.
func (g *gate) endWaits(over func(*wait) bool) {
	left := g.waits[:0]
	for _, w := range g.waits {
		if !over(&w) {
			left = append(left, w)
			continue
		}
		g.drop(w.key, func(d *doubt) bool {
			over := d.kind == doubtAway && d.topic == w.topic
			if over && d.failed {
				d.kind = doubtFailed
				g.blocked = nil
				return false
			}
			return over
		})
	}
	clear(g.waits[len(left):])
	g.waits = left
}

// held lists at most n rows that the table holds back, and that a person's act or another relay's may
// have taken out of doubt; those that nothing else is known of go first.
func (g *gate) held(n int) []RowID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var rows []RowID
	for row := range g.unsure {
		rows = append(rows, row)
	}
	for _, k := range g.keys {
		for i := range k.doubts {
			if len(rows) >= n {
				return rows
			}
			row := k.doubts[i].row
			_, busy := g.busy[row]
			_, listed := g.unsure[row]
			if !busy && !listed && k.doubts[i].inTable() {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// mustAsk says whether there are rows of which only the table knows what they are.
func (g *gate) mustAsk() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.unsure) > 0
}

// answer takes what the table says of rows that were asked about: those that do not block their key
// any more are in no doubt.
func (g *gate) answer(asked, still []RowID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := make(map[RowID]bool, len(asked))
	for _, row := range asked {
		gone[row] = true
		delete(g.unsure, row)
	}
	for _, row := range still {
		delete(gone, row)
	}
	if len(gone) == 0 {
		return
	}
	for key := range g.keys {
		g.drop(key, func(d *doubt) bool {
			_, busy := g.busy[d.row]
			return gone[d.row] && !busy && d.inTable()
		})
	}
}

// drop must be called with the lock held.
func (g *gate) drop(key string, match func(*doubt) bool) {
	k := g.keys[key]
	if k != nil && k.drop(match) {
		g.blocked = nil
		g.open(key, k)
	}
}

// drop takes out the doubts that match, and keeps what match made of the others.
func (k *keyState) drop(match func(*doubt) bool) bool {
	n := len(k.doubts)
	left := k.doubts[:0]
	for i := range k.doubts {
		if d := k.doubts[i]; !match(&d) {
			left = append(left, d)
		}
	}
	k.doubts = left
	return len(left) < n
}

func (k *keyState) find(row RowID) int {
	return slices.IndexFunc(k.doubts, func(d doubt) bool { return d.row == row })
}

// head is the row that a shut key is named by.
func (k *keyState) head() RowID {
	if len(k.doubts) == 0 {
		return k.first
	}
	return k.doubts[0].row
}

// headMayCome says whether the head is a row that the table holds back, and so may bring once it is due.
func (k *keyState) headMayCome() bool {
	return len(k.doubts) > 0 && k.doubts[0].inTable()
}

// inTable says whether the row itself tells of the doubt.
func (d *doubt) inTable() bool { return d.kind == doubtFailed || d.kind == doubtDead }

// olderOf returns the older of two rows of a key. A transaction that commits late brings a row after
// later ones were read, so the order of reading does not tell. Ids made of digits do; others have no
// order that shows, and belong to Stores that find NEW rows by their state wherever they are.
func olderOf(a, b RowID) RowID {
	if digits(a) && digits(b) && (len(b) < len(a) || len(b) == len(a) && b < a) {
		return b
	}
	return a
}

func digits(row RowID) bool {
	for _, c := range []byte(row) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return row != ""
}
