package relay

import (
	"context"
	"strconv"
)

// grave is a dead event whose copy is still to be written to the dead-letter topic. Its row is marked
// DEAD only afterwards, so that a crash in between writes the copy again and never loses it.
type grave struct {
	settling
	rec Record
}

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
	defer s.mu.Unlock()
	s.graves = append(s.graves, grave{settling: dead, rec: rec})
}

// digGraves writes the queued copies and then marks the rows. The row is the truth: a copy that is
// refused is noted in last_error and does not keep the event from becoming DEAD.
func (s *sender) digGraves(ctx context.Context) {
	s.mu.Lock()
	graves := s.graves
	s.graves = nil
	s.mu.Unlock()
	if len(graves) == 0 {
		return
	}
	recs := make([]Record, len(graves))
	for i := range graves {
		recs[i] = graves[i].rec
	}
	s.o.Sink.Write(ctx, recs, func(i int, r Result) {
		dead := graves[i].settling
		if r.Failure != nil {
			dead.out.LastError += " (no copy in the dead-letter topic " + s.o.DeadLetterTopic + ": " + r.Failure.Code + ")"
			s.o.Logger.Error("the dead-letter topic did not take an event; its row keeps it",
				append(eventAttrs(dead.event), "topic", s.o.DeadLetterTopic, "error", r.Failure.Error())...)
		}
		s.settle.push([]settling{dead})
	})
}
