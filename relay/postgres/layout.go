package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/relay"
)

// layout is the table as the relay uses it: columns found, types known, expressions ready for SQL.
type layout struct {
	catalog *catalog
	table   string // quoted
	cols    relay.Columns
	claim   relay.ClaimMode
	lanes   int32 // claim: lanes: how many there are
	onDead  string
	own     bool
	delete  bool   // sent rows are deleted
	zone    string // of naive time columns
	timeout string // the claim timeout as an SQL interval

	new, sending, sent, failed, dead string // the state words as typed SQL literals

	gapless     bool // ids do not come from a sequence in order
	statusIndex bool // an index starts with the status
	lastError   int  // most characters of last_error
	notices     []string
}

// maxLastError bounds what is kept in an unlimited last_error column.
const maxLastError = 4000

type field struct {
	name   string
	column *string
}

// fields lists the logical columns by their names in the configuration.
func fields(c *relay.Columns) []field {
	return []field{
		{"id", &c.ID}, {"event_id", &c.EventID}, {"aggregate_type", &c.AggregateType},
		{"aggregate_id", &c.AggregateID}, {"event_type", &c.EventType}, {"topic", &c.Topic},
		{"message_key", &c.MessageKey}, {"payload", &c.Payload}, {"headers", &c.Headers},
		{"status", &c.Status}, {"retry_count", &c.RetryCount}, {"next_retry_at", &c.NextRetryAt},
		{"last_error", &c.LastError}, {"created_at", &c.CreatedAt}, {"updated_at", &c.UpdatedAt},
		{"sent_at", &c.SentAt}, {"kafka_topic", &c.KafkaTopic}, {"kafka_partition", &c.KafkaPartition},
		{"kafka_offset", &c.KafkaOffset},
	}
}

func (l *layout) thing() string { return "table " + l.table }

func (l *layout) usage(reason, fix string) error {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: l.thing(), Reason: reason, Fix: fix}
}

func (l *layout) notice(format string, args ...any) {
	l.notices = append(l.notices, fmt.Sprintf(format, args...))
}

// resolve finds the columns: the first that exists of alternatives, none where it is optional.
func (l *layout) resolve() error {
	var left, lacks, keys []string
	for _, f := range fields(&l.cols) {
		spec, optional := strings.CutSuffix(*f.column, "?")
		*f.column = ""
		if spec == "" {
			continue
		}
		names := strings.Split(spec, "|")
		i := slices.IndexFunc(names, func(name string) bool { _, ok := l.catalog.column(name); return ok })
		switch {
		case i >= 0:
			*f.column = names[i]
		case optional:
			left = append(left, f.name)
		default:
			lacks = append(lacks, strings.Join(names, " or ")+" for "+f.name)
			keys = append(keys, "outbox.columns."+f.name)
		}
	}
	if len(lacks) > 0 {
		return l.usage(fmt.Sprintf("has no column %s (it has %s)", strings.Join(lacks, ", "), l.catalog.columnNames()),
			fmt.Sprintf("set %s, or write \"-\" there if the table has none", strings.Join(keys, ", ")))
	}
	if len(left) > 0 {
		l.notice("%s has no columns for %s: what they hold is not kept", l.thing(), strings.Join(left, ", "))
	}
	if l.cols.ID == "" || l.cols.Payload == "" {
		return l.usage("the columns of id and payload are not both named", "set outbox.columns.id and outbox.columns.payload")
	}
	return nil
}

// col is the quoted column of the alias t, NULL of the type when the table has none.
func (l *layout) col(name, typ string) string {
	if name == "" {
		return "NULL::" + typ
	}
	return "t." + quote(name)
}

func (l *layout) text(name string) string {
	if name == "" {
		return "NULL::text"
	}
	return "t." + quote(name) + "::text"
}

// payload is the column's own bytes or text; nothing parses or re-renders it on the way.
func (l *layout) payload() string {
	if c, _ := l.catalog.column(l.cols.Payload); c.kind == "bytea" {
		return l.col(l.cols.Payload, "bytea")
	}
	return l.text(l.cols.Payload)
}

// key is the ordering key.
func (l *layout) key() string {
	switch {
	case l.cols.MessageKey == "":
		return l.text(l.cols.AggregateID)
	case l.cols.AggregateID == "":
		return l.text(l.cols.MessageKey)
	}
	return "coalesce(" + l.text(l.cols.MessageKey) + ", " + l.text(l.cols.AggregateID) + ")"
}

func (l *layout) naive(name string) bool {
	c, _ := l.catalog.column(name)
	return c.kind == "timestamp"
}

// instant is a time column as timestamptz.
func (l *layout) instant(name string) string {
	if name == "" {
		return "NULL::timestamptz"
	}
	if l.naive(name) {
		return "(t." + quote(name) + " AT TIME ZONE " + lit(l.zone) + ")"
	}
	return "t." + quote(name)
}

// local turns a timestamptz expression into what the column holds.
func (l *layout) local(name, expr string) string {
	if l.naive(name) {
		return "(" + expr + " AT TIME ZONE " + lit(l.zone) + ")"
	}
	return expr
}

// now is the time that decides what is due: stable within a statement, so that an index can be used.
func (l *layout) now(name string) string { return l.local(name, "statement_timestamp()") }

// clock is the time that is written.
func (l *layout) clock(name string) string { return l.local(name, "clock_timestamp()") }

// claimColumn carries a claim's time, which is its token.
func (l *layout) claimColumn() string {
	if l.cols.UpdatedAt != "" {
		return l.cols.UpdatedAt
	}
	return l.cols.NextRetryAt
}

// failedIsNew: the table has one word for both, and a failed row is told by its attempts.
func (l *layout) failedIsNew() bool { return l.cols.Status != "" && l.new == l.failed }

func (l *layout) status() string { return "t." + quote(l.cols.Status) }

// isNew is a condition on a row of the alias t, as are the following.
func (l *layout) isNew() string {
	if l.cols.Status == "" {
		return "TRUE"
	}
	return l.status() + " = " + l.new
}

// byID marks a condition on rows that are looked up by id. An index of the state would find them too, and all
// other rows of that state first, however many they have become since the statistics were taken. And the statistics
// are not asked: taken while all was SENT they promise one unsent row, for which a nested loop over a mark's whole
// list looks cheap, and it then runs once for each row of a backlog. Of a CASE the planner takes that half of all rows
// pass.
func byID(condition string) string { return "CASE WHEN " + condition + " THEN TRUE ELSE FALSE END" }

// open is the condition for NEW or FAILED.
func (l *layout) open() string {
	switch {
	case l.cols.Status == "":
		return "TRUE"
	case l.failedIsNew():
		return l.isNew()
	}
	return l.status() + " IN (" + l.new + ", " + l.failed + ")"
}

// itsTime is the condition that next_retry_at has come, or means nothing: NULL, and the infinity of a dead
// row that a person made NEW by hand.
func (l *layout) itsTime() string {
	if l.cols.NextRetryAt == "" {
		return "TRUE"
	}
	c := l.col(l.cols.NextRetryAt, "timestamptz")
	return fmt.Sprintf("(%s IS NULL OR %s <= %s OR %s = 'infinity')", c, c, l.now(l.cols.NextRetryAt), c)
}

// abandoned is the condition for a claim older than the claim timeout.
func (l *layout) abandoned() string {
	if l.sending == "" {
		return "FALSE"
	}
	c := l.claimColumn()
	return fmt.Sprintf("(%s = %s AND %s <= %s)", l.status(), l.sending, l.col(c, "timestamptz"),
		l.local(c, "(statement_timestamp() - interval '"+l.timeout+"')"))
}

// attempts is retry_count, 0 where there is none.
func (l *layout) attempts() string {
	if l.cols.RetryCount == "" {
		return "0"
	}
	return "coalesce(" + l.col(l.cols.RetryCount, "int4") + ", 0)"
}

// size estimates what a row counts against byte limits without reading values that are stored apart.
func (l *layout) size(exact bool) string {
	c, _ := l.catalog.column(l.cols.Payload)
	payload := "pg_column_size(" + l.col(l.cols.Payload, "bytea") + ")"
	switch {
	case exact || c.kind == "bytea" || c.kind == "text" || c.kind == "varchar":
		payload = "octet_length(" + l.payload() + ")" // of bytea and text the length is known without reading
	}
	headers := "0"
	if l.cols.Headers != "" {
		headers = "coalesce(pg_column_size(" + l.col(l.cols.Headers, "json") + "), 0)"
		if exact {
			headers = "coalesce(octet_length(" + l.text(l.cols.Headers) + "), 0)"
		}
	}
	names := "0"
	if exact {
		names = fmt.Sprintf("octet_length(concat(%s, %s, %s, %s, %s, %s))", l.eventID(), l.text(l.cols.AggregateType),
			l.text(l.cols.AggregateID), l.text(l.cols.EventType), l.text(l.cols.Topic), l.key())
	}
	return fmt.Sprintf("least(256::int8 + coalesce(%s, 0) + %s + %s, 2000000000)::int4", payload, headers, names)
}

// eventID is the event's id: the row's where the table has no other.
func (l *layout) eventID() string {
	if l.cols.EventID == "" {
		return l.text(l.cols.ID)
	}
	return l.text(l.cols.EventID)
}
