package relay

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func order() *Event {
	key := "o-71"
	return &Event{ID: "e-1", AggregateType: "order", AggregateID: "o-71", Type: "OrderCreated", Key: &key, Payload: []byte(`{"a":1}`),
		CreatedAt: time.Date(2026, 3, 4, 5, 6, 7, 80_000_000, time.FixedZone("x", 3600))}
}

func toOrders(e *Event) Destination { return Destination{Topic: "orders", Key: e.Key} }

func TestEncoder_Record(t *testing.T) {
	t.Parallel()
	e, two := order(), int32(2)
	e.Headers = []Header{
		{"x-tenant", []byte("7")}, {"traceparent", []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
		{"x-tenant", []byte("8")}, {"tracestate", []byte("a=b")}, {"empty", nil},
	}
	d := toOrders(e)
	d.Partition = &two
	rec, failure := (&Encoder{}).Encode(e, d)
	require.Nil(t, failure)
	require.Equal(t, Record{
		Topic: "orders", Partition: &two, Key: []byte("o-71"), Value: []byte(`{"a":1}`),
		Headers: []Header{
			{"event_id", []byte("e-1")}, {"event_type", []byte("OrderCreated")}, {"aggregate_type", []byte("order")},
			{"aggregate_id", []byte("o-71")}, {"content-type", []byte("application/json")},
			{"x-tenant", []byte("7")}, {"traceparent", []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
			{"x-tenant", []byte("8")}, {"tracestate", []byte("a=b")}, {"empty", nil},
		},
	}, rec)
}

func TestEncoder_Keys(t *testing.T) {
	t.Parallel()
	empty := ""
	rec, _ := (&Encoder{}).Encode(order(), Destination{Topic: "t"})
	require.Nil(t, rec.Key, "no key")
	rec, _ = (&Encoder{}).Encode(order(), Destination{Topic: "t", Key: &empty})
	require.NotNil(t, rec.Key, "an empty key is a key (case O05)")
	require.Empty(t, rec.Key)
}

func TestEncoder_ContentType(t *testing.T) {
	t.Parallel()
	types := func(c Encoder, hs ...Header) (found []string) {
		e := order()
		e.Headers = hs
		rec, failure := c.Encode(e, toOrders(e))
		require.Nil(t, failure)
		for _, h := range rec.Headers {
			if h.Name == "content-type" || h.Name == "Content-Type" {
				found = append(found, h.Name+": "+string(h.Value))
			}
		}
		return found
	}
	require.Equal(t, []string{"content-type: application/json"}, types(Encoder{}))
	require.Equal(t, []string{"content-type: application/avro"}, types(Encoder{ContentType: "application/avro"}))
	require.Equal(t, []string{"content-type: text/plain"},
		types(Encoder{ContentType: "application/avro"}, Header{"Content-Type", []byte("text/plain")}, Header{"content-type", []byte("text/html")}),
		"the row's own goes first, and there is one")
}

func TestEncoder_HeadersThatDoNotLeave(t *testing.T) {
	t.Parallel()
	e := order()
	e.Headers = []Header{
		{"event_id", []byte("forged")}, {"EVENT_ID", []byte("forged")}, {"Event_Type", []byte("forged")}, {"aggregate_type", []byte("forged")},
		{"aggregate_id", []byte("forged")}, {"Authorization", []byte("Bearer secret")}, {"cookie", []byte("secret")}, {"x", []byte("y")},
	}
	c := Encoder{DenyHeaders: []string{"authorization", "Cookie"}}
	rec, failure := c.Encode(e, toOrders(e))
	require.Nil(t, failure)
	require.Equal(t, []Header{{"x", []byte("y")}}, rec.Headers[5:])
	require.Equal(t, "e-1", string(rec.Headers[0].Value), "the identity is the row's")
}

func TestEncoder_Tombstones(t *testing.T) {
	t.Parallel()
	for _, envelope := range []Envelope{"", EnvelopeNone, EnvelopeJSON} {
		e := order()
		e.Payload = nil
		rec, failure := (&Encoder{Envelope: envelope}).Encode(e, toOrders(e))
		require.Nil(t, failure)
		require.Nil(t, rec.Value, "NULL is a tombstone in every envelope")
		require.Len(t, rec.Headers, 5)
	}
	e := order()
	e.Payload = []byte{}
	rec, failure := (&Encoder{}).Encode(e, toOrders(e))
	require.Nil(t, failure)
	require.NotNil(t, rec.Value, "an empty payload is none")
}

func TestEncoder_EnvelopeJSON(t *testing.T) {
	t.Parallel()
	e := order()
	e.ID, e.Type = `e"1`, "Größe<>&\n"
	e.Payload = []byte("{\"b\":1, \"a\":2,\"b\":3,\t\"amt\": 10.50}\n")
	rec, failure := (&Encoder{Envelope: EnvelopeJSON}).Encode(e, toOrders(e))
	require.Nil(t, failure)
	require.Equal(t, "{\"eventId\":\"e\\\"1\",\"eventType\":\"Größe\\u003c\\u003e\\u0026\\n\",\"aggregateId\":\"o-71\","+
		"\"occurredAt\":\"2026-03-04T04:06:07.08Z\",\"payload\":{\"b\":1, \"a\":2,\"b\":3,\t\"amt\": 10.50}\n}", string(rec.Value))
	require.True(t, json.Valid(rec.Value))
	e.CreatedAt = time.Time{}
	rec, failure = (&Encoder{Envelope: EnvelopeJSON}).Encode(e, toOrders(e))
	require.Nil(t, failure)
	require.NotContains(t, string(rec.Value), "occurredAt", "unknown is left out")
}

// TestCase_W05_Encoder: digits pass untouched, in an envelope too.
func TestCase_W05_Encoder(t *testing.T) {
	t.Parallel()
	const digits = `{"account":1234567890123456789,"wei":19876543210987654321,"p":1.10,"e":1E400}`
	for _, envelope := range []Envelope{EnvelopeNone, EnvelopeJSON} {
		e := order()
		e.Payload = []byte(digits)
		rec, failure := (&Encoder{Envelope: envelope}).Encode(e, toOrders(e))
		require.Nil(t, failure)
		require.Contains(t, string(rec.Value), digits)
	}
}

func TestEncoder_EnvelopeOfWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "secret text", `{"secret":`, "{} {}", "\xff"} {
		e := order()
		e.Payload = []byte(payload)
		_, failure := (&Encoder{Envelope: EnvelopeJSON}).Encode(e, toOrders(e))
		require.NotNil(t, failure, payload)
		require.Equal(t, ClassPermanent, failure.Class)
		require.Equal(t, "PAYLOAD_NOT_JSON", failure.Code)
		require.NotContains(t, failure.Error(), "secret", "payloads never appear in errors")
	}
	e := order()
	e.Payload = []byte("null")
	rec, failure := (&Encoder{Envelope: EnvelopeJSON}).Encode(e, toOrders(e))
	require.Nil(t, failure)
	require.Contains(t, string(rec.Value), `"payload":null}`, "the JSON null is a payload")
}

func TestFailure_Error(t *testing.T) {
	t.Parallel()
	f := &Failure{Class: ClassPermanent, Code: "MESSAGE_TOO_LARGE", Text: "record is 150312 bytes, topic limit 100000"}
	require.Equal(t, "[permanent] MESSAGE_TOO_LARGE: record is 150312 bytes, topic limit 100000", f.Error())
	f.Hint = "raise max.message.bytes"
	require.Equal(t, "[permanent] MESSAGE_TOO_LARGE: record is 150312 bytes, topic limit 100000 (raise max.message.bytes)", f.Error())
}

func TestTraceID(t *testing.T) {
	t.Parallel()
	e := order()
	require.Empty(t, traceID(e))
	for text, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "0af7651916cd43dd8448eb211c80319c",
		"": "", "00-short-b7ad6b7169203331-01": "", "nonsense": "",
	} {
		e.Headers = []Header{{"traceparent", []byte(text)}}
		require.Equal(t, want, traceID(e), text)
	}
}
