package mysql

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// refused opens and expects a set-up error that names a next step.
func refused(t *testing.T, dsn string, table relay.Table, kind relay.SetupKind, says ...string) *relay.SetupError {
	t.Helper()
	o := relay.StoreOptions{URL: dsn, Table: table, Claim: relay.ClaimRows}
	if table.Columns.Status == "" {
		o.Claim = relay.ClaimSingle
	}
	s, err := Open(t.Context(), o)
	if err == nil {
		_ = s.Close()
	}
	e := relay.AsSetup(err)
	require.NotNil(t, e, "%v", err)
	require.Equal(t, kind, e.Kind, "%v", err)
	require.NotEmpty(t, e.Fix)
	for _, text := range says {
		require.ErrorContains(t, err, text)
	}
	require.NotContains(t, err.Error(), "\n")
	return e
}

func TestOpen_server_faults(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, _ := v.newDatabase(t, "")
		with := func(change func(*url.URL)) string {
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			change(u)
			return u.String()
		}
		e := refused(t, with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), ownTable(), relay.SetupUnreachable,
			"127.0.0.1:1", "does not answer")
		require.Error(t, e.Unwrap())
		refused(t, with(func(u *url.URL) { u.Path = "/no_such_database" }), ownTable(), relay.SetupNotFound,
			`"no_such_database"`)
		e = refused(t, with(func(u *url.URL) { u.User = url.UserPassword("root", secret) }), ownTable(),
			relay.SetupPermission, `user "root"`)
		require.NotContains(t, e.Unwrap().Error(), secret)
		refused(t, with(func(u *url.URL) { u.User = url.UserPassword("nobody_here", secret) }), ownTable(),
			relay.SetupPermission, "nobody_here")
		// MySQL makes itself a certificate that nobody signed; MariaDB 10.11 speaks no TLS unless told to.
		want := "certificate is refused"
		if v == mariadbServer {
			want = "does not speak TLS"
		}
		refused(t, with(func(u *url.URL) { u.RawQuery = "tls=true" }), ownTable(), relay.SetupUsage, want)
		for _, ok := range []string{"tls=preferred", "tls=false", ""} {
			s, err := Open(t.Context(), relay.StoreOptions{URL: with(func(u *url.URL) { u.RawQuery = ok }),
				Table: ownTable()})
			require.NoError(t, err, ok)
			require.NoError(t, s.Close())
		}
	})
}

func TestOpen_table_faults(t *testing.T) {
	const columns = "id BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) UNIQUE, aggregate_id VARCHAR(64), payload JSON"
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		for _, c := range []struct {
			name, ddl string
			table     func(*relay.Table)
			kind      relay.SetupKind
			says      string
		}{
			{"missing table", "", func(t *relay.Table) { t.Name = "outbox" }, relay.SetupNotFound,
				"does not exist (the database has outbox_events"},
			{"bad name", "", func(t *relay.Table) { t.Name = "a.b.c" }, relay.SetupUsage, "outbox.table"},
			{"missing column", "", func(t *relay.Table) { t.Columns.Payload = "body|data" }, relay.SetupUsage,
				`no column "body" or "data" for payload`},
			{"missing columns", "", func(t *relay.Table) { t.Columns.Topic, t.Columns.MessageKey = "dest", "k" }, relay.SetupUsage,
				`no column "dest" for topic, "k" for message_key (it has`},
			{"no payload", "", func(t *relay.Table) { t.Columns.Payload = "" }, relay.SetupUsage, "id and payload"},
			{"uuid as id", "", func(t *relay.Table) { t.Columns.ID = "event_id" }, relay.SetupUsage,
				"in which order rows were written"},
			{"id without an index", "CREATE TABLE x_noindex (id BIGINT, n BIGINT AUTO_INCREMENT PRIMARY KEY, payload TEXT)",
				bare("x_noindex"), relay.SetupUsage, "no unique index"},
			{"payload is a number", "CREATE TABLE x_number (id BIGINT AUTO_INCREMENT PRIMARY KEY, payload DOUBLE)",
				bare("x_number"), relay.SetupUsage, "needs JSON, text or a blob"},
			{"time is text", "CREATE TABLE x_time (" + columns + ", status VARCHAR(9), retry_count INT, next_retry_at VARCHAR(30))",
				small("x_time"), relay.SetupUsage, "needs DATETIME or TIMESTAMP"},
			{"no time", "CREATE TABLE x_notime (" + columns + ", status VARCHAR(9), retry_count INT)",
				func(t *relay.Table) { small("x_notime")(t); t.Columns.NextRetryAt = "" }, relay.SetupUsage, "no time for the next attempt"},
			{"enum", "CREATE TABLE x_enum (" + columns + ", status ENUM('NEW','SENT','FAILED','DEAD'), retry_count INT, next_retry_at DATETIME(6), updated_at DATETIME(6))",
				small("x_enum"), relay.SetupUsage, `does not take "SENDING"`},
			{"check", "CREATE TABLE x_check (" + columns + ", status VARCHAR(9) CHECK (status IN ('NEW','SENDING','SENT','FAILED')), retry_count INT, next_retry_at DATETIME(6), updated_at DATETIME(6))",
				small("x_check"), relay.SetupUsage, `does not take "DEAD"`},
			{"too narrow", "CREATE TABLE x_narrow (" + columns + ", status VARCHAR(4), retry_count INT, next_retry_at DATETIME(6), updated_at DATETIME(6))",
				small("x_narrow"), relay.SetupUsage, "varchar(4)"},
			{"no status", "", func(t *relay.Table) { t.Columns.Status = "" }, relay.SetupUsage, "no status column"},
			{"view", "CREATE VIEW x_view AS SELECT * FROM outbox_events", func(t *relay.Table) { t.Name = "x_view" },
				relay.SetupUsage, "is a view"},
			{"no transactions", "CREATE TABLE x_isam (" + columns + ") ENGINE = MyISAM", bare("x_isam"),
				relay.SetupUsage, "does not roll back"},
			{"no such zone", "", func(t *relay.Table) { t.Own, t.TimeZone = false, "Mars/Olympus" }, relay.SetupUsage,
				"is not a zone"},
		} {
			if c.ddl != "" {
				_, err := db.ExecContext(t.Context(), c.ddl)
				require.NoError(t, err)
			}
			t.Run(c.name, func(t *testing.T) {
				table := ownTable()
				c.table(&table)
				refused(t, dsn, table, c.kind, c.says)
			})
		}
	})
}

// bare maps a table of an id and a payload; small one with states too.
func bare(name string) func(*relay.Table) {
	return func(t *relay.Table) {
		*t = relay.Table{Name: name, AfterSend: "delete", Columns: relay.Columns{ID: "id", Payload: "payload"}}
	}
}

func small(name string) func(*relay.Table) {
	return func(t *relay.Table) {
		*t = relay.Table{Name: name, States: ownTable().States,
			Columns: relay.Columns{ID: "id", EventID: "event_id", AggregateID: "aggregate_id",
				Payload: "payload", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", UpdatedAt: "updated_at?"}}
	}
}

// Each missing right is named with the statement that gives it, and that statement is enough.
func TestOpen_rights(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		name := "pr_" + strings.ToLower(rand.Text())[:20]
		_, err = db.ExecContext(t.Context(), "CREATE USER "+name+"@'%' IDENTIFIED BY "+quote(secret))
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP USER "+name+"@'%'") })
		u.User = url.UserPassword(name, secret)

		e := refused(t, u.String(), ownTable(), relay.SetupPermission, "may not use database")
		require.NotContains(t, e.Unwrap().Error(), secret)
		_, err = db.ExecContext(t.Context(), "GRANT SELECT (id) ON outbox_events TO "+name+"@'%'") // lets it into the database
		require.NoError(t, err)
		table := ownTable()
		table.AfterSend = "delete"
		for range 5 {
			s, err := Open(t.Context(), relay.StoreOptions{URL: u.String(), Table: table})
			if err == nil {
				require.NoError(t, s.Close())
				return
			}
			e := relay.AsSetup(err)
			require.NotNil(t, e, "%v", err)
			require.Equal(t, relay.SetupPermission, e.Kind, "%v", err)
			require.True(t, strings.HasPrefix(e.Fix, "GRANT "), e.Fix)
			_, err = db.ExecContext(t.Context(), e.Fix)
			require.NoError(t, err, e.Fix)
		}
		require.Fail(t, "the statements given were not enough")
	})
}

// A session that may only read is found at start. (A server in read_only mode answers with another
// number, which is told the same way.)
func TestOpen_read_only(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, _ := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		c := s.config.Clone()
		c.RejectReadOnly = false
		c.Params[strings.Replace(s.server.isolationVariable(), "isolation", "read_only", 1)] = "1"
		db, err := open(c)
		require.NoError(t, err)
		defer db.Close()
		_, err = newLayout(t.Context(), db, s.server, relay.StoreOptions{Table: ownTable()})
		e := relay.AsSetup(err)
		require.NotNil(t, e, "%v", err)
		require.ErrorContains(t, err, "read-only")
		require.Contains(t, e.Fix, "primary")
	})
	e := relay.AsSetup(setup(&driver.MySQLError{Number: errReadOnlyServer,
		Message: "running with the --read-only option"}, driver.NewConfig()))
	require.ErrorContains(t, e, "read-only")
}

// The relay's sessions are strict and READ COMMITTED whatever the server's defaults are.
func TestOpen_sessions(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, _ := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		var mode, isolation, zone string
		var wait, silent int
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT @@sql_mode, @@"+s.server.isolationVariable()+", @@time_zone, @@innodb_lock_wait_timeout, @@wait_timeout").
			Scan(&mode, &isolation, &zone, &wait, &silent))
		require.Contains(t, mode, "STRICT_ALL_TABLES")
		require.Equal(t, "READ-COMMITTED", isolation)
		require.Equal(t, "+00:00", zone)
		require.Equal(t, 5, wait)
		require.Equal(t, 5, silent, "a session that stands still lets go of its rows before another relay has its lanes")
	})
}

func TestServer_notes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode, isolation string
		notes           int
	}{
		{"STRICT_TRANS_TABLES,NO_ZERO_DATE", "REPEATABLE-READ", 0},
		{"STRICT_ALL_TABLES", "READ-COMMITTED", 0},
		{"NO_ENGINE_SUBSTITUTION", "REPEATABLE-READ", 1},
		{"", "SERIALIZABLE", 2},
	} {
		s := server{}
		s.note(c.mode, c.isolation)
		require.Len(t, s.notices, c.notes, "%+v", c)
	}
}

func TestOpen_notices(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		_, err := db.ExecContext(t.Context(), `CREATE TABLE plain (id BIGINT AUTO_INCREMENT PRIMARY KEY, payload JSON, status VARCHAR(9),
retry_count INT, next_retry_at DATETIME(6), aggregate_id VARCHAR(9), KEY by_time (next_retry_at))`)
		require.NoError(t, err)
		table := relay.Table{Name: "plain", States: ownTable().States,
			Columns: relay.Columns{ID: "id", AggregateID: "aggregate_id", Payload: "payload",
				Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at", UpdatedAt: "updated_at?", SentAt: "sent_at?"}}
		notices := strings.Join(openStore(t, dsn, table).Notices(), "\n")
		require.Contains(t, notices, "no columns for updated_at, sent_at")
		require.Contains(t, notices, "no index gives new rows in order")
		require.Contains(t, notices, "the row's id is the event's id")
		require.Equal(t, v == mysqlServer, strings.Contains(notices, `column "payload" is JSON`), notices)
	})
}
