package outboxtest

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	base := outbox.Event{
		ID: "e-1", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Topic: "orders", Key: []byte("k"),
		Payload: []byte(`{"a": 1, "b": 1.10}`), Headers: map[string]string{"h": "v"},
	}
	with := func(change func(*outbox.Event)) outbox.Event {
		e := base
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		want outbox.Event
		diff string
	}{
		"the same":          {base, ""},
		"any id":            {with(func(e *outbox.Event) { e.ID = "" }), ""},
		"the same JSON":     {with(func(e *outbox.Event) { e.Payload = []byte(`{"b":1.10,"a":1}`) }), ""},
		"another number":    {with(func(e *outbox.Event) { e.Payload = []byte(`{"b":1.1,"a":1}`) }), "Payload is"},
		"another id":        {with(func(e *outbox.Event) { e.ID = "e-2" }), `ID is "e-1", want "e-2"`},
		"another type":      {with(func(e *outbox.Event) { e.Type = "X" }), "Type is"},
		"another aggregate": {with(func(e *outbox.Event) { e.AggregateID = "X" }), "AggregateID is"},
		"no topic":          {with(func(e *outbox.Event) { e.Topic = "" }), "Topic is"},
		"no key":            {with(func(e *outbox.Event) { e.Key = nil }), `Key is "k", want NULL`},
		"an empty key":      {with(func(e *outbox.Event) { e.Key = []byte{} }), `Key is "k", want ""`},
		"a tombstone":       {with(func(e *outbox.Event) { e.Payload = nil }), "want NULL"},
		"other headers":     {with(func(e *outbox.Event) { e.Headers = map[string]string{"h": "w"} }), "Headers are"},
	} {
		diff := Diff([]outbox.Event{base}, c.want)
		if (diff == "") != (c.diff == "") || !strings.Contains(diff, c.diff) {
			t.Errorf("%s: %q, want %q", name, diff, c.diff)
		}
	}

	traced := with(func(e *outbox.Event) { e.Headers = map[string]string{"h": "v", "traceparent": "00", "tracestate": "x"} })
	if diff := Diff([]outbox.Event{traced}, base); diff != "" {
		t.Errorf("a trace context that nobody asked for: %s", diff)
	}
	if diff := Diff([]outbox.Event{base}, traced); diff == "" {
		t.Error("a missing trace context passed")
	}
	if len(traced.Headers) != 3 {
		t.Error("the event was changed")
	}
	if diff := Diff([]outbox.Event{base, base}, base); !strings.Contains(diff, "2 events, want 1; the first one too many is OrderCreated of Order o-71") {
		t.Error(diff)
	}
	if diff := Diff(nil, base); !strings.Contains(diff, "0 events, want 1; the first one missing") {
		t.Error(diff)
	}
	if diff := Diff(nil); diff != "" {
		t.Error(diff)
	}
}
