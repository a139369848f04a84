//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// database is a database of the test's own, reached without a proxy.
type database struct {
	*sql.DB
	dialect outbox.Dialect
	server  string // the server's URL
	name    string
}

// newDatabase makes a database with the product's tables and those of the business: orders, the
// ledger, and a counter a key, whose row lock puts the transactions of a key in order.
func newDatabase(t testing.TB, dialect outbox.Dialect, server string) *database {
	t.Helper()
	d := &database{dialect: dialect, server: server, name: "crash_" + strings.ReplaceAll(outbox.NewID(), "-", "")[8:]}
	admin := open(t, dialect, server, "")
	_, err := admin.Exec("CREATE DATABASE " + d.name)
	require.NoError(t, err)
	t.Cleanup(func() {
		drop := "DROP DATABASE " + d.name
		if dialect == outbox.Postgres {
			drop += " WITH (FORCE)"
		}
		if _, err := admin.Exec(drop); err != nil {
			t.Logf("drop the test's database: %v", err)
		}
		_ = admin.Close()
	})
	d.DB = open(t, dialect, d.url(t, ""), "")
	t.Cleanup(func() { _ = d.Close() })
	_, err = schema.Apply(t.Context(), d.DB, dialect)
	require.NoError(t, err)
	for _, statement := range []string{
		"CREATE TABLE counters (k VARCHAR(64) PRIMARY KEY, n BIGINT NOT NULL)",
		"CREATE TABLE orders (k VARCHAR(64) NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (k, n))",
		"CREATE TABLE ledger (event_id VARCHAR(64) PRIMARY KEY, k VARCHAR(64) NOT NULL, n BIGINT NOT NULL, hash VARCHAR(64) NOT NULL)",
	} {
		_, err := d.Exec(statement)
		require.NoError(t, err, statement)
	}
	return d
}

// url is the database's URL, through a proxy when its address is given. Proxies look at what passes, so
// nothing is encrypted; a MySQL server offers to.
func (d *database) url(t testing.TB, proxy string) string {
	u := databaseURL(t, d.server, d.name, proxy)
	if d.dialect == outbox.MySQL {
		u += "?tls=false"
	}
	return u
}

// open makes a pool for a URL in the product's form.
func open(t testing.TB, dialect outbox.Dialect, raw, addr string) *sql.DB {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	if addr != "" {
		u.Host = addr
	}
	if dialect == outbox.Postgres {
		db, err := sql.Open("pgx", u.String())
		require.NoError(t, err)
		return db
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{} // cut connections are the test's own doing
	connector, err := mysql.NewConnector(c)
	require.NoError(t, err)
	return sql.OpenDB(connector)
}

// sql puts parameters into the dialect's form; statements are written with "?".
func (d *database) sql(statement string) string {
	if d.dialect != outbox.Postgres {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, c := range statement {
		if c == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// record does in a transaction what a service does, for each event: it counts the key on, which locks
// the key until the transaction ends, writes the business row, the event and the ledger.
func (d *database) record(ctx context.Context, tx *sql.Tx, ids, keys []string, event func(id, key string, n int64) outbox.Event) error {
	events := make([]outbox.Event, len(ids))
	counters := make([]int64, len(ids))
	for i, key := range keys {
		n, err := d.next(ctx, tx, key)
		if err != nil {
			return err
		}
		events[i], counters[i] = event(ids[i], key, n), n
	}
	if err := outbox.New(d.dialect, outbox.Options{}).Write(ctx, tx, events...); err != nil {
		return err
	}
	for i, e := range events {
		_, err := tx.ExecContext(ctx, d.sql("INSERT INTO ledger (event_id, k, n, hash) VALUES (?, ?, ?, ?)"),
			e.ID, keys[i], counters[i], hashOf(e.Payload))
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *database) next(ctx context.Context, tx *sql.Tx, key string) (n int64, err error) {
	counted, err := tx.ExecContext(ctx, d.sql("UPDATE counters SET n = n + 1 WHERE k = ?"), key)
	if err != nil {
		return 0, err
	}
	if known, err := counted.RowsAffected(); err != nil {
		return 0, err
	} else if known == 0 {
		if _, err := tx.ExecContext(ctx, d.sql("INSERT INTO counters (k, n) VALUES (?, 1)"), key); err != nil {
			return 0, err
		}
	}
	if err := tx.QueryRowContext(ctx, d.sql("SELECT n FROM counters WHERE k = ?"), key).Scan(&n); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, d.sql("INSERT INTO orders (k, n) VALUES (?, ?)"), key, n)
	return n, err
}

// count is the number of rows in any of the states; of all rows when none is given.
func (d *database) count(ctx context.Context, states ...string) (n int, err error) {
	query, args := "SELECT count(*) FROM outbox_events", []any{}
	if len(states) > 0 {
		query += " WHERE status IN (?" + strings.Repeat(", ?", len(states)-1) + ")"
	}
	for _, s := range states {
		args = append(args, s)
	}
	err = d.QueryRowContext(ctx, d.sql(query), args...).Scan(&n)
	return n, err
}

// has waits until so many rows are in a state.
func (d *database) has(t testing.TB, want int, state string) {
	t.Helper()
	var n int
	var err error
	eventually(t, 30*time.Second, func() bool {
		n, err = d.count(t.Context(), state)
		return err == nil && n == want
	}, func() string { return fmt.Sprintf("%d rows are %s, want %d (%v)", n, state, want, err) })
}

// eventually asks until ok says yes, and fails with what why says when that takes too long.
func eventually(t testing.TB, limit time.Duration, ok func() bool, why func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s", limit, why())
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the test ends: " + why())
		}
	}
}

// read returns the ledger and the table.
func (d *database) read(t testing.TB) (ledger []Entry, rows []Row) {
	t.Helper()
	got, err := d.Query("SELECT event_id, k, n, hash FROM ledger")
	require.NoError(t, err)
	defer got.Close()
	for got.Next() {
		var e Entry
		require.NoError(t, got.Scan(&e.EventID, &e.Key, &e.Counter, &e.Hash))
		ledger = append(ledger, e)
	}
	require.NoError(t, got.Err())
	table, err := d.Query(`SELECT event_id, COALESCE(message_key, aggregate_id), status, retry_count,
		COALESCE(last_error, ''), kafka_topic, kafka_partition, kafka_offset FROM outbox_events ORDER BY id`)
	require.NoError(t, err)
	defer table.Close()
	for table.Next() {
		var r Row
		var topic sql.NullString
		var partition sql.NullInt32
		var offset sql.NullInt64
		require.NoError(t, table.Scan(&r.EventID, &r.Key, &r.Status, &r.RetryCount, &r.LastError, &topic, &partition, &offset))
		if topic.Valid || partition.Valid || offset.Valid {
			r.Receipt = &Place{Topic: topic.String, Partition: partition.Int32, Offset: offset.Int64}
		}
		rows = append(rows, r)
	}
	require.NoError(t, table.Err())
	return ledger, rows
}
