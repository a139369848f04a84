package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
	"github.com/postrider/postrider/schema"
)

// servers are the environment variables that name the servers under test.
var servers = []string{"POSTRIDER_TEST_POSTGRES", "POSTRIDER_TEST_POSTGRES_NEWEST"}

// server returns the URL that a variable names. Without it the test is skipped, in CI it fails.
func server(t testing.TB, variable string) string {
	t.Helper()
	if u := os.Getenv(variable); u != "" {
		return u
	}
	text := "set " + variable + " to the URL of a PostgreSQL server (dev/servers up)"
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// eachServer runs a test on every server.
func eachServer(t *testing.T, test func(t *testing.T, url string)) {
	for _, variable := range servers {
		t.Run(strings.TrimPrefix(variable, "POSTRIDER_TEST_"), func(t *testing.T) {
			t.Parallel()
			test(t, server(t, variable))
		})
	}
}

var schemas atomic.Int64

// space is a schema of the test's own.
type space struct {
	testing.TB
	url     string // with the schema as search_path
	service string // the same for a service's sessions
	schema  string
	ddl     string
}

// newSpace makes a schema with the given tables.
func newSpace(t testing.TB, server, ddl string, zone ...string) *space {
	t.Helper()
	s := &space{TB: t, ddl: ddl, schema: fmt.Sprintf("t%d_%d", os.Getpid(), schemas.Add(1))}
	admin := connect(t, server)
	exec(t, admin, "CREATE SCHEMA "+s.schema)
	atEnd(t, server, "DROP SCHEMA "+s.schema+" CASCADE")
	u, err := url.Parse(server)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", s.schema+",pg_catalog")
	q.Set("synchronous_commit", "off") // no test looks at the table after the server has crashed
	u.RawQuery = q.Encode()
	s.url = u.String()
	s.service = s.url
	if len(zone) > 0 && zone[0] != "" {
		q.Set("timezone", zone[0])
		u.RawQuery = q.Encode()
		s.service = u.String()
	}
	exec(t, s.conn(), ddl)
	return s
}

// atEnd runs a statement when the test is over.
func atEnd(t testing.TB, server, sql string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, server)
		if err == nil {
			_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	})
}

func (s *space) conn() *pgx.Conn { return connect(s.TB, s.service) }

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	var err error
	if len(args) == 0 {
		_, err = conn.PgConn().Exec(t.Context(), sql).ReadAll()
	} else {
		_, err = conn.Exec(t.Context(), sql, args...)
	}
	require.NoError(t, err, sql)
}

// ownColumns are those of preset postrider.
var ownColumns = relay.Columns{
	ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
	EventType: "event_type", Topic: "topic", MessageKey: "message_key", Payload: "payload", Headers: "headers",
	Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", LastError: "last_error",
	CreatedAt: "created_at", UpdatedAt: "updated_at", SentAt: "sent_at",
	KafkaTopic: "kafka_topic", KafkaPartition: "kafka_partition", KafkaOffset: "kafka_offset",
}

var articleStates = relay.States{New: "NEW", Sending: "SENDING", Sent: "SENT", Failed: "FAILED", Dead: "DEAD"}

// ownTable is preset postrider.
func ownTable() relay.Table {
	return relay.Table{Name: "outbox_events", Own: true, Columns: ownColumns, States: articleStates}
}

// articleTable is preset article-postgres: most columns may be missing.
func articleTable() relay.Table {
	c := ownColumns
	for _, name := range []*string{&c.Topic, &c.MessageKey, &c.Headers, &c.LastError, &c.CreatedAt, &c.UpdatedAt, &c.SentAt,
		&c.KafkaTopic, &c.KafkaPartition, &c.KafkaOffset} {
		*name += "?"
	}
	return relay.Table{Name: "outbox_events", Columns: c, States: articleStates}
}

const articleDDL = `CREATE TABLE outbox_events (
	id BIGSERIAL PRIMARY KEY, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL,
	aggregate_id VARCHAR(64) NOT NULL, event_type VARCHAR(128) NOT NULL, payload JSONB NOT NULL, headers JSONB,
	status VARCHAR(16) NOT NULL DEFAULT 'NEW', retry_count INT NOT NULL DEFAULT 0,
	next_retry_at TIMESTAMP NOT NULL DEFAULT NOW(), created_at TIMESTAMP NOT NULL DEFAULT NOW(), sent_at TIMESTAMP NULL);
CREATE INDEX idx_outbox_status_next_retry ON outbox_events(status, next_retry_at, id);`

func ownDDL() string { return schema.Print(outbox.Postgres) }

// layoutOf is one shape of table for the suite.
type shape struct {
	name   string
	ddl    string
	table  relay.Table
	traits relaytest.Traits
	claims []relay.ClaimMode
	// through is the variable of the server that the store connects to, if not the one under test.
	through string
	once    bool // on one server: the oldest, or the newest if newest says so
	newest  bool
	// zone is the time zone of the service's sessions; the store is told by Table.TimeZone.
	zone string
}

func (sh shape) harness(server string) relaytest.Harness {
	return relaytest.Harness{
		Claims: sh.claims, Traits: sh.traits,
		Table: func(t *testing.T) relaytest.Table {
			return &testTable{shape: sh, space: newSpace(t, server, sh.ddl, sh.zone)}
		},
	}
}

// testTable implements relaytest.Table.
type testTable struct {
	shape shape
	space *space

	mu   sync.Mutex
	side *pgx.Conn   // for Row and Edit
	free []*pgx.Conn // of transactions that have ended: a handshake takes longer than most of them
}

func (tt *testTable) take() *pgx.Conn {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if n := len(tt.free); n > 0 {
		conn := tt.free[n-1]
		tt.free = tt.free[:n-1]
		return conn
	}
	return tt.space.conn()
}

// put keeps a session for the next transaction. Where sessions draw ids in lots it forgets the rest of its own: the
// next one would be given ids below those of transactions that have ended since, which its key's writer waited for.
func (tt *testTable) put(conn *pgx.Conn) {
	if strings.Contains(tt.shape.ddl, "CACHE") {
		exec(tt.space.TB, conn, "DISCARD SEQUENCES")
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.free = append(tt.free, conn)
}

// aside runs f on a connection beside the store's.
func (tt *testTable) aside(f func(conn *pgx.Conn)) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if tt.side == nil {
		tt.side = tt.space.conn()
	}
	f(tt.side)
}

func (tt *testTable) Open(ctx context.Context, o relay.StoreOptions) (relaytest.Store, error) {
	after := o.Table.AfterSend
	o.URL, o.Table = tt.space.url, tt.shape.table
	if tt.shape.through != "" {
		o.URL, o.Table.Name = os.Getenv(tt.shape.through), tt.space.schema+"."+o.Table.Name
	}
	if after != "" {
		o.Table.AfterSend = after
	}
	st, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	tt.space.Cleanup(func() {
		_ = st.Close()
		// Where FAILED shares the word of NEW, what a person retries is for the sweep to find.
		if st.options.Claim != relay.ClaimRows && !tt.shape.traits.FailedIsNew && st.SweepFound() != 0 {
			tt.space.Errorf("the sweep found %d rows that the cursor had missed", st.SweepFound())
		}
	})
	return st, nil
}

type testTx struct {
	t     testing.TB
	sh    shape
	table *testTable
	conn  *pgx.Conn
	tx    pgx.Tx
}

func (tt *testTable) Begin(t *testing.T) relaytest.Tx {
	conn := tt.take()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	return &testTx{t: t, sh: tt.shape, table: tt, conn: conn, tx: tx}
}

// column resolves a logical column of the shape, "" when the shape has none.
func (sh shape) column(spec string) string {
	name := strings.TrimSuffix(spec, "?")
	name = name[strings.LastIndex(name, "|")+1:] // the shapes list the column that they have last
	if name == "" || !regexp.MustCompile(`[\s,(]`+name+`\s`).MatchString(sh.ddl) {
		return ""
	}
	return name
}

func (x *testTx) Insert(rows ...relaytest.NewRow) {
	var batch pgx.Batch
	for _, r := range rows {
		names, values, args := x.values(r)
		batch.Queue(fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", x.sh.table.Name, strings.Join(names, ", "), strings.Join(values, ", ")), args...)
	}
	require.NoError(x.t, x.tx.SendBatch(context.Background(), &batch).Close())
}

func (x *testTx) values(r relaytest.NewRow) (names, values []string, args []any) {
	c := x.sh.table.Columns
	add := func(spec, cast string, v any) {
		if name := x.sh.column(spec); name != "" {
			args = append(args, v)
			names, values = append(names, quote(name)), append(values, fmt.Sprintf("$%d%s", len(args), cast))
		}
	}
	or := func(s, d string) string {
		if s == "" {
			return d
		}
		return s
	}
	add(c.EventID, "", r.EventID)
	add(c.AggregateType, "", or(r.AggregateType, "order"))
	add(c.AggregateID, "", r.AggregateID)
	add(c.EventType, "", or(r.Type, "OrderCreated"))
	if r.Topic != "" {
		add(c.Topic, "", r.Topic)
	}
	if r.Key != nil {
		add(c.MessageKey, "", *r.Key)
	}
	if r.Headers != "" {
		add(c.Headers, "::text::"+x.headersType(), r.Headers)
	}
	payload := r.Payload
	if payload == nil && !r.Tombstone {
		payload = []byte("{}")
	}
	switch {
	case payload == nil:
	case typeAfter(x.sh.ddl, "payload") == "BYTEA":
		add(c.Payload, "", payload)
	default:
		add(c.Payload, "::text::"+x.payloadType(), string(payload))
	}
	return names, values, args
}

func (x *testTx) payloadType() string { return typeAfter(x.sh.ddl, "payload") }
func (x *testTx) headersType() string { return typeAfter(x.sh.ddl, "headers") }

func typeAfter(ddl, name string) string {
	for _, line := range strings.FieldsFunc(ddl, func(r rune) bool { return r == ',' || r == '\n' || r == '(' }) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return f[1]
		}
	}
	return "text"
}

func (x *testTx) Commit() {
	require.NoError(x.t, x.tx.Commit(context.Background()))
	x.table.put(x.conn)
}

func (x *testTx) Rollback() {
	require.NoError(x.t, x.tx.Rollback(context.Background()))
	x.table.put(x.conn)
}

// naive says that the shape's times have no zone.
func (sh shape) naive() bool { return strings.Contains(sh.ddl, " TIMESTAMP ") }

func (tt *testTable) now() string {
	if tt.shape.naive() {
		return "clock_timestamp()::timestamp"
	}
	return "clock_timestamp()"
}

func (tt *testTable) Row(t *testing.T, eventID string) (relaytest.Row, bool) {
	sh := tt.shape
	col := func(spec, typ string) string {
		if name := sh.column(spec); name != "" {
			return quote(name)
		}
		return "NULL::" + typ
	}
	payload := col(sh.table.Columns.Payload, "text") + "::text"
	if typeAfter(sh.ddl, "payload") == "BYTEA" {
		payload = col(sh.table.Columns.Payload, "bytea")
	}
	c := sh.table.Columns
	query := fmt.Sprintf(`SELECT %s::text, %s::text, %s, extract(epoch FROM nullif(%s, 'infinity') - %s)::float8, %s, %s, extract(epoch FROM %s - %s)::float8, %s, %s::int, %s::bigint
		FROM %s WHERE %s = $1`, quote(c.ID), col(c.Status, "text"), "coalesce("+col(c.RetryCount, "int")+", 0)", col(c.NextRetryAt, "timestamptz"), tt.now(), col(c.LastError, "text"),
		payload, tt.now(), col(c.SentAt, "timestamptz"), col(c.KafkaTopic, "text"), col(c.KafkaPartition, "int"), col(c.KafkaOffset, "bigint"), sh.table.Name, quote(c.EventID))
	var (
		r              relaytest.Row
		id             string
		status, lastEr *string
		due, sent      *float64
		topic          *string
		partition      *int32
		offset         *int64
	)
	var err error
	tt.aside(func(conn *pgx.Conn) {
		err = conn.QueryRow(t.Context(), query, eventID).Scan(&id, &status, &r.RetryCount, &due, &lastEr, &r.Payload, &sent, &topic, &partition, &offset)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false
	}
	require.NoError(t, err)
	r.ID, r.LastError = relay.RowID(id), text(lastEr)
	if status != nil {
		words := map[string]relay.State{}
		s := sh.table.States
		words[s.Dead], words[s.Failed], words[s.Sent], words[s.Sending], words[s.New] = relay.StateDead, relay.StateFailed, relay.StateSent, relay.StateSending, relay.StateNew
		r.State = words[*status]
	}
	if due != nil {
		r.HasDue, r.DueIn = true, time.Duration(*due*float64(time.Second))
	}
	if sent != nil {
		r.HasSent, r.SentAgo = true, time.Duration(*sent*float64(time.Second))
	}
	if offset != nil {
		r.Receipt = &relay.Receipt{Topic: text(topic), Partition: *partition, Offset: *offset}
	}
	return r, true
}

func (tt *testTable) Edit(t *testing.T, eventID string, e relaytest.Edit) {
	sh := tt.shape
	c := sh.table.Columns
	change := func(sql string) {
		tt.aside(func(conn *pgx.Conn) {
			_, err := conn.Exec(t.Context(), sql, eventID)
			require.NoError(t, err, sql)
		})
	}
	if e.Delete {
		change(fmt.Sprintf("DELETE FROM %s WHERE %s = $1", sh.table.Name, quote(c.EventID)))
		return
	}
	var set []string
	add := func(spec, expr string) {
		if name := sh.column(spec); name != "" {
			set = append(set, quote(name)+" = "+expr)
		}
	}
	if e.State != nil {
		s := sh.table.States
		words := map[relay.State]string{relay.StateDead: s.Dead, relay.StateFailed: s.Failed, relay.StateSent: s.Sent, relay.StateSending: s.Sending, relay.StateNew: s.New}
		add(c.Status, lit(words[*e.State])+"::"+typeAfter(sh.ddl, "status"))
	}
	if e.RetryCount != nil {
		add(c.RetryCount, fmt.Sprint(*e.RetryCount))
	}
	interval := func(d time.Duration) string { return fmt.Sprintf("interval '%d microseconds'", d.Microseconds()) }
	if e.DueIn != nil {
		add(c.NextRetryAt, tt.now()+" + "+interval(*e.DueIn))
	}
	if e.ClaimAge != nil {
		add(c.UpdatedAt, tt.now()+" - "+interval(*e.ClaimAge))
		if sh.table.Own || sh.column(c.UpdatedAt) == "" {
			add(c.NextRetryAt, tt.now()+" - "+interval(*e.ClaimAge))
		}
	}
	if e.LastError != nil {
		add(c.LastError, lit(*e.LastError))
	}
	if len(set) == 0 {
		return
	}
	change(fmt.Sprintf("UPDATE %s SET %s WHERE %s = $1", sh.table.Name, strings.Join(set, ", "), quote(c.EventID)))
}
