package relay

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// reportSent tells hooks and log of an acknowledged event.
func (s *sender) reportSent(e *Event, r Receipt, now, started time.Time) {
	var commitToAck time.Duration
	if !e.CreatedAt.IsZero() {
		commitToAck = e.Age + now.Sub(e.readAt)
	}
	s.o.Hooks.Sent(e, r, commitToAck, now.Sub(started))
	level, message := slog.LevelDebug, "event sent"
	if e.RetryCount > 0 || e.State == StateFailed {
		level, message = slog.LevelInfo, "event sent after failures"
	}
	if s.o.Logger.Enabled(context.Background(), level) {
		s.o.Logger.Log(context.Background(), level, message, append(eventAttrs(e, e.RetryCount),
			"topic", r.Topic, "partition", r.Partition, "offset", r.Offset)...)
	}
}

// report tells hooks and log of a failure, in the articles' fields, without payload.
func (s *sender) report(e *Event, f *Failure, next State) {
	s.o.Hooks.Failed(e, f, next)
	first := s.status.failed(f)
	level, message := slog.LevelWarn, "event failed, will be sent again"
	class, tries := f.Class, e.RetryCount
	if next == StateDead || f.Class == ClassRetriable {
		tries++ // as the table is about to say
	} else if f.Class == ClassPermanent {
		class = ClassUnavailable // within its grace time the cause may pass
	}
	switch {
	case next == StateDead:
		level, message = slog.LevelError, "event is dead, a person must act"
	case next == StateNew || f.Class != ClassRetriable:
		if !first {
			return // one line for an outage or a missing topic, not one an event and a try
		}
		message = "the destination does not take records, events wait at no cost"
	}
	s.o.Logger.Log(context.Background(), level, message, append(eventAttrs(e, tries),
		"class", string(class), "code", f.Code, "error", f.Text, "hint", f.Hint)...)
}

// eventAttrs are the log fields that tell which event is meant, and how often it was tried.
func eventAttrs(e *Event, tries int) []any {
	attrs := []any{"event_id", e.ID, "aggregate_id", e.AggregateID, "event_type", e.Type, "retry_count", tries}
	if id := traceID(e); id != "" {
		attrs = append(attrs, "trace_id", id)
	}
	return attrs
}

// traceID takes the trace id out of a W3C traceparent header, "" without one.
func traceID(e *Event) string {
	for _, h := range e.Headers {
		if h.Name == "traceparent" {
			if parts := strings.Split(string(h.Value), "-"); len(parts) >= 4 && len(parts[1]) == 32 {
				return parts[1]
			}
		}
	}
	return ""
}
