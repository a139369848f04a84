package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/schema"
)

// flavour is one of the two servers.
type flavour struct {
	name, env string
	dialect   outbox.Dialect
}

var (
	mysqlServer   = flavour{"mysql", "POSTRIDER_TEST_MYSQL", outbox.MySQL}
	mariadbServer = flavour{"mariadb", "POSTRIDER_TEST_MARIADB", outbox.MariaDB}
)

// onBoth runs a test on each server.
func onBoth(t *testing.T, f func(t *testing.T, v flavour)) {
	t.Parallel()
	for _, v := range []flavour{mysqlServer, mariadbServer} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f(t, v)
		})
	}
}

func (v flavour) url(t testing.TB) *url.URL {
	t.Helper()
	text := os.Getenv(v.env)
	if text == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("set %s: CI runs against real servers", v.env)
		}
		t.Skipf("set %s, for example with dev/servers up", v.env)
	}
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

// newDatabase makes a database of the test's own with the given statements, "" for the product's
// tables, and returns its URL and a plain pool on it.
func (v flavour) newDatabase(t testing.TB, ddl string) (string, *sql.DB) {
	t.Helper()
	u := v.url(t)
	name := "pr_" + strings.ToLower(rand.Text())
	admin := v.pool(t, *u)
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name)
		require.NoError(t, err)
	})
	u.Path, u.RawQuery = "/"+name, "tls=false" // a handshake a session is most of the time of a short test
	db := v.pool(t, *u)
	if ddl == "" {
		ddl = schema.Print(v.dialect)
	}
	_, err = db.ExecContext(t.Context(), ddl)
	require.NoError(t, err)
	return u.String(), db
}

// pool is a service's: the server's own settings, several statements at once.
func (v flavour) pool(t testing.TB, u url.URL) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.MultiStatements, c.InterpolateParams = true, true
	connector, err := driver.NewConnector(c)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ownTable is the table of preset postrider.
func ownTable() relay.Table {
	return relay.Table{
		Name: "outbox_events", Own: true,
		Columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic", MessageKey: "message_key", Payload: "payload", Headers: "headers",
			Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", LastError: "last_error",
			CreatedAt: "created_at", UpdatedAt: "updated_at", SentAt: "sent_at",
			KafkaTopic: "kafka_topic", KafkaPartition: "kafka_partition", KafkaOffset: "kafka_offset",
		},
		States: relay.States{New: "NEW", Sending: "SENDING", Sent: "SENT", Failed: "FAILED", Dead: "DEAD"},
	}
}

func openStore(t *testing.T, dsn string, table relay.Table, change ...func(*relay.StoreOptions)) *Store {
	t.Helper()
	o := relay.StoreOptions{URL: dsn, Name: "test", Relay: "relay-1", Table: table}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func write(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "-")
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
VALUES (?, 'order', ?, 'OrderCreated', '{}')`, id, key)
		require.NoError(t, err)
	}
}

func fetch(t *testing.T, s *Store, f relay.Fetch) []relay.Event {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.MaxBytes == 0 {
		f.MaxBytes = 1 << 20
	}
	got, err := s.Fetch(t.Context(), f)
	require.NoError(t, err)
	return got.Events
}

func ids(evs []relay.Event) []string {
	out := []string{}
	for _, e := range evs {
		out = append(out, e.ID)
	}
	return out
}

func outcome(e relay.Event, s relay.State) relay.Outcome {
	o := relay.Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: s}
	switch s {
	case relay.StateSent:
		o.Receipt = relay.Receipt{Topic: "orders", Partition: 2, Offset: 41}
	case relay.StateFailed:
		o.Attempt, o.RetryAfter, o.LastError = true, time.Hour, "[retriable] TEST: no"
	case relay.StateDead:
		o.Attempt, o.LastError = true, "[permanent] TEST: never"
	}
	return o
}

func settle(t *testing.T, s *Store, outs ...relay.Outcome) {
	t.Helper()
	lost, err := s.Settle(t.Context(), outs)
	require.NoError(t, err)
	require.Empty(t, lost)
}

func TestStore_reads_and_settles(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		write(t, db, "a-1", "a-2", "b-1")
		evs := fetch(t, s, relay.Fetch{})
		require.Equal(t, []string{"a-1", "a-2", "b-1"}, ids(evs))
		require.Equal(t, relay.StateNew, evs[0].State)
		require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
		settle(t, s, outcome(evs[0], relay.StateSent), outcome(evs[1], relay.StateFailed), outcome(evs[2], relay.StateDead))
		require.Empty(t, fetch(t, s, relay.Fetch{}))
	})
}
