package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// layout is the table as the relay uses it: expressions ready for SQL, each quoted. An expression of a
// column that the table lacks is "NULL".
type layout struct {
	table   string
	cols    relay.Columns // resolved, "" where the table has none
	states  relay.States
	own     bool
	delete  bool // sent rows are deleted
	claim   relay.ClaimMode
	onDead  string
	guarded bool // ids may name another row later: marks are conditional on the event id too
	clocks  map[string]clock
	nullNRA bool // next_retry_at may be NULL
	key     string
	eventID string
	fresh   string // FROM of new rows, in the order of rowid
	rest    string // FROM of failed, dead and claimed rows
	notices []string
	catalog catalog
}

// col quotes the column's name, or gives NULL when the table has none.
func col(name string) string {
	if name == "" {
		return "NULL"
	}
	return outbox.SQLite.QuoteIdent(name)
}

// lit quotes a text for SQL.
func lit(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// text reads a column as text whatever the driver would make of its declared type.
func text(name string) string {
	if name == "" {
		return "NULL"
	}
	return "CAST(" + col(name) + " AS TEXT)"
}

// payload reads bytes as bytes and everything else as its text. The driver makes nil of empty bytes,
// which would be a tombstone, but not of empty text.
func payload(name string) string {
	return fmt.Sprintf("CASE typeof(%[1]s) WHEN 'blob' THEN iif(length(%[1]s) = 0, '', %[1]s) WHEN 'null' THEN NULL ELSE CAST(%[1]s AS TEXT) END", col(name))
}

// newLayout checks the table against the configuration. Every problem is a *relay.SetupError.
func newLayout(ctx context.Context, db *sql.DB, o relay.StoreOptions) (*layout, error) {
	c, found, near, err := readCatalog(ctx, db, o.Table.Name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missingTable(o.Table.Name, near)
	}
	l := &layout{
		table: outbox.SQLite.QuoteIdent(c.name), states: o.Table.States, own: o.Table.Own,
		delete: o.Table.AfterSend == "delete", claim: o.Claim, onDead: o.OnDead, catalog: c,
	}
	if z := o.Table.TimeZone; z != "" && !strings.EqualFold(z, "UTC") && !strings.EqualFold(z, "Etc/UTC") {
		return nil, usage("outbox.time_zone", fmt.Sprintf("%q: SQLite's clock knows UTC only", z),
			"leave it empty, and write times in UTC")
	}
	for _, check := range []func() error{
		func() error { return l.resolve(o.Table.Columns) },
		l.checkMode,
		l.checkIDs,
		func() error { return l.checkStates(ctx, db) },
		func() error { return l.readClocks(ctx, db) },
		l.checkPayload,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	l.key = keyExpr(l.cols)
	l.eventID = text(l.cols.EventID)
	if l.cols.EventID == "" {
		l.eventID = text(l.cols.ID)
	}
	return l, l.chooseScans(ctx, db)
}

func missingTable(name string, near []string) error {
	reason := "does not exist"
	if len(near) > 0 {
		reason += fmt.Sprintf(" (the file has %s)", strings.Join(near[:min(len(near), 8)], ", "))
	} else {
		reason += " (the file has no tables)"
	}
	return &relay.SetupError{Kind: relay.SetupNotFound, Thing: fmt.Sprintf("table %q", name), Reason: reason,
		Fix: "run postrider schema apply, or set outbox.table"}
}

// resolve finds the columns. id and payload must be there; a column that is named and not optional too.
func (l *layout) resolve(want relay.Columns) error {
	l.cols = want
	var left, lacks, keys []string
	for _, f := range fields(&l.cols) {
		spec, optional := strings.CutSuffix(*f.column, "?")
		if spec == "" {
			*f.column = ""
			continue
		}
		name, ok := l.firstOf(spec)
		switch {
		case ok:
		case optional:
			left = append(left, f.name)
		default:
			lacks, keys = append(lacks, orList(spec)+" for "+f.name), append(keys, "outbox.columns."+f.name)
		}
		*f.column = name
	}
	if len(lacks) > 0 {
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: fmt.Sprintf("table %s", l.table),
			Reason: fmt.Sprintf("has no column %s (it has %s)", strings.Join(lacks, ", "), l.catalog.columnNames()),
			Fix:    "set " + strings.Join(keys, ", ") + ", or write \"-\" there if the table has none"}
	}
	if len(left) > 0 {
		l.notices = append(l.notices,
			"the table has no columns for "+strings.Join(left, ", ")+": what they hold is not kept")
	}
	if l.cols.ID == "" || l.cols.Payload == "" {
		return usage("outbox.columns", "id and payload are not both set", "name the columns that hold them")
	}
	return nil
}

func (l *layout) firstOf(spec string) (string, bool) {
	for _, name := range strings.Split(spec, "|") {
		if c, ok := l.catalog.column(name); ok {
			return c.name, true
		}
	}
	return "", false
}

func orList(spec string) string {
	names := strings.Split(spec, "|")
	for i := range names {
		names[i] = fmt.Sprintf("%q", names[i])
	}
	return strings.Join(names, " or ")
}

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

// keyExpr is the ordering key as text: message_key, else aggregate_id, else NULL.
func keyExpr(c relay.Columns) string {
	if c.MessageKey == "" {
		return text(c.AggregateID)
	}
	if c.AggregateID == "" {
		return text(c.MessageKey)
	}
	return "coalesce(" + text(c.MessageKey) + ", " + text(c.AggregateID) + ")"
}

// claimColumn carries the claim's time: updated_at, else next_retry_at.
func (l *layout) claimColumn() string {
	if l.cols.UpdatedAt != "" {
		return l.cols.UpdatedAt
	}
	return l.cols.NextRetryAt
}
