package outbox

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fieldNames are the Event's own names, for messages.
var fieldNames = [fieldCount]string{
	"ID", "AggregateType", "AggregateID", "Type", "Topic", "Key", "Payload", "Headers",
}

// fault builds a ValidationError on a field. offset is -1 when the whole value is meant.
func (t *table) fault(f field, offset int, reason, fix string) *ValidationError {
	return &ValidationError{Field: fieldNames[f], Column: t.columns[f], Offset: offset, Reason: reason, Fix: fix}
}

// row validates one event and turns it into arguments. The row's id is set even when there is a fault.
func (t *table) row(e *Event, traceparent, tracestate string) (r row, fault *ValidationError) {
	r = row{id: e.ID, bytes: rowOverheadBytes}
	if r.id == "" {
		r.id = NewID()
	}
	if fault = t.names(e, &r); fault != nil {
		return r, fault
	}
	if r.args[topicField], fault = t.topic(e.Topic); fault != nil {
		return r, fault
	}
	if r.args[keyField], fault = t.key(e.Key); fault != nil {
		return r, fault
	}
	if r.args[payloadField], fault = t.payload(e.Payload); fault != nil {
		return r, fault
	}
	headers, fault := t.headers(e.Headers, traceparent, tracestate)
	if fault != nil {
		return r, fault
	}
	r.args[headersField] = bind(headers, t.HeadersType)
	r.bytes += len(e.Topic) + len(e.Key) + len(e.Payload) + len(headers)
	return r, nil
}

// bind gives a driver bytes for a binary column and a string for every other one: drivers send a
// []byte as binary, which json and text columns do not take. Nil becomes NULL.
func bind(value []byte, ct ColumnType) any {
	switch {
	case value == nil:
		return nil
	case ct == Bytes:
		return value
	}
	return string(value)
}

// names checks and binds the columns that every row must fill.
func (t *table) names(e *Event, r *row) *ValidationError {
	for _, n := range [...]struct {
		field field
		value string
		max   int
	}{
		{idField, r.id, t.Lengths.EventID},
		{aggregateTypeField, e.AggregateType, t.Lengths.AggregateType},
		{aggregateIDField, e.AggregateID, t.Lengths.AggregateID},
		{typeField, e.Type, t.Lengths.EventType},
	} {
		if !t.has(n.field) {
			continue
		}
		if fault := t.checkName(n.field, n.value, n.max); fault != nil {
			return fault
		}
		r.args[n.field] = n.value
		r.bytes += len(n.value)
	}
	if t.has(idField) && t.EventIDType != Text {
		return t.uuid(r)
	}
	return nil
}

func (t *table) checkName(f field, value string, max int) *ValidationError {
	if value == "" {
		return t.fault(f, -1, "is empty", "set it, or map the column to \"-\" where the table has none")
	}
	for i, c := range value {
		switch {
		case c == utf8.RuneError && invalidAt(value, i):
			return t.fault(f, i, "not valid UTF-8", "names are UTF-8 text")
		case unicode.IsControl(c):
			return t.fault(f, i, fmt.Sprintf("control character %U", c), "names are printable text")
		}
	}
	return t.length(f, value, max)
}

// length compares characters, as VARCHAR(n) does, and not bytes.
func (t *table) length(f field, value string, max int) *ValidationError {
	if max < 0 || len(value) <= max {
		return nil
	}
	if n := utf8.RuneCountInString(value); n > max {
		return t.fault(f, -1, fmt.Sprintf("has %d characters and the column takes %d", n, max),
			"shorten it, or widen the column and set Options.Lengths")
	}
	return nil
}

// invalidAt reports whether the rune error that ranging over s met at i is a broken byte rather than
// a U+FFFD that was written as such.
func invalidAt(s string, i int) bool {
	_, size := utf8.DecodeRuneInString(s[i:])
	return size == 1
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, -1 when all is.
func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func (t *table) uuid(r *row) *ValidationError {
	raw, err := hex.DecodeString(strings.ReplaceAll(r.id, "-", ""))
	if err != nil || len(raw) != 16 || len(r.id) != 36 ||
		r.id[8] != '-' || r.id[13] != '-' || r.id[18] != '-' || r.id[23] != '-' {
		return t.fault(idField, -1, "is not a UUID, which the column takes alone", "leave it empty, or use outbox.NewID")
	}
	r.id = strings.ToLower(r.id) // the form in which the database gives it back
	r.args[idField] = r.id
	if t.EventIDType == UUIDBytes {
		r.args[idField] = raw
	}
	return nil
}

// absent handles a value for a column that is not there, and NULL for one that takes none. A nil
// error with done set means that the field is settled as NULL.
func (t *table) absent(f field, given, required bool) (done bool, fault *ValidationError) {
	switch {
	case given && !t.has(f):
		return true, t.fault(f, -1, "the table has no column for it", "leave it empty, or name the column in Options.Columns")
	case given:
		return false, nil
	case required && t.has(f):
		return true, t.fault(f, -1, "is missing and the column takes no NULL", "set it")
	}
	return true, nil
}

// topic holds a name to Kafka's own rule, since Kafka would refuse the record for good.
func (t *table) topic(topic string) (any, *ValidationError) {
	done, fault := t.absent(topicField, topic != "", t.Required.Topic)
	if done {
		return nil, fault
	}
	const rule = "Kafka takes 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither . nor .. alone"
	if topic == "." || topic == ".." {
		return nil, t.fault(topicField, -1, "is not a topic name", rule)
	}
	for i := range len(topic) {
		c := topic[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return nil, t.fault(topicField, i, "is not a topic name", rule)
	}
	if len(topic) > 249 {
		return nil, t.fault(topicField, -1, fmt.Sprintf("is not a topic name: has %d characters", len(topic)), rule)
	}
	return topic, t.length(topicField, topic, t.Lengths.Topic)
}

func (t *table) key(key []byte) (any, *ValidationError) {
	done, fault := t.absent(keyField, key != nil, t.Required.MessageKey)
	if done {
		return nil, fault
	}
	if t.KeyType == Text {
		if i := invalidUTF8(key); i >= 0 {
			return nil, t.fault(keyField, i, "not valid UTF-8", "encode it as text, or use a binary column and Options.KeyType")
		}
		if i := bytes.IndexByte(key, 0); i >= 0 {
			return nil, t.fault(keyField, i, "U+0000 cannot be stored in text", "encode it as text, or use a binary column and Options.KeyType")
		}
		return string(key), t.length(keyField, string(key), t.Lengths.MessageKey)
	}
	if max := t.Lengths.MessageKey; max >= 0 && len(key) > max {
		return nil, t.fault(keyField, -1, fmt.Sprintf("has %d bytes and the column takes %d", len(key), max),
			"shorten it, or widen the column and set Options.Lengths")
	}
	return key, nil
}

func (t *table) payload(payload []byte) (any, *ValidationError) {
	done, fault := t.absent(payloadField, payload != nil, t.Required.Payload)
	if done {
		return nil, fault
	}
	if max := t.MaxPayloadBytes; max >= 0 && len(payload) > max {
		return nil, t.fault(payloadField, -1, fmt.Sprintf("has %d bytes and the limit is %d", len(payload), max),
			"send less, or raise Options.MaxPayloadBytes and the limits of the database and the topic")
	}
	switch t.PayloadType {
	case Text:
		if i := invalidUTF8(payload); i >= 0 {
			return nil, t.fault(payloadField, i, "not valid UTF-8", "use "+t.binaryType())
		}
		if i := bytes.IndexByte(payload, 0); i >= 0 && t.dialect == Postgres {
			return nil, t.fault(payloadField, i, "U+0000 cannot be stored in text", "use bytea")
		}
	case JSON, JSONB:
		if f := checkJSON(payload, t.json); f != nil {
			return nil, t.fault(payloadField, f.offset, f.reason, f.fix)
		}
	}
	return bind(payload, t.PayloadType), nil
}

func (t *table) binaryType() string {
	switch t.dialect {
	case Postgres:
		return "bytea"
	case SQLite:
		return "BLOB"
	}
	return "LONGBLOB"
}
