package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// kind is one layout of the table that the conformance suite runs on.
type kind struct {
	name   string
	ddl    string
	table  relay.Table
	traits relaytest.Traits
	claims []relay.ClaimMode
}

// The MySQL article's table, to the letter but for the times that its services write themselves.
const articleMySQLDDL = `CREATE TABLE outbox_event (
id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL, aggregate_type VARCHAR(64) NOT NULL,
aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, topic VARCHAR(128) NOT NULL,
message_key VARCHAR(128) DEFAULT NULL, payload JSON NOT NULL, status VARCHAR(32) NOT NULL DEFAULT 'PENDING',
retry_count INT NOT NULL DEFAULT 0, next_retry_at DATETIME DEFAULT NULL, sent_at DATETIME DEFAULT NULL,
created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
UNIQUE KEY uk_event_id (event_id), KEY idx_publish_scan (status, next_retry_at, id),
KEY idx_aggregate (aggregate_type, aggregate_id)) DEFAULT CHARACTER SET utf8mb4`

// The PostgreSQL article's, as one would write it here: a time for every row, ENUM states, an unsigned
// id, no updated_at, key or topic, text in the server's old character set.
const articlePostgresDDL = "CREATE TABLE outbox_events (" + `
id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, payload LONGTEXT NOT NULL, headers TEXT,
status ENUM('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD') NOT NULL DEFAULT 'NEW', retry_count INT NOT NULL DEFAULT 0,
next_retry_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
last_error VARCHAR(300) CHARACTER SET utf8mb3, sent_at TIMESTAMP NULL,
KEY idx_outbox_status_next_retry (status, next_retry_at, id)) DEFAULT CHARACTER SET utf8mb4`

// A table of events that are deleted when sent.
const deletedDDL = "CREATE TABLE `Out Box` (`row` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE, `event id` CHAR(64) PRIMARY KEY," + `
aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL,
payload LONGBLOB, ` + "`at` TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)) DEFAULT CHARACTER SET utf8mb4"

func kinds(v flavour) []kind {
	article := relay.Table{
		Name: "outbox_events", States: ownTable().States,
		Columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic?", MessageKey: "message_key?", Payload: "payload", Headers: "headers?",
			Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at|next_retry_time", LastError: "last_error?",
			CreatedAt: "created_at?", UpdatedAt: "updated_at?", SentAt: "sent_at?",
			KafkaTopic: "kafka_topic?", KafkaPartition: "kafka_partition?", KafkaOffset: "kafka_offset?",
		},
	}
	mysql := article
	mysql.Name = "outbox_event"
	mysql.States = relay.States{New: "PENDING", Sending: "PROCESSING", Sent: "SENT", Failed: "PENDING", Dead: "FAILED"}
	ddl := articleMySQLDDL
	if v == mariadbServer { // the article gives the column two names
		ddl = strings.ReplaceAll(ddl, "next_retry_at", "next_retry_time")
	}
	deleted := relay.Table{
		Name: "`Out Box`", AfterSend: "delete",
		Columns: relay.Columns{ID: "row", EventID: "event id", AggregateType: "aggregatetype", AggregateID: "aggregateid",
			EventType: "type", Payload: "payload", CreatedAt: "at"},
	}
	all := []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows, relay.ClaimLanes}
	return []kind{
		{"own", "", ownTable(), relaytest.Traits{NullPayload: true, HeadersJSON: true, NulKeys: true}, all},
		{"article-mysql", ddl, mysql, relaytest.Traits{NoHeaders: true, NoLastError: true, NoReceipt: true,
			FailedIsNew: true, JSONPayload: true, NormalizesPayload: v == mysqlServer}, all},
		{"article-postgres", articlePostgresDDL, article, relaytest.Traits{NoMessageKey: true, NoTopic: true,
			NoReceipt:   true,
			TextPayload: true, LastErrorMax: 300}, nil},
		{"deleted", deletedDDL, deleted, relaytest.Traits{NoMessageKey: true, NoTopic: true, NoHeaders: true,
			NoLastError: true,
			NoReceipt:   true, NoStatus: true, NullPayload: true}, []relay.ClaimMode{relay.ClaimSingle}},
	}
}

func TestStore_Conformance(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		for _, k := range kinds(v) {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				p := &tables{t: t, flavour: v, kind: k}
				relaytest.RunStore(t, relaytest.Harness{Claims: k.claims, Traits: k.traits, Table: p.get})
			})
		}
	})
}

// tables hands out empty tables, each in a database of its own, and takes them back: making one takes
// these servers longer than most tests.
type tables struct {
	t       *testing.T
	flavour flavour
	kind    kind

	mu   sync.Mutex
	free []*table
}

func (p *tables) get(t *testing.T) relaytest.Table {
	t.Helper()
	p.mu.Lock()
	var f *table
	if n := len(p.free); n > 0 {
		f, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if f == nil {
		f = p.make(t)
	}
	f.t, f.stores = t, nil
	t.Cleanup(func() {
		// Rows that are deleted but not purged would make the next test's inserts wait for each other.
		_, err := f.db.ExecContext(context.Background(), "TRUNCATE TABLE "+f.l.table)
		require.NoError(t, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, f)
	})
	return f
}

func (p *tables) make(t *testing.T) *table {
	t.Helper()
	dsn, db := p.flavour.newDatabase(p.t, p.kind.ddl)
	s, err := Open(t.Context(), relay.StoreOptions{URL: dsn, Table: p.kind.table})
	require.NoError(t, err)
	p.t.Cleanup(func() { _ = s.Close() })
	return &table{kind: p.kind, dsn: dsn, db: db, l: s.layout(), probe: s}
}

// table is one database with an empty table.
type table struct {
	t     *testing.T
	kind  kind
	dsn   string
	db    *sql.DB
	l     *layout
	probe *Store // for reading times in the table's own zone

	stores []*Store
}

func (f *table) Open(ctx context.Context, o relay.StoreOptions) (relaytest.Store, error) {
	after := o.Table.AfterSend
	o.URL, o.Table = f.dsn, f.kind.table
	if after != "" {
		o.Table.AfterSend = after
	}
	s, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() { _ = s.Close() })
	f.stores = append(f.stores, s)
	return s, nil
}

func (f *table) Begin(t *testing.T) relaytest.Tx {
	t.Helper()
	tx, err := f.db.BeginTx(context.Background(), nil) // ends with the test, not with its context
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return &tableTx{t: t, f: f, tx: tx}
}

type tableTx struct {
	t  *testing.T
	f  *table
	tx *sql.Tx
}

func (x *tableTx) Commit()   { require.NoError(x.t, x.tx.Commit()) }
func (x *tableTx) Rollback() { require.NoError(x.t, x.tx.Rollback()) }

func (x *tableTx) Insert(rows ...relaytest.NewRow) {
	x.t.Helper()
	c, tr := x.f.l.cols, x.f.kind.traits
	var names, values []string
	var args []any
	for _, r := range rows {
		names = names[:0]
		set := func(name string, value any) {
			if name != "" {
				names, args = append(names, col(name)), append(args, value)
			}
		}
		null := func(s string) any {
			if s == "" {
				return nil
			}
			return s
		}
		set(c.EventID, r.EventID)
		set(c.AggregateType, or(r.AggregateType, "order"))
		set(c.AggregateID, r.AggregateID)
		set(c.EventType, or(r.Type, "OrderCreated"))
		if tr.FailedIsNew {
			set(c.Topic, or(r.Topic, "orders")) // NOT NULL
		} else {
			set(c.Topic, null(r.Topic))
		}
		if r.Key != nil {
			set(c.MessageKey, *r.Key)
		} else {
			set(c.MessageKey, nil)
		}
		switch {
		case r.Tombstone:
			set(c.Payload, nil)
		case r.Payload == nil:
			set(c.Payload, "{}")
		case tr.JSONPayload || tr.TextPayload:
			set(c.Payload, string(r.Payload))
		default:
			set(c.Payload, r.Payload)
		}
		set(c.Headers, null(r.Headers))
		values = append(values, "(?"+strings.Repeat(", ?", len(names)-1)+")")
	}
	if len(rows) == 0 {
		return
	}
	_, err := x.tx.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", x.f.l.table,
		strings.Join(names, ", "), strings.Join(values, ", ")), args...)
	require.NoError(x.t, err)
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (f *table) Row(t *testing.T, eventID string) (r relaytest.Row, ok bool) {
	t.Helper()
	l := f.l
	at := func(name string) string {
		if name == "" {
			return "NULL"
		}
		return "TIMESTAMPDIFF(MICROSECOND, NOW(6), " + col(name) + ")"
	}
	status, retries := "'NEW'", "0"
	if l.cols.Status != "" {
		status, retries = col(l.cols.Status), col(l.cols.RetryCount)
	}
	var id, word string
	var due, sent, part, offset sql.NullInt64
	var lastError, topic sql.NullString
	err := f.probe.db.QueryRowContext(context.Background(), fmt.Sprintf("SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM %s WHERE %s = ?",
		col(l.cols.ID), status, retries, at(l.cols.NextRetryAt), col(l.cols.LastError), col(l.cols.Payload), at(l.cols.SentAt),
		col(l.cols.KafkaTopic), col(l.cols.KafkaPartition), col(l.cols.KafkaOffset), l.table, l.eventColumn()), eventID).
		Scan(&id, &word, &r.RetryCount, &due, &lastError, &r.Payload, &sent, &topic, &part, &offset)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false
	}
	require.NoError(t, err)
	r.ID, r.State, r.LastError = relay.RowID(id), l.state(word, 0), lastError.String
	r.HasDue, r.DueIn = due.Valid, time.Duration(due.Int64)*time.Microsecond
	r.HasSent, r.SentAgo = sent.Valid, -time.Duration(sent.Int64)*time.Microsecond
	if offset.Valid {
		r.Receipt = &relay.Receipt{Topic: topic.String, Partition: int32(part.Int64), Offset: offset.Int64}
	}
	return r, true
}

func (f *table) Edit(t *testing.T, eventID string, e relaytest.Edit) {
	t.Helper()
	l := f.l
	if e.Delete {
		_, err := f.db.ExecContext(t.Context(), fmt.Sprintf("DELETE FROM %s WHERE %s = ?", l.table, l.eventColumn()),
			eventID)
		require.NoError(t, err)
		return
	}
	var sets []string
	var args []any
	at := func(name string, d time.Duration) {
		sets = append(sets, fmt.Sprintf("%s = NOW(6) + INTERVAL %d MICROSECOND", col(name), d.Microseconds()))
	}
	if e.State != nil {
		sets, args = append(sets, col(l.cols.Status)+" = ?"), append(args, l.word(*e.State))
	}
	if e.RetryCount != nil && l.cols.RetryCount != "" {
		sets, args = append(sets, col(l.cols.RetryCount)+" = ?"), append(args, *e.RetryCount)
	}
	if e.DueIn != nil && l.cols.NextRetryAt == "" {
		f.park(t, eventID, *e.DueIn)
	} else if e.DueIn != nil {
		at(l.cols.NextRetryAt, *e.DueIn)
	}
	if e.ClaimAge != nil {
		at(l.claimColumn(), -*e.ClaimAge)
		f.passSecond(t)
	}
	if e.LastError != nil {
		sets, args = append(sets, col(l.cols.LastError)+" = ?"), append(args, *e.LastError)
	}
	if len(sets) == 0 {
		return
	}
	_, err := f.probe.db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET %s WHERE %s = ?", l.table,
		strings.Join(sets, ", "), l.eventColumn()),
		append(args, eventID)...)
	require.NoError(t, err)
}

// park moves the time that a store keeps for a row whose table has no place for it.
func (f *table) park(t *testing.T, eventID string, d time.Duration) {
	t.Helper()
	r, ok := f.Row(t, eventID)
	require.True(t, ok)
	n, err := f.l.rowNumber(r.ID)
	require.NoError(t, err)
	for _, s := range f.stores {
		s.mu.Lock()
		if p, held := s.parked[n]; held {
			p.due = time.Now().Add(d)
			s.parked[n] = p
		}
		s.mu.Unlock()
	}
}

// passSecond waits for the next second of the server where claims are told apart by seconds. An age
// edited into a claim stands for time that passed, and no claim is taken over within its own second.
func (f *table) passSecond(t *testing.T) {
	t.Helper()
	if c, _ := f.l.catalog.column(f.l.claimColumn()); c.precision > 0 {
		return
	}
	_, err := f.db.ExecContext(t.Context(), "DO SLEEP(1.01 - MICROSECOND(NOW(6)) / 1e6)")
	require.NoError(t, err)
}
