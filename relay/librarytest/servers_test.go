package librarytest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

func init() {
	// The driver prints what the tests provoke on purpose.
	_ = mysql.SetLogger(&mysql.NopLogger{})
}

// server is one database that the tests run on.
type server struct {
	name     string
	dialect  outbox.Dialect
	variable string // where its URL is, "" for SQLite
}

var servers = []server{
	{"postgres-oldest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES"},
	{"postgres-newest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES_NEWEST"},
	{"mysql", outbox.MySQL, "POSTRIDER_TEST_MYSQL"},
	{"mariadb", outbox.MariaDB, "POSTRIDER_TEST_MARIADB"},
	{"sqlite", outbox.SQLite, ""},
}

// onEvery runs a test on every server, each with a schema or database of its own.
func onEvery(t *testing.T, test func(t *testing.T, b *base)) {
	t.Helper()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.fresh(t))
		})
	}
}

// on runs a test on the servers of some dialects.
func on(t *testing.T, test func(t *testing.T, b *base), dialects ...outbox.Dialect) {
	t.Helper()
	for _, s := range servers {
		for _, d := range dialects {
			if s.dialect == d {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					test(t, s.fresh(t))
				})
			}
		}
	}
}

// base is an empty schema or database of one test.
type base struct {
	*sql.DB
	server
	url  *url.URL // of the server; nil on SQLite
	name string   // of the schema, the database or the file
}

func serverURL(t testing.TB, variable string) *url.URL {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set", variable)
		}
		t.Skipf("set %s (dev/servers up; eval \"$(dev/servers env)\")", variable)
	}
	u, err := url.Parse(value)
	require.NoError(t, err)
	return u
}

// pooled is a database of its own behind PgBouncer in transaction mode. A schema would not do: its
// search_path would stay on the pooler's connections.
func pooled(t testing.TB) *base {
	t.Helper()
	pooler := serverURL(t, "POSTRIDER_TEST_PGBOUNCER")
	direct := server{"postgres-oldest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES"}.fresh(t)
	direct.create(t, "CREATE DATABASE "+direct.name, "DROP DATABASE "+direct.name+" WITH (FORCE)")
	b := *direct
	pooler.Path = "/" + b.name
	b.url = pooler
	b.DB = b.open(t, nil)
	return &b
}

// fresh makes an empty schema or database on the server.
func (s server) fresh(t testing.TB) *base {
	t.Helper()
	b := &base{server: s, name: "library_" + strings.ReplaceAll(outbox.NewID(), "-", "")[8:]}
	switch s.dialect {
	case outbox.SQLite:
		b.name = filepath.Join(t.TempDir(), "test.db")
		b.DB = b.open(t, nil)
	case outbox.Postgres:
		b.url = serverURL(t, s.variable)
		b.create(t, "CREATE SCHEMA "+b.name, "DROP SCHEMA "+b.name+" CASCADE")
		b.DB = b.open(t, url.Values{"search_path": {b.name}})
	default:
		b.url = serverURL(t, s.variable)
		b.create(t, "CREATE DATABASE "+b.name, "DROP DATABASE "+b.name)
		b.DB = b.open(t, nil)
	}
	return b
}

// create makes the test's schema or database and drops it at the end.
func (b *base) create(t testing.TB, create, drop string) {
	t.Helper()
	admin := *b
	admin.name = strings.TrimPrefix(b.url.Path, "/")
	db := admin.open(t, nil)
	_, err := db.Exec(create)
	require.NoError(t, err)
	t.Cleanup(func() {
		again := admin.connect(t, nil)
		defer again.Close()
		_, err := again.Exec(drop)
		require.NoError(t, err)
	})
}

// open connects with further parameters and closes the connection before the schema is dropped.
func (b *base) open(t testing.TB, params url.Values) *sql.DB {
	t.Helper()
	db := b.connect(t, params)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (b *base) openAs(t testing.TB, user *url.Userinfo, params url.Values) *sql.DB {
	t.Helper()
	other, u := *b, *b.url
	u.User = user
	other.url = &u
	return other.open(t, params)
}

func (b *base) connect(t testing.TB, params url.Values) *sql.DB {
	t.Helper()
	driver, dsn := "sqlite", "file:"+b.name+"?_pragma=busy_timeout(10000)&"+params.Encode()
	switch b.dialect {
	case outbox.Postgres:
		driver, dsn = "pgx", b.postgresURL(params)
	case outbox.MySQL, outbox.MariaDB:
		driver, dsn = "mysql", b.mysqlDSN(params)
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	return db
}

func (b *base) postgresURL(params url.Values) string {
	u := *b.url
	query := u.Query()
	for name, values := range params {
		query[name] = values
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func (b *base) mysqlDSN(params url.Values) string {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = b.url.User.Username(), "tcp", b.url.Host, b.name
	c.Passwd, _ = b.url.User.Password()
	c.Params = map[string]string{}
	for name := range params {
		c.Params[name] = params.Get(name)
	}
	return c.FormatDSN()
}

// apply makes the product's own tables.
func (b *base) apply(t testing.TB) *base {
	t.Helper()
	_, err := schema.Apply(t.Context(), b.DB, b.dialect)
	require.NoError(t, err)
	return b
}

func (b *base) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		_, err := b.Exec(s)
		require.NoError(t, err, s)
	}
}

// inTx runs what a service does in one transaction, and commits.
func (b *base) inTx(t *testing.T, do func(ctx context.Context, tx *sql.Tx)) {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	do(t.Context(), tx)
	require.NoError(t, tx.Commit())
}

// one reads one value.
func one[T any](t *testing.T, b *base, query string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, b.QueryRow(query, args...).Scan(&value), query)
	return value
}

// arg is the n-th parameter of a statement.
func (b *base) arg(n int) string {
	if b.dialect == outbox.Postgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

func order(id string) outbox.Event {
	return outbox.Event{
		ID: id, AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: []byte(`{"a":1}`),
	}
}
