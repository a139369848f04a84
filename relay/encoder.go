package relay

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Envelope says what the record's value is.
type Envelope string

// The envelopes.
const (
	EnvelopeNone Envelope = "none" // the payload's bytes as they are
	EnvelopeJSON Envelope = "json" // {"eventId", "eventType", "aggregateId", "occurredAt", "payload"}
)

// DefaultContentType is the content-type header of events whose row names none.
const DefaultContentType = "application/json"

// Encoder turns an event into its record (profile postrider).
type Encoder struct {
	Envelope    Envelope // defaults to EnvelopeNone
	ContentType string   // defaults to DefaultContentType
	DenyHeaders []string // row headers that never leave (credentials); names compare without case
}

// identityHeaders are written from the row's columns; a row header of the same name, in any case, is
// left out, so that the inbox never finds two ids.
var identityHeaders = []string{"event_id", "event_type", "aggregate_type", "aggregate_id"}

// Encode builds the record for the destination. A null payload is a tombstone in every envelope.
func (c *Encoder) Encode(e *Event, d Destination) (Record, *Failure) {
	rec := Record{Topic: d.Topic, Partition: d.Partition, Headers: c.headers(e)}
	if d.Key != nil {
		rec.Key = []byte(*d.Key)
	}
	if e.Payload == nil {
		return rec, nil
	}
	rec.Value = e.Payload
	if c.Envelope == EnvelopeJSON {
		value, failure := envelope(e)
		if failure != nil {
			return Record{}, failure
		}
		rec.Value = value
	}
	return rec, nil
}

func (c *Encoder) headers(e *Event) []Header {
	hs := make([]Header, 0, 5+len(e.Headers))
	own := [5]struct{ name, value string }{{"event_id", e.ID}, {"event_type", e.Type}, {"aggregate_type", e.AggregateType},
		{"aggregate_id", e.AggregateID}, {"content-type", c.contentType(e)}}
	size := 0
	for i := range own {
		size += len(own[i].value)
	}
	values := make([]byte, 0, size) // of all, in one allocation: this is the hot path
	for i := range own {
		first := len(values)
		values = append(values, own[i].value...)
		hs = append(hs, Header{own[i].name, values[first:len(values):len(values)]})
	}
	for _, h := range e.Headers {
		if !strings.EqualFold(h.Name, "content-type") && !contains(identityHeaders, h.Name) && !contains(c.DenyHeaders, h.Name) {
			hs = append(hs, h)
		}
	}
	return hs
}

// contentType lets the row's own header win, since only the service knows what it wrote.
func (c *Encoder) contentType(e *Event) string {
	for _, h := range e.Headers {
		if strings.EqualFold(h.Name, "content-type") {
			return string(h.Value)
		}
	}
	if c.ContentType != "" {
		return c.ContentType
	}
	return DefaultContentType
}

// contains compares without case.
func contains(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// envelope splices the payload in byte for byte: numbers, spaces and key order stay as the service
// wrote them (case W05: a re-encode would round large integers).
func envelope(e *Event) ([]byte, *Failure) {
	if !json.Valid(e.Payload) {
		return nil, &Failure{Class: ClassPermanent, Code: "PAYLOAD_NOT_JSON",
			Text: "the payload is not JSON and cannot stand inside envelope: json",
			Hint: "set record.envelope: none, or write JSON payloads"}
	}
	b := bytes.NewBuffer(make([]byte, 0, len(e.Payload)+192))
	field := func(lead, name, value string) {
		b.WriteString(lead)
		b.WriteString(`"` + name + `":`)
		text, _ := json.Marshal(value) // a string always encodes
		b.Write(text)
	}
	field("{", "eventId", e.ID)
	field(",", "eventType", e.Type)
	field(",", "aggregateId", e.AggregateID)
	if !e.CreatedAt.IsZero() {
		field(",", "occurredAt", e.CreatedAt.UTC().Format(time.RFC3339Nano))
	}
	b.WriteString(`,"payload":`)
	b.Write(e.Payload)
	b.WriteByte('}')
	return b.Bytes(), nil
}
