package relay

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// flight is one Write and its answers, those that come late included.
type flight struct {
	sender  *sender
	started time.Time
	topics  []string
	recs    []Record // as handed over; a record's memory is free once it is reported

	mu      sync.Mutex
	evs     []*Event // by record; nil once answered
	outs    []settling
	refused []refused
	again   []*Event
	moved   bool
	landed  bool // Write has returned
}

// newFlight makes one for so many events, most of which will be sent.
func newFlight(s *sender, n int) *flight {
	return &flight{sender: s, started: time.Now(), topics: make([]string, 0, n), recs: make([]Record, 0, n),
		evs: make([]*Event, 0, n), outs: make([]settling, 0, n)}
}

// refused is an event that was not acknowledged, and why.
type refused struct {
	event   *Event
	topic   string
	failure *Failure
}

func (f *flight) add(e *Event, rec Record) {
	f.evs, f.topics, f.recs = append(f.evs, e), append(f.topics, rec.Topic), append(f.recs, rec)
}

// carries says whether a record of the key is aboard already.
func (f *flight) carries(key *string) bool {
	return key != nil && slices.ContainsFunc(f.evs, func(e *Event) bool { return e.Key != nil && *e.Key == *key })
}

// report takes the answer for one record. What was refused is judged only when the Write is over: the
// judgement depends on what became of earlier records of the key, and answers come in any order.
func (f *flight) report(i int, r Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, topic := f.evs[i], f.topics[i]
	f.evs[i], f.recs[i] = nil, Record{} // nothing of it is kept while others are late
	switch {
	case e == nil:
	case f.landed:
		f.sender.lateAnswer(e, topic, r, f.started)
	case r.Failure == nil:
		f.outs, f.moved = append(f.outs, f.sender.sent(e, r, f.started)), true
	case r.Failure.Class == ClassRelay:
		f.sender.report(e, r.Failure, StateNew)
		f.again = append(f.again, e)
	default:
		f.refused = append(f.refused, refused{e, topic, r.Failure})
		f.moved = f.moved || r.Failure.Class != ClassUnavailable && r.Failure.Class != ClassFenced
	}
}

// land is called once Write has returned. What has no answer is late and holds its key; then what was
// refused is judged, the oldest first, and all outcomes are settled together.
func (f *flight) land() (again []*Event, moved bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.landed = true
	for i, e := range f.evs {
		if e != nil {
			f.evs[i] = f.sender.addLate(e)
		}
	}
	slices.SortFunc(f.refused, func(a, b refused) int { return cmp.Compare(a.event.read, b.event.read) })
	slices.SortFunc(f.again, func(a, b *Event) int { return cmp.Compare(a.read, b.read) })
	for _, r := range f.refused {
		if overtakes(r.event, f.again) {
			f.sender.handBack(r.event)
			continue
		}
		f.outs = f.sender.fail(f.outs, r)
	}
	f.sender.settle.push(f.outs)
	f.outs, f.refused = nil, nil
	return f.again, f.moved || len(f.topics) == 0
}

// overtakes says whether an earlier event of e's key is among those to be written again.
func overtakes(e *Event, again []*Event) bool {
	return e.Key != nil && slices.ContainsFunc(again, func(a *Event) bool {
		return a.Key != nil && *a.Key == *e.Key && a.read < e.read
	})
}
