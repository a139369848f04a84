package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/postrider/postrider/outbox"
)

// Diff says in one sentence how the events differ from the wanted ones, "" when they do not. A wanted
// event with an empty ID stands for any id, and one without trace headers for any trace context. Two
// payloads that are JSON are equal when their values are, numbers compared by their digits: columns
// such as jsonb do not keep spaces and order.
func Diff(got []outbox.Event, want ...outbox.Event) string {
	for i := range min(len(got), len(want)) {
		if diff := diffEvent(got[i], want[i]); diff != "" {
			return fmt.Sprintf("event %d: %s", i, diff)
		}
	}
	switch {
	case len(got) > len(want):
		return fmt.Sprintf("%d events, want %d; the first one too many is %s", len(got), len(want), name(got[len(want)]))
	case len(got) < len(want):
		return fmt.Sprintf("%d events, want %d; the first one missing is %s", len(got), len(want), name(want[len(got)]))
	}
	return ""
}

func name(e outbox.Event) string {
	return fmt.Sprintf("%s of %s %s", e.Type, e.AggregateType, e.AggregateID)
}

func diffEvent(got, want outbox.Event) string {
	for _, f := range []struct{ name, got, want string }{
		{"ID", got.ID, want.ID},
		{"AggregateType", got.AggregateType, want.AggregateType},
		{"AggregateID", got.AggregateID, want.AggregateID},
		{"Type", got.Type, want.Type},
		{"Topic", got.Topic, want.Topic},
	} {
		if f.got != f.want && (f.name != "ID" || f.want != "") {
			return fmt.Sprintf("%s is %q, want %q", f.name, f.got, f.want)
		}
	}
	switch {
	case (got.Key == nil) != (want.Key == nil) || !bytes.Equal(got.Key, want.Key):
		return fmt.Sprintf("Key is %s, want %s", show(got.Key), show(want.Key))
	case (got.Payload == nil) != (want.Payload == nil) || !bytes.Equal(got.Payload, want.Payload) && !sameJSON(got.Payload, want.Payload):
		return fmt.Sprintf("Payload is %s, want %s", show(got.Payload), show(want.Payload))
	}
	return diffHeaders(got.Headers, want.Headers)
}

// show tells NULL from an empty value.
func show(b []byte) string {
	if b == nil {
		return "NULL"
	}
	return fmt.Sprintf("%q", b)
}

func sameJSON(a, b []byte) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decode(text []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

func diffHeaders(got, want map[string]string) string {
	if _, traced := want["traceparent"]; !traced {
		got = maps.Clone(got)
		delete(got, "traceparent")
		delete(got, "tracestate")
	}
	if len(got) == 0 && len(want) == 0 || maps.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("Headers are %q, want %q", got, want)
}
