package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
	"github.com/postrider/postrider/schema"
)

// kind is one layout of the table that the conformance suite runs on.
type kind struct {
	name   string
	ddl    string
	table  relay.Table
	traits relaytest.Traits
	claims []relay.ClaimMode
}

// The PostgreSQL article's table as one would write it for SQLite: a time for every row, no
// updated_at, key or topic.
const articlePostgresDDL = `CREATE TABLE outbox_events (
	id INTEGER PRIMARY KEY AUTOINCREMENT, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
	aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, payload TEXT NOT NULL, headers TEXT,
	status VARCHAR(16) NOT NULL DEFAULT 'NEW', retry_count INT NOT NULL DEFAULT 0,
	next_retry_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
	sent_at TIMESTAMP NULL);
CREATE INDEX idx_outbox_status_next_retry ON outbox_events (status, next_retry_at, id);`

// The MySQL article's.
const articleMySQLDDL = `CREATE TABLE outbox_event (
	id INTEGER PRIMARY KEY AUTOINCREMENT, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
	aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, topic VARCHAR(128) NOT NULL,
	message_key VARCHAR(128) DEFAULT NULL, payload TEXT NOT NULL, status VARCHAR(32) NOT NULL DEFAULT 'PENDING',
	retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME DEFAULT NULL, sent_at DATETIME DEFAULT NULL,
	created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX idx_publish_scan ON outbox_event (status, next_retry_time, id);`

// A table of events that are deleted when sent, with ids that are no row numbers and times as numbers.
const deletedDDL = `CREATE TABLE "Out Box" (
	"event id" TEXT PRIMARY KEY, aggregatetype TEXT NOT NULL, aggregateid TEXT NOT NULL, type TEXT NOT NULL,
	payload BLOB, "at" INTEGER NOT NULL DEFAULT (unixepoch()));`

func kinds() []kind {
	article := relay.Table{
		Name: "outbox_events", States: ownTable().States,
		Columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic?", MessageKey: "message_key?", Payload: "payload", Headers: "headers?",
			Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", LastError: "last_error?",
			CreatedAt: "created_at?", UpdatedAt: "updated_at?", SentAt: "sent_at?",
			KafkaTopic: "kafka_topic?", KafkaPartition: "kafka_partition?", KafkaOffset: "kafka_offset?",
		},
	}
	mysql := article
	mysql.Name = "outbox_event"
	mysql.Columns.NextRetryAt = "next_retry_at|next_retry_time"
	mysql.States = relay.States{New: "PENDING", Sending: "PROCESSING", Sent: "SENT", Failed: "PENDING", Dead: "FAILED"}
	deleted := relay.Table{
		Name: `"Out Box"`, AfterSend: "delete",
		Columns: relay.Columns{ID: "event id", AggregateType: "aggregatetype", AggregateID: "aggregateid",
			EventType: "type",
			Payload:   "payload", CreatedAt: "at"},
	}
	all := []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows, relay.ClaimLanes}
	return []kind{
		{"own", schema.Print(outbox.SQLite), ownTable(), relaytest.Traits{OneWriter: true, NullPayload: true,
			HeadersJSON: true, NulKeys: true}, all},
		{"article-postgres", articlePostgresDDL, article, relaytest.Traits{
			OneWriter: true, NoMessageKey: true, NoTopic: true, NoLastError: true, NoReceipt: true}, nil},
		{"article-mysql", articleMySQLDDL, mysql, relaytest.Traits{
			OneWriter: true, NoHeaders: true, NoLastError: true, NoReceipt: true, FailedIsNew: true}, all},
		{"deleted", deletedDDL, deleted, relaytest.Traits{
			OneWriter: true, NoMessageKey: true, NoTopic: true, NoHeaders: true, NoLastError: true, NoReceipt: true, NoStatus: true, NullPayload: true},
			[]relay.ClaimMode{relay.ClaimSingle}},
	}
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			relaytest.RunStore(t, relaytest.Harness{Claims: k.claims, Traits: k.traits,
				Table: func(t *testing.T) relaytest.Table {
					path, db := newFile(t, k.ddl)
					// The layout is only asked for the real names of columns.
					l, err := newLayout(t.Context(), db, relay.StoreOptions{Table: k.table, Claim: relay.ClaimSingle})
					require.NoError(t, err)
					return &file{t: t, kind: k, path: path, db: db, l: l}
				}})
		})
	}
}

// file is one database with an empty table.
type file struct {
	t    *testing.T
	kind kind
	path string
	db   *sql.DB
	l    *layout

	stores []*Store
}

func (f *file) Open(ctx context.Context, o relay.StoreOptions) (relaytest.Store, error) {
	after := o.Table.AfterSend
	o.URL, o.Table = "sqlite:"+f.path, f.kind.table
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

func (f *file) Begin(t *testing.T) relaytest.Tx {
	t.Helper()
	tx, err := f.db.BeginTx(context.Background(), nil) // ends with the test, not with its context
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return &fileTx{t: t, f: f, tx: tx}
}

type fileTx struct {
	t  *testing.T
	f  *file
	tx *sql.Tx
}

func (x *fileTx) Commit()   { require.NoError(x.t, x.tx.Commit()) }
func (x *fileTx) Rollback() { require.NoError(x.t, x.tx.Rollback()) }

func (x *fileTx) Insert(rows ...relaytest.NewRow) {
	x.t.Helper()
	c, tr := x.f.l.cols, x.f.kind.traits
	event := c.EventID
	if event == "" {
		event = c.ID
	}
	for _, r := range rows {
		var names []string
		var args []any
		set := func(name string, value any) {
			if name != "" {
				names, args = append(names, col(name)), append(args, value)
			}
		}
		set(event, r.EventID)
		set(c.AggregateType, or(r.AggregateType, "order"))
		set(c.AggregateID, r.AggregateID)
		set(c.EventType, or(r.Type, "OrderCreated"))
		if r.Topic != "" {
			set(c.Topic, r.Topic)
		} else if tr.FailedIsNew {
			set(c.Topic, "orders") // NOT NULL
		}
		if r.Key != nil {
			set(c.MessageKey, *r.Key)
		}
		switch {
		case r.Tombstone:
			set(c.Payload, nil)
		case r.Payload == nil:
			set(c.Payload, []byte("{}"))
		default:
			set(c.Payload, r.Payload)
		}
		if r.Headers != "" {
			set(c.Headers, r.Headers)
		}
		_, err := x.tx.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s)", x.f.l.table,
			strings.Join(names, ", "), strings.Repeat(", ?", len(names)-1)), args...)
		require.NoError(x.t, err)
	}
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (f *file) Row(t *testing.T, eventID string) (r relaytest.Row, ok bool) {
	t.Helper()
	l := f.l
	at := func(name string) string {
		if name == "" {
			return "NULL"
		}
		return columnMillis(col(name)) + " - " + now
	}
	retries := or(l.cols.RetryCount, "")
	expr := "0"
	if retries != "" {
		expr = col(retries)
	}
	var id, status string
	var due, sent, part, offset sql.NullInt64
	var lastError, topic sql.NullString
	err := f.db.QueryRowContext(context.Background(), fmt.Sprintf("SELECT rowid, coalesce(%s, 'NEW'), %s, %s, %s, %s, %s, %s, %s, %s FROM %s WHERE %s = ?",
		text(l.cols.Status), expr, at(l.cols.NextRetryAt), text(l.cols.LastError), payload(l.cols.Payload), at(l.cols.SentAt),
		text(l.cols.KafkaTopic), col(l.cols.KafkaPartition), col(l.cols.KafkaOffset), l.table, l.eventColumn()), eventID).
		Scan(&id, &status, &r.RetryCount, &due, &lastError, &r.Payload, &sent, &topic, &part, &offset)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false
	}
	require.NoError(t, err)
	r.ID, r.State, r.LastError = relay.RowID(id), l.state(status, 0), lastError.String
	r.HasDue = due.Valid && due.Int64 < (100*365*24*time.Hour).Milliseconds()
	r.DueIn = time.Duration(due.Int64) * time.Millisecond
	r.HasSent, r.SentAgo = sent.Valid, -time.Duration(sent.Int64)*time.Millisecond
	if offset.Valid {
		r.Receipt = &relay.Receipt{Topic: topic.String, Partition: int32(part.Int64), Offset: offset.Int64}
	}
	return r, true
}

func (f *file) Edit(t *testing.T, eventID string, e relaytest.Edit) {
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
		sets = append(sets, col(name)+" = "+l.clocks[name].at("'now'", fmt.Sprintf("'%+.3f seconds'", d.Seconds())))
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
		if l.own {
			at(l.cols.NextRetryAt, -*e.ClaimAge)
		}
	}
	if e.LastError != nil {
		sets, args = append(sets, col(l.cols.LastError)+" = ?"), append(args, *e.LastError)
	}
	if len(sets) == 0 {
		return
	}
	_, err := f.db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s SET %s WHERE %s = ?", l.table,
		strings.Join(sets, ", "), l.eventColumn()),
		append(args, eventID)...)
	require.NoError(t, err)
}

// park moves the time that a store keeps for a row whose table has no place for it.
func (f *file) park(t *testing.T, eventID string, d time.Duration) {
	t.Helper()
	r, ok := f.Row(t, eventID)
	require.True(t, ok)
	n, err := rowid(r.ID)
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
