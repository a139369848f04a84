package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ColumnType says what a column takes, as far as that decides what may be written to it.
type ColumnType string

// The column types. What a payload column cannot hold is refused before the statement is sent.
const (
	// Bytes is BYTEA, BLOB, VARBINARY: every byte is kept.
	Bytes ColumnType = "bytes"
	// Text is TEXT, VARCHAR, LONGTEXT: valid UTF-8 only; PostgreSQL takes no NUL in it.
	Text ColumnType = "text"
	// JSON is PostgreSQL's json, MySQL's JSON, MariaDB's JSON and a text column of JSON on SQLite.
	// PostgreSQL, MariaDB and SQLite keep its bytes; MySQL normalises them.
	JSON ColumnType = "json"
	// JSONB is PostgreSQL's jsonb, which normalises what it is given.
	JSONB ColumnType = "jsonb"
	// UUID is PostgreSQL's and MariaDB's uuid, for EventIDType only.
	UUID ColumnType = "uuid"
	// UUIDBytes is BINARY(16) with a UUID's bytes in their usual order, for EventIDType only.
	UUIDBytes ColumnType = "uuid-bytes"
)

// Omit as a column's name says that the table has no such column.
const Omit = "-"

// Columns gives the table's own names for what the writer fills. An empty name means the name of
// the product's own table (the snake case of the field); Omit means that there is no such column.
// Writing an event that has a value for an omitted column is an error, except for ID, AggregateType
// and Type, which every event may carry.
type Columns struct {
	EventID       string // event_id
	AggregateType string // aggregate_type
	AggregateID   string // aggregate_id
	EventType     string // event_type
	Topic         string // topic
	MessageKey    string // message_key
	Payload       string // payload
	Headers       string // headers
}

// Lengths are the columns' limits in characters, as in VARCHAR(n). Zero means the limit of the
// product's own tables, which is the same on every database though PostgreSQL's columns are TEXT; a
// negative number means no limit.
type Lengths struct {
	EventID       int // 64
	AggregateType int // 255
	AggregateID   int // 255
	EventType     int // 255
	Topic         int // 249, which is Kafka's own limit
	MessageKey    int // 512
}

// Required names the fields that the table does not take as NULL, beside the names of the event and
// its aggregate, which are always required where there is a column. An event without one is refused
// before the statement.
type Required struct {
	Topic, MessageKey, Payload, Headers bool
}

// Options describe the outbox table and how it is written. The zero value is the product's own
// table. ArticlePostgres, ArticleMySQL and Debezium return the options of known tables.
type Options struct {
	// Table is the table's name, read as Dialect.QuoteTable does. Defaults to outbox_events.
	Table string

	// Columns maps what the writer fills to the table's columns.
	Columns Columns

	// Lengths are the limits of the text columns.
	Lengths Lengths

	// Required are the columns that take no NULL. The product's own table has none of these.
	Required Required

	// PayloadType is the payload column's type. Defaults to Bytes.
	PayloadType ColumnType

	// HeadersType is the type of the headers column, which takes a JSON object. Defaults to JSON on
	// PostgreSQL and to Text elsewhere, as in the product's own table.
	HeadersType ColumnType

	// EventIDType is the event id column's type: Text, UUID or UUIDBytes. The last two take only
	// UUIDs. Defaults to Text.
	EventIDType ColumnType

	// KeyType is the type of the message key's column: Text or Bytes. Defaults to Text.
	KeyType ColumnType

	// Set fills further columns of every row with SQL expressions, which the database evaluates:
	// {"created_at": "NOW()", "status": "'PENDING'"}. Column names are quoted, expressions are
	// pasted as they are: never build one from input. Nil: no further columns.
	Set map[string]string

	// MaxPayloadBytes is the largest payload that Write accepts. Defaults to 8 MiB, which passes
	// through the default max_allowed_packet of every server; negative: no limit. Kafka's own limit
	// (max.message.bytes, 1 MiB unless raised) is the relay's to check.
	MaxPayloadBytes int

	// TraceContext returns the W3C trace context of ctx, empty strings when there is none. It is
	// stored in the headers traceparent and tracestate unless the event carries its own traceparent
	// or the table has no headers column. Nil: none is stored.
	TraceContext func(ctx context.Context) (traceparent, tracestate string)
}

const defaultMaxPayloadBytes = 8 << 20

// columnNames lists the columns that an INSERT fills.
func (o Options) columnNames() []string {
	c := o.Columns
	names := slices.DeleteFunc([]string{
		c.EventID, c.AggregateType, c.AggregateID, c.EventType, c.Topic, c.MessageKey, c.Payload, c.Headers,
	}, func(name string) bool { return name == Omit })
	return append(names, sortedKeys(o.Set)...)
}

// WithDefaults returns a copy with every default filled in, as New uses it.
func (o Options) WithDefaults(d Dialect) Options {
	setDefault(&o.Table, "outbox_events")
	setDefault(&o.PayloadType, Bytes)
	setDefault(&o.EventIDType, Text)
	setDefault(&o.KeyType, Text)
	if d == Postgres {
		setDefault(&o.HeadersType, JSON)
	}
	setDefault(&o.HeadersType, Text)
	setDefault(&o.MaxPayloadBytes, defaultMaxPayloadBytes)
	c := &o.Columns
	setDefault(&c.EventID, "event_id")
	setDefault(&c.AggregateType, "aggregate_type")
	setDefault(&c.AggregateID, "aggregate_id")
	setDefault(&c.EventType, "event_type")
	setDefault(&c.Topic, "topic")
	setDefault(&c.MessageKey, "message_key")
	setDefault(&c.Payload, "payload")
	setDefault(&c.Headers, "headers")
	l := &o.Lengths
	setDefault(&l.EventID, 64)
	setDefault(&l.AggregateType, 255)
	setDefault(&l.AggregateID, 255)
	setDefault(&l.EventType, 255)
	setDefault(&l.Topic, 249)
	setDefault(&l.MessageKey, 512)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check reports everything that is wrong with options whose defaults are filled in.
func (o Options) check(d Dialect) error {
	var errs []error
	if !d.valid() {
		_, err := ParseDialect(string(d))
		errs = append(errs, err)
	}
	if _, err := SplitTable(o.Table); err != nil {
		errs = append(errs, fmt.Errorf("Options.Table: %w", err))
	}
	if o.Columns.Payload == Omit {
		errs = append(errs, errors.New("Options.Columns.Payload: a table without a payload column cannot be an outbox"))
	}
	oneOf := func(field string, got ColumnType, allowed ...ColumnType) {
		for _, a := range allowed {
			if got == a {
				return
			}
		}
		errs = append(errs, fmt.Errorf("Options.%s: %q is not possible here, use one of %q", field, got, allowed))
	}
	oneOf("PayloadType", o.PayloadType, Bytes, Text, JSON, JSONB)
	oneOf("HeadersType", o.HeadersType, Bytes, Text, JSON, JSONB)
	oneOf("EventIDType", o.EventIDType, Text, UUID, UUIDBytes)
	oneOf("KeyType", o.KeyType, Text, Bytes)
	if d != Postgres && (o.PayloadType == JSONB || o.HeadersType == JSONB) {
		errs = append(errs, fmt.Errorf("Options: jsonb is PostgreSQL's, use json on %s", d))
	}
	seen := map[string]bool{}
	for _, name := range o.columnNames() {
		if seen[name] {
			errs = append(errs, fmt.Errorf("Options: column %q is filled twice", name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}
