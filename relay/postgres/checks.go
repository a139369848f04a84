package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/relay"
)

// newLayout checks the table against the configuration. Every problem is a *relay.SetupError.
func newLayout(ctx context.Context, conn *pgx.Conn, o relay.StoreOptions) (*layout, error) {
	c, err := readCatalog(ctx, conn, o.Table.Name)
	if err != nil {
		return nil, err
	}
	l := &layout{
		catalog: c, table: c.quoted(), cols: o.Table.Columns, claim: o.Claim, lanes: o.Lanes, onDead: o.OnDead, own: o.Table.Own,
		delete: o.Table.AfterSend == "delete", zone: c.zone,
		timeout: fmt.Sprintf("%d milliseconds", o.ClaimTimeout.Milliseconds()),
	}
	if o.Table.TimeZone != "" {
		l.zone = o.Table.TimeZone
	}
	for _, check := range []func() error{
		l.checkServer,
		l.resolve,
		l.checkTypes,
		l.checkMode,
		func() error { return l.checkStates(ctx, conn, o.Table.States) },
		func() error { return l.checkIDs(ctx, conn) },
		func() error { return l.checkRights(o.ReadOnly) },
		l.checkOwn,
		func() error { return l.checkZone(ctx, conn) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *layout) checkServer() error {
	c := l.catalog
	switch {
	case c.recovery:
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url", Reason: "the server is a read-only replica (in recovery)",
			Fix: "connect to the primary, for example with target_session_attrs=read-write and all hosts in database.url"}
	case c.readOnly:
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url",
			Reason: fmt.Sprintf("transactions of user %q are read-only by default (default_transaction_read_only = on)", c.user),
			Fix:    fmt.Sprintf("ALTER ROLE %s SET default_transaction_read_only = off", quote(c.user))}
	case c.kind != "r" && c.kind != "p":
		return l.usage("is not a table", "set outbox.table to the table itself, not to a view of it")
	case c.rowSecurity:
		l.notice("%s has row security that applies to user %q: rows that its policies hide are not relayed", l.thing(), c.user)
	}
	return nil
}

// types that a logical column may have. Those not named take anything that has a text form.
var columnTypes = map[string][]string{
	"payload":         {"json", "jsonb", "text", "varchar", "bytea"},
	"headers":         {"json", "jsonb", "text", "varchar"},
	"retry_count":     {"int2", "int4", "int8"},
	"next_retry_at":   {"timestamptz", "timestamp"},
	"created_at":      {"timestamptz", "timestamp"},
	"updated_at":      {"timestamptz", "timestamp"},
	"sent_at":         {"timestamptz", "timestamp"},
	"last_error":      {"text", "varchar"},
	"kafka_topic":     {"text", "varchar"},
	"kafka_partition": {"int4", "int8"},
	"kafka_offset":    {"int8"},
}

func (l *layout) checkTypes() error {
	for _, f := range fields(&l.cols) {
		want := columnTypes[f.name]
		c, ok := l.catalog.column(*f.column)
		if !ok || want == nil || slices.Contains(want, c.kind) {
			continue
		}
		return l.usage(fmt.Sprintf("column %q (%s) is of type %s, which cannot be used", c.name, f.name, c.sqlType),
			fmt.Sprintf("map a column of type %s with outbox.columns.%s", strings.Join(want, ", "), f.name))
	}
	l.lastError = maxLastError
	if c, ok := l.catalog.column(l.cols.LastError); ok && c.maxChars() > 0 {
		l.lastError = min(c.maxChars(), maxLastError)
	}
	if c, _ := l.catalog.column(l.cols.Payload); c.kind == "jsonb" {
		l.notice("column %q is jsonb, which normalises what is written to it: records carry the database's text of the payload, not the service's bytes", c.name)
	}
	return nil
}

// checkMode refuses combinations that could lose track of an event.
func (l *layout) checkMode() error {
	if l.cols.Status == "" {
		switch {
		case !l.delete:
			return l.usage("has no status column, so a sent row cannot be told from a new one", "set relay.after_send: delete, or add the column")
		case l.claim == relay.ClaimRows:
			return l.usage("has no status column to write a claim to", "use the default of relay.claim")
		}
		l.notice("%s has no status column: failed and dead events are remembered only while the relay runs", l.thing())
		return nil
	}
	if l.cols.NextRetryAt == "" {
		return l.usage("has a status, but no column for the time of the next attempt",
			fmt.Sprintf("ALTER TABLE %s ADD COLUMN next_retry_at timestamptz; then set outbox.columns.next_retry_at", l.table))
	}
	if l.cols.RetryCount == "" {
		return l.usage("has a status, but no column for the number of attempts",
			fmt.Sprintf("ALTER TABLE %s ADD COLUMN retry_count int NOT NULL DEFAULT 0; then set outbox.columns.retry_count", l.table))
	}
	return nil
}

// checkStates makes typed literals of the words and sees to it that the column takes them.
func (l *layout) checkStates(ctx context.Context, conn *pgx.Conn, s relay.States) error {
	if l.cols.Status == "" {
		return nil
	}
	c, _ := l.catalog.column(l.cols.Status)
	for _, w := range []struct {
		name, word string
		literal    *string
		needed     bool
	}{
		{"new", s.New, &l.new, true},
		{"sending", s.Sending, &l.sending, l.claim == relay.ClaimRows},
		{"sent", s.Sent, &l.sent, !l.delete},
		{"failed", s.Failed, &l.failed, true},
		{"dead", s.Dead, &l.dead, true},
	} {
		reason, err := l.refusal(ctx, conn, c, w.word)
		if err != nil {
			return fmt.Errorf("check the state words of table %s: %w", l.table, err)
		}
		switch {
		case reason == "":
			*w.literal = lit(w.word) + "::" + c.sqlType
		case w.needed:
			return l.usage(fmt.Sprintf("column %q does not take %q: %s", c.name, w.word, reason),
				fmt.Sprintf("set outbox.states.%s to a word that the column takes, or extend the column", w.name))
		}
	}
	return nil
}

// refusal says why the status column cannot hold a word, "" when it can.
func (l *layout) refusal(ctx context.Context, conn *pgx.Conn, c column, word string) (string, error) {
	if word == "" {
		return "the word is empty", nil
	}
	if len(c.enum) > 0 && !slices.Contains(c.enum, word) {
		return "its type has " + strings.Join(c.enum, ", "), nil
	}
	if n := c.maxChars(); n > 0 && utf8.RuneCountInString(word) > n {
		return fmt.Sprintf("it is longer than %s", c.sqlType), nil
	}
	for _, k := range l.catalog.checks {
		if k.column != c.name {
			continue
		}
		var ok *bool
		query := fmt.Sprintf("SELECT (%s) FROM (SELECT %s::%s AS %s) t", k.expr, lit(word), c.sqlType, quote(c.name))
		if err := conn.QueryRow(ctx, query).Scan(&ok); err != nil {
			return "", err
		}
		if ok != nil && !*ok {
			return fmt.Sprintf("CHECK %s is %s", quote(k.name), k.expr), nil
		}
	}
	return "", nil
}

// checkIDs sees to it that ids give an order, and finds out whether ids that are missing can be known to be
// pending: only when one sequence hands them out one by one.
func (l *layout) checkIDs(ctx context.Context, conn *pgx.Conn) error {
	id, _ := l.catalog.column(l.cols.ID)
	if id.kind != "int8" && id.kind != "int4" && id.kind != "int2" {
		return l.usage(fmt.Sprintf("column %q (id) is of type %s, which does not tell the order of events within a key", id.name, id.sqlType),
			"add a column and map it, which rewrites the table and locks it meanwhile: ALTER TABLE "+l.table+
				" ADD COLUMN seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE; outbox.columns.id: seq"+l.asEventID(id.name))
	}
	ordered := func(x index) bool { return len(x.columns) > 0 && x.columns[0] == id.name && !x.partial }
	if !slices.ContainsFunc(l.catalog.indexes, ordered) {
		return l.usage(fmt.Sprintf("column %q (id) has no index", id.name),
			fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)", l.table, quote(id.name)))
	}
	l.statusIndex = l.cols.Status != "" && slices.ContainsFunc(l.catalog.indexes, func(x index) bool {
		return x.columns[0] == l.cols.Status && !x.partial
	})
	if err := l.catalog.readSequence(ctx, conn, id.name); err != nil {
		return fmt.Errorf("read the sequence of table %s: %w", l.table, err)
	}
	return l.chooseScan(id)
}

// asEventID advises to map a column as the event's id where the table has none of its own.
func (l *layout) asEventID(column string) string {
	if l.cols.EventID != "" && l.cols.EventID != column {
		return ""
	}
	return ", outbox.columns.event_id: " + column
}

// chooseScan decides between the cursor with gaps and the scan by index.
func (l *layout) chooseScan(id column) error {
	s := l.catalog.sequence
	why := ""
	switch {
	case s == nil:
		why = "its ids do not come from a sequence"
	case s.cache != 1:
		why = fmt.Sprintf("sequence %s has CACHE %d, so that ids are not handed out in order", s.named, s.cache)
	case s.increment != 1 || s.cycle:
		why = fmt.Sprintf("sequence %s does not count up one by one", s.named)
	}
	l.gapless = why != ""
	onStatus := fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s, %s)", l.table, quote(l.cols.Status), quote(id.name))
	switch {
	case l.gapless && !l.statusIndex:
		return l.usage(why+", and there is no index to find new rows by", onStatus)
	case l.gapless:
		l.notice("%s: new rows are found by the index of %q, because %s", l.thing(), l.cols.Status, why)
	case l.own:
		l.notice("%s: new rows are found by a cursor over %q that remembers ids not committed yet", l.thing(), id.name)
	case !l.statusIndex && l.cols.Status != "":
		l.notice("%s has no index that begins with %q: retries are looked for seldom; %s", l.thing(), l.cols.Status,
			fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s, %s, %s)", l.table, quote(l.cols.Status), quote(l.cols.NextRetryAt), quote(id.name)))
	case l.cols.Status == "":
		l.notice("%s: new rows are found by a cursor over %q, and by a look below it each second", l.thing(), id.name)
	default:
		l.notice("%s: new rows are found by a cursor over %q; rows that appear below it, or that a person makes new, by a look at %q each second",
			l.thing(), id.name, l.cols.Status)
	}
	return nil
}

// written lists the columns that settling and claiming set.
func (l *layout) written() []string {
	var out []string
	for _, name := range []string{
		l.cols.Status, l.cols.RetryCount, l.cols.NextRetryAt, l.cols.LastError, l.cols.UpdatedAt, l.cols.SentAt,
		l.cols.KafkaTopic, l.cols.KafkaPartition, l.cols.KafkaOffset,
	} {
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

func (l *layout) checkRights(readOnly bool) error {
	var read, write []string
	for _, f := range fields(&l.cols) {
		if c, ok := l.catalog.column(*f.column); ok && !c.canSelect {
			read = append(read, quote(c.name))
		}
	}
	if l.cols.Status != "" {
		for _, name := range l.written() {
			if c, _ := l.catalog.column(name); !c.canUpdate {
				write = append(write, quote(name))
			}
		}
	}
	grant := func(right string) error {
		return &relay.SetupError{Kind: relay.SetupPermission, Thing: l.thing(),
			Reason: fmt.Sprintf("user %q lacks the right to %s", l.catalog.user, right),
			Fix:    fmt.Sprintf("GRANT %s ON %s TO %s", right, l.table, quote(l.catalog.user))}
	}
	switch {
	case len(read) > 0:
		return grant("SELECT")
	case readOnly:
	case len(write) > 0:
		return grant("UPDATE (" + strings.Join(write, ", ") + ")")
	case l.delete && !l.catalog.canDelete:
		return grant("DELETE")
	}
	return nil
}

// checkOwn holds the product's own table to what the store relies on.
func (l *layout) checkOwn() error {
	if !l.own {
		return nil
	}
	retry := func(x index) bool { return len(x.columns) > 0 && x.columns[0] == l.cols.NextRetryAt }
	if !slices.ContainsFunc(l.catalog.indexes, retry) {
		return l.usage(fmt.Sprintf("has no index that begins with %q, by which failed rows are found", l.cols.NextRetryAt),
			"run postrider schema apply, or map the table without preset postrider")
	}
	if c, _ := l.catalog.column(l.cols.NextRetryAt); c.notNull {
		return l.usage(fmt.Sprintf("column %q is NOT NULL; in the product's own table it is NULL until an event fails", c.name),
			"run postrider schema apply in a fresh schema, or use preset article-postgres")
	}
	return nil
}

// checkZone looks whether times without zone make sense in the zone that is taken for theirs.
func (l *layout) checkZone(ctx context.Context, conn *pgx.Conn) error {
	if !l.naive(l.cols.CreatedAt) && !l.naive(l.cols.NextRetryAt) {
		return nil
	}
	var at time.Time
	err := conn.QueryRow(ctx, "SELECT (statement_timestamp() AT TIME ZONE $1::text)::timestamp", l.zone).Scan(&at)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "outbox.time_zone", Reason: fmt.Sprintf("the server knows no zone %q", l.zone),
			Fix: "use a name of pg_timezone_names, for example Europe/Berlin"}
	}
	if err != nil {
		return fmt.Errorf("look up time zone: %w", err)
	}
	l.notice("%s has times without zone: they are taken as %s", l.thing(), l.zone)
	if l.cols.CreatedAt == "" {
		return nil
	}
	var ahead *bool
	query := fmt.Sprintf("SELECT %s > statement_timestamp() + interval '2 minutes' FROM %s t ORDER BY %s DESC LIMIT 1",
		l.instant(l.cols.CreatedAt), l.table, l.col(l.cols.ID, "int8"))
	if err := conn.QueryRow(ctx, query).Scan(&ahead); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look at the newest row: %w", err)
	}
	if ahead != nil && *ahead {
		l.notice("%s: the newest row was created in the future if %q is in %s; set outbox.time_zone to the zone that the service writes in", l.thing(), l.cols.CreatedAt, l.zone)
	}
	return nil
}
