package app_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/schema"
)

// server is a database that presets are tried on.
type server struct {
	name     string
	dialect  outbox.Dialect
	variable string // of its URL; "" for SQLite
}

var servers = []server{
	{"postgres oldest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES"},
	{"postgres newest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES_NEWEST"},
	{"mysql", outbox.MySQL, "POSTRIDER_TEST_MYSQL"},
	{"mariadb", outbox.MariaDB, "POSTRIDER_TEST_MARIADB"},
	{"sqlite", outbox.SQLite, ""},
}

// The articles' tables. ID, JSON and TIME stand for what each database calls them.
const (
	articlePostgres = `CREATE TABLE outbox_events (
		id ID, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL, aggregate_id VARCHAR(64) NOT NULL,
		event_type VARCHAR(128) NOT NULL, payload JSON NOT NULL, headers JSON, status VARCHAR(16) NOT NULL DEFAULT 'NEW',
		retry_count INT NOT NULL DEFAULT 0, next_retry_at TIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
		created_at TIME NOT NULL DEFAULT CURRENT_TIMESTAMP, sent_at TIME NULL);
	CREATE INDEX idx_outbox_status_next_retry ON outbox_events (status, next_retry_at, id)`
	articleMySQL = `CREATE TABLE outbox_event (
		id ID, event_id VARCHAR(64) NOT NULL UNIQUE, aggregate_type VARCHAR(64) NOT NULL, aggregate_id VARCHAR(64) NOT NULL,
		event_type VARCHAR(128) NOT NULL, topic VARCHAR(128) NOT NULL, message_key VARCHAR(128) DEFAULT NULL, payload JSON NOT NULL,
		status VARCHAR(32) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0, next_retry_time TIME DEFAULT NULL,
		sent_at TIME DEFAULT NULL, created_at TIME NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at TIME NOT NULL DEFAULT CURRENT_TIMESTAMP);
	CREATE INDEX idx_publish_scan ON outbox_event (status, next_retry_time, id)`
)

var wordsOf = map[outbox.Dialect]*strings.Replacer{
	outbox.Postgres: strings.NewReplacer(" ID,", " BIGSERIAL PRIMARY KEY,", " JSON", " JSONB", " TIME ", " TIMESTAMP "),
	outbox.MySQL:    strings.NewReplacer(" ID,", " BIGINT PRIMARY KEY AUTO_INCREMENT,", " TIME ", " DATETIME "),
	outbox.MariaDB:  strings.NewReplacer(" ID,", " BIGINT PRIMARY KEY AUTO_INCREMENT,", " TIME ", " DATETIME "),
	outbox.SQLite:   strings.NewReplacer(" ID,", " INTEGER PRIMARY KEY AUTOINCREMENT,", " JSON", " TEXT", " TIME ", " DATETIME "),
}

// database makes a database of the test's own and returns a connection and its URL.
func (s server) database(t *testing.T) (*sql.DB, string) {
	t.Helper()
	if s.dialect == outbox.SQLite {
		path := filepath.Join(t.TempDir(), "outbox.db")
		return openDB(t, "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"), "sqlite:" + path
	}
	raw := os.Getenv(s.variable)
	if raw == "" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not set", s.variable)
		}
		t.Skipf("set %s (dev/servers up; eval \"$(dev/servers env)\")", s.variable)
	}
	u, err := url.Parse(raw)
	require.NoError(t, err)
	name := "app_" + strings.ReplaceAll(outbox.NewID(), "-", "")
	open := func() *sql.DB {
		if s.dialect == outbox.Postgres {
			return openDB(t, "pgx", u.String())
		}
		c := mysql.NewConfig()
		c.Net, c.Addr, c.User, c.DBName, c.MultiStatements = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/"), true
		c.Passwd, _ = u.User.Password()
		return openDB(t, "mysql", c.FormatDSN())
	}
	admin := open()
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		drop := "DROP DATABASE " + name
		if s.dialect == outbox.Postgres {
			drop += " WITH (FORCE)"
		}
		_, err := admin.ExecContext(context.WithoutCancel(t.Context()), drop)
		require.NoError(t, err)
	})
	u.Path = "/" + name
	return open(), u.String()
}

func openDB(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// preset is a table that the configuration knows by name, and the words of its states.
type preset struct {
	name, ddl, table, fresh, sent, dead, topic string
}

var presets = []preset{
	{"postrider", "", "outbox_events", "NEW", "SENT", "DEAD", "topic"},
	{"article-postgres", articlePostgres, "outbox_events", "NEW", "SENT", "DEAD", ""},
	{"article-mysql", articleMySQL, "outbox_event", "PENDING", "SENT", "FAILED", "topic"},
}

// TestRun_Presets relays each known table on each database in both claim modes, as the configuration names
// it and as a service fills it: all sent, each key in order, numbers untouched, and an event that cannot be
// sent is dead in the table's own word.
func TestRun_Presets(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		for _, p := range presets {
			t.Run(s.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				db, place := s.database(t)
				if p.ddl == "" {
					_, err := schema.Apply(t.Context(), db, s.dialect)
					require.NoError(t, err)
				} else {
					_, err := db.ExecContext(t.Context(), wordsOf[s.dialect].Replace(p.ddl))
					require.NoError(t, err)
				}
				for _, claim := range []string{"single", "rows"} {
					t.Run(claim, func(t *testing.T) {
						r := newRig(t)
						r.cfg["database.url"], r.cfg["outbox.preset"], r.cfg["relay.claim"] = place, p.name, claim
						r.cfg["topic"], r.cfg["relay.unknown_topic_grace"] = "orders", "0s"
						r.kafka("")
						r.opts.UntilDrained = true
						relayPreset(t, r, db, p, claim)
					})
				}
			})
		}
	}
}

func relayPreset(t *testing.T, r *rig, db *sql.DB, p preset, round string) {
	const n, payload = 40, `{"account": 1234567890123456789}`
	insert := func(i int, key, topic string) {
		columns, values := "event_id, aggregate_type, aggregate_id, event_type, payload", fmt.Sprintf("'%s-%03d', 'Order', '%s', 'OrderCreated', '%s'", round, i, key, payload)
		if p.topic != "" {
			columns, values = columns+", "+p.topic, values+", '"+topic+"'"
		}
		_, err := db.ExecContext(t.Context(), "INSERT INTO "+p.table+" ("+columns+") VALUES ("+values+")")
		require.NoError(t, err)
	}
	for i := range n {
		insert(i, fmt.Sprintf("o-%d", i%4), "orders")
	}
	if p.topic != "" {
		insert(n, round+"-bad", "no-such-topic")
	}
	require.NoError(t, r.run())

	count := func(status string) (c int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+p.table+" WHERE status = '"+status+"' AND event_id LIKE '"+round+"-%'").Scan(&c))
		return c
	}
	require.Equal(t, n, count(p.sent))
	require.Zero(t, count(p.fresh))
	if p.topic != "" {
		require.Equal(t, 1, count(p.dead))
	}
	last := map[string]string{}
	for _, rec := range consume(t, r.cfg["kafka.bootstrap.servers"], n) {
		id := header(rec, "event_id")
		require.Less(t, last[string(rec.Key)], id, "key %s", rec.Key)
		last[string(rec.Key)] = id
		require.JSONEq(t, payload, string(rec.Value))
		require.Contains(t, string(rec.Value), "1234567890123456789")
		require.Equal(t, "OrderCreated", header(rec, "event_type"))
	}
	require.Len(t, last, 4)
}

// consume reads the n records that the topic orders has.
func consume(t *testing.T, addr string, n int) (all []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("orders"))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(all) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "after %d of %d records", len(all), n)
		all = append(all, fetches.Records()...)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	require.Empty(t, client.PollFetches(short).Records(), "no more than was written")
	return all
}

func header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
