package relay

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// grave is a dead event whose copy is still to be written to the dead-letter topic. Its row is marked
// DEAD only afterwards, so that a crash in between writes the copy again and never loses it.
type grave struct {
	settling
	rec Record
}

// graveRetry is when an event whose copy could not be written is tried anew, from the start: its own
// topic is asked again too, so this is not done at every breath of an outage.
const graveRetry = 30 * time.Second

// bury queues a dead event for the dead-letter topic, with the reason in headers.
func (s *sender) bury(dead settling, f *Failure, topic string) {
	e := dead.event
	rec := Record{Topic: s.o.DeadLetterTopic, Headers: s.o.Encode.headers(e), Value: e.Payload}
	if e.Key != nil {
		rec.Key = []byte(*e.Key)
	}
	rec.Headers = append(rec.Headers,
		Header{"postrider_dead_topic", []byte(topic)},
		Header{"postrider_dead_class", []byte(f.Class)},
		Header{"postrider_dead_code", []byte(f.Code)},
		Header{"postrider_dead_reason", []byte(f.Text)},
		Header{"postrider_dead_attempts", []byte(strconv.Itoa(e.RetryCount + 1))})
	s.mu.Lock()
	s.graves = append(s.graves, grave{settling: dead, rec: rec})
	s.mu.Unlock()
	s.signal()
}

func (s *sender) takeGraves() []grave {
	s.mu.Lock()
	defer s.mu.Unlock()
	graves := s.graves
	s.graves = nil
	return graves
}

// digGraves writes the queued copies and then marks the rows. It returns false when there were none.
func (s *sender) digGraves(ctx context.Context) bool {
	graves := s.takeGraves()
	if len(graves) == 0 {
		return false
	}
	b := &burial{sender: s, graves: graves, recs: make([]Record, len(graves)), done: make([]bool, len(graves))}
	for i := range graves {
		b.recs[i] = graves[i].rec
	}
	s.sink.Write(ctx, b.recs, b.report)
	b.land()
	return true
}

// dropGraves hands back the dead whose copies were not written before the end.
func (s *sender) dropGraves() {
	for _, g := range s.takeGraves() {
		s.handBack(g.event)
	}
}

// burial is one Write of copies. Answers may come late, like those of any record.
type burial struct {
	sender *sender
	mu     sync.Mutex
	graves []grave
	recs   []Record
	done   []bool
	landed bool
}

func (b *burial) report(i int, r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.graves[i]
	b.graves[i], b.recs[i], b.done[i] = grave{}, Record{}, true
	if b.landed && !b.sender.arrived(g.event) {
		return
	}
	b.sender.buried(g, r.Failure)
	if b.landed {
		b.sender.gate.answered(b.sender.o.DeadLetterTopic)
	}
}

func (b *burial) land() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.landed = true
	for i, done := range b.done {
		if !done {
			b.graves[i].event = b.sender.keepLate(b.graves[i].event)
		}
	}
}

// buried settles a dead event. The row is the truth: a copy that is refused is noted in last_error and
// does not keep the event from becoming DEAD. While the topic does not answer, the event stays FAILED.
func (s *sender) buried(g grave, f *Failure) {
	dead := g.settling
	switch {
	case f == nil:
	case f.Class == ClassFenced:
		s.handBack(dead.event)
		return
	case f.Class == ClassUnavailable || f.Class == ClassRelay:
		s.report(dead.event, f, StateFailed)
		s.gate.fail(dead.event, false)
		dead.out.State, dead.out.Attempt, dead.out.RetryAfter = StateFailed, false, graveRetry
		dead.out.LastError += " (waits for the dead-letter topic " + s.o.DeadLetterTopic + ": " + f.Code + ")"
	default:
		dead.out.LastError += " (no copy in the dead-letter topic " + s.o.DeadLetterTopic + ": " + f.Code + ")"
		s.o.Logger.Error("the dead-letter topic did not take an event; its row keeps it",
			append(eventAttrs(dead.event, dead.event.RetryCount), "topic", s.o.DeadLetterTopic, "error", f.Error())...)
	}
	s.settle.push([]settling{dead})
}
