package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// options are those of a store on the space's own table.
func (s *space) options(change ...func(*relay.StoreOptions)) relay.StoreOptions {
	o := relay.StoreOptions{URL: s.url, Name: "test", Relay: "relay-1", Table: ownTable()}
	for _, f := range change {
		f(&o)
	}
	return o
}

func (s *space) open(change ...func(*relay.StoreOptions)) *Store {
	s.Helper()
	st, err := Open(s.Context(), s.options(change...))
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, st.Close()) })
	return st
}

// refused opens a store that must be refused, and returns why.
func refused(t testing.TB, o relay.StoreOptions) *relay.SetupError {
	t.Helper()
	st, err := Open(t.Context(), o)
	if err == nil {
		_ = st.Close()
	}
	require.Error(t, err)
	setup := relay.AsSetup(err)
	require.NotNil(t, setup, "not an error for a person: %v", err)
	require.NotEmpty(t, setup.Thing)
	require.NotEmpty(t, setup.Reason)
	require.NotEmpty(t, setup.Fix)
	require.NotContains(t, setup.Error(), "\n", "one line")
	return setup
}

// role makes a login role of the test's own and returns the URL of its sessions.
func (s *space) role(password string, grants ...string) (name, as string) {
	s.Helper()
	name = s.schema + "_role"
	conn := s.conn()
	exec(s, conn, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD %s", name, lit(password)))
	atEnd(s.TB, s.url, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %s", name, name))
	for _, g := range append(grants, "GRANT USAGE ON SCHEMA "+s.schema+" TO ROLE") {
		exec(s, conn, strings.ReplaceAll(g, "TO ROLE", "TO "+name))
	}
	u, err := url.Parse(s.url)
	require.NoError(s, err)
	u.User = url.UserPassword(name, password)
	return name, u.String()
}

func TestOpen_Rights(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, server string) {
		for name, c := range map[string]struct {
			grants []string
			delete bool
			fix    string
		}{
			"select": {nil, false, "GRANT SELECT ON"},
			"update": {[]string{"GRANT SELECT ON outbox_events TO ROLE"}, false, `GRANT UPDATE ("status", "retry_count", "next_retry_at"`},
			"some columns": {[]string{"GRANT SELECT, UPDATE (status, retry_count) ON outbox_events TO ROLE"}, false,
				`GRANT UPDATE ("next_retry_at", "last_error"`},
			"delete": {[]string{"GRANT SELECT, UPDATE ON outbox_events TO ROLE"}, true, "GRANT DELETE ON"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSpace(t, server, ownDDL())
				role, as := s.role("pw", c.grants...)
				e := refused(t, s.options(func(o *relay.StoreOptions) {
					o.URL = as
					if c.delete {
						o.Table.AfterSend = "delete"
					}
				}))
				require.Equal(t, relay.SetupPermission, e.Kind)
				require.Contains(t, e.Fix, c.fix)
				require.Contains(t, e.Fix, `"`+s.schema+`"."outbox_events"`)
				require.Contains(t, e.Fix, role)
			})
		}
		t.Run("enough", func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server, ownDDL())
			_, as := s.role("pw", "GRANT SELECT, UPDATE ON outbox_events TO ROLE")
			st := s.open(func(o *relay.StoreOptions) { o.URL = as })
			require.NotEmpty(t, st.Notices())
			_, err := st.Fetch(t.Context(), relay.Fetch{Limit: 1, MaxBytes: 1})
			require.NoError(t, err, "without the cursor's table the store reads from the beginning")
		})
		t.Run("the schema", func(t *testing.T) {
			t.Parallel()
			s := newSpace(t, server, ownDDL())
			other := newSpace(t, server, "SELECT 1")
			_, as := other.role("pw")
			e := refused(t, s.options(func(o *relay.StoreOptions) { o.URL, o.Table.Name = as, s.schema+".outbox_events" }))
			require.Equal(t, relay.SetupPermission, e.Kind)
			require.Contains(t, e.Fix, "GRANT USAGE ON SCHEMA")
		})
	})
}

func TestOpen_Table(t *testing.T) {
	t.Parallel()
	server := server(t, "POSTRIDER_TEST_POSTGRES")
	for name, c := range map[string]struct {
		ddl    string
		change func(*relay.StoreOptions)
		kind   relay.SetupKind
		want   []string
	}{
		"missing table": {"CREATE TABLE my_outbox (id int)", nil, relay.SetupNotFound, []string{"does not exist", "my_outbox", "postrider schema apply"}},
		"missing column": {"ALTER TABLE outbox_events DROP COLUMN retry_count", nil, relay.SetupUsage,
			[]string{"retry_count", "outbox.columns.retry_count", "event_id"}},
		"missing columns": {"ALTER TABLE outbox_events DROP COLUMN topic, DROP COLUMN last_error", nil, relay.SetupUsage,
			[]string{"has no column topic for topic, last_error for last_error (it has ", "set outbox.columns.topic, outbox.columns.last_error, or"}},
		"no next_retry_at": {"ALTER TABLE outbox_events DROP COLUMN next_retry_at", func(o *relay.StoreOptions) { o.Table.Columns.NextRetryAt = "next_retry_at?" },
			relay.SetupUsage, []string{"ADD COLUMN next_retry_at"}},
		"payload type": {"ALTER TABLE outbox_events DROP COLUMN payload, ADD COLUMN payload xml", nil, relay.SetupUsage, []string{"payload", "xml", "bytea"}},
		"time type":    {"ALTER TABLE outbox_events DROP COLUMN sent_at, ADD COLUMN sent_at date", nil, relay.SetupUsage, []string{"sent_at", "date", "timestamptz"}},
		"uuid ids": {"ALTER TABLE outbox_events RENAME COLUMN id TO old; ALTER TABLE outbox_events ADD COLUMN id uuid", nil, relay.SetupUsage,
			[]string{"uuid", "order", "GENERATED ALWAYS AS IDENTITY UNIQUE; outbox.columns.id: seq", "locks it"}},
		"uuid ids that are the event's": {"ALTER TABLE outbox_events RENAME COLUMN id TO old; ALTER TABLE outbox_events ADD COLUMN id uuid", func(o *relay.StoreOptions) { o.Table.Columns.EventID = "id" },
			relay.SetupUsage, []string{"outbox.columns.id: seq, outbox.columns.event_id: id"}},
		"no index on id":          {"ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey", nil, relay.SetupUsage, []string{"no index", "CREATE UNIQUE INDEX"}},
		"no index of failed rows": {"DROP INDEX outbox_events_retry_idx", nil, relay.SetupUsage, []string{"next_retry_at", "schema apply"}},
		"state against a CHECK": {"ALTER TABLE outbox_events ADD CHECK (status IN ('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD'))", func(o *relay.StoreOptions) { o.Table.States.Dead = "PARKED" }, relay.SetupUsage,
			[]string{`"PARKED"`, "CHECK", "outbox.states.dead"}},
		"state too long": {"ALTER TABLE outbox_events ALTER status TYPE varchar(16)", func(o *relay.StoreOptions) { o.Table.States.Failed = "FAILED_AND_TRIED_AGAIN" },
			relay.SetupUsage, []string{"longer", "outbox.states.failed"}},
		"state of no enum": {"CREATE TYPE st AS ENUM ('NEW', 'SENT', 'FAILED');" +
			"ALTER TABLE outbox_events ALTER status DROP DEFAULT, ALTER status TYPE st USING status::st", nil, relay.SetupUsage, []string{`"DEAD"`, "NEW, SENT, FAILED"}},
		"no word for claims": {"SELECT 1", func(o *relay.StoreOptions) { o.Claim, o.Table.States.Sending = relay.ClaimRows, "" }, relay.SetupUsage,
			[]string{"outbox.states.sending"}},
		"no status":     {"SELECT 1", func(o *relay.StoreOptions) { o.Table.Columns.Status = "" }, relay.SetupUsage, []string{"after_send: delete"}},
		"a view":        {"CREATE VIEW v AS SELECT * FROM outbox_events", func(o *relay.StoreOptions) { o.Table.Name = "v" }, relay.SetupUsage, []string{"not a table"}},
		"a broken name": {"SELECT 1", func(o *relay.StoreOptions) { o.Table.Name = `a."b` }, relay.SetupUsage, []string{"outbox.table"}},
		"unknown zone": {"ALTER TABLE outbox_events ALTER created_at TYPE timestamp", func(o *relay.StoreOptions) { o.Table.TimeZone = "Mars/Olympus" }, relay.SetupUsage,
			[]string{"Mars/Olympus", "outbox.time_zone"}},
		"ids from nowhere": {"ALTER TABLE outbox_events ALTER id DROP IDENTITY", nil, relay.SetupUsage, []string{"sequence", "CREATE INDEX"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ddl := ownDDL() + ";" + c.ddl
			if name == "missing table" {
				ddl = c.ddl
			}
			s := newSpace(t, server, ddl)
			o := s.options()
			if c.change != nil {
				c.change(&o)
			}
			e := refused(t, o)
			require.Equal(t, c.kind, e.Kind, e.Error())
			for _, w := range c.want {
				require.Contains(t, e.Error(), w)
			}
		})
	}
}

func TestOpen_Server(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, server string) {
		s := newSpace(t, server, ownDDL())
		with := func(change func(*url.URL)) relay.StoreOptions {
			u, err := url.Parse(s.url)
			require.NoError(t, err)
			change(u)
			return s.options(func(o *relay.StoreOptions) { o.URL = u.String() })
		}
		query := func(name, value string) func(*url.URL) {
			return func(u *url.URL) {
				q := u.Query()
				q.Set(name, value)
				u.RawQuery = q.Encode()
			}
		}
		e := refused(t, with(func(u *url.URL) { u.Host = "127.0.0.1:1" }))
		require.Equal(t, relay.SetupUnreachable, e.Kind)
		require.Contains(t, e.Error(), "127.0.0.1:1")
		e = refused(t, with(func(u *url.URL) { u.Host = "no-such-host.invalid:5432" }))
		require.Equal(t, relay.SetupUnreachable, e.Kind)
		require.Contains(t, e.Error(), "no-such-host.invalid")
		e = refused(t, with(func(u *url.URL) { u.Path = "/no_such_database" }))
		require.Equal(t, relay.SetupNotFound, e.Kind)
		require.Contains(t, e.Error(), "no_such_database")
		e = refused(t, with(query("sslmode", "require")))
		require.Equal(t, relay.SetupUsage, e.Kind)
		require.Contains(t, e.Error(), "TLS")
		require.Contains(t, e.Error(), "sslmode=disable")
		e = refused(t, with(query("default_transaction_read_only", "on")))
		require.Equal(t, relay.SetupUsage, e.Kind)
		require.Contains(t, e.Error(), "read-only")
	})
	replica := (&layout{catalog: &catalog{recovery: true, kind: "r"}}).checkServer()
	require.ErrorContains(t, replica, "replica")
	require.ErrorContains(t, replica, "primary")
}

// TestCase_F01_Password: special characters work when they are encoded, a broken URL is explained, and the
// password is in no text.
func TestCase_F01_Password(t *testing.T) {
	t.Parallel()
	const secret = `p#G>P@/%7x:`
	server := server(t, "POSTRIDER_TEST_POSTGRES")
	s := newSpace(t, server, ownDDL())
	role, as := s.role(secret, "GRANT SELECT, UPDATE ON outbox_events TO ROLE")
	st := s.open(func(o *relay.StoreOptions) { o.URL = as })
	for _, n := range st.Notices() {
		require.NotContains(t, n, secret)
	}

	u, err := url.Parse(as)
	require.NoError(t, err)
	u.User = url.UserPassword(role, secret+"wrong")
	e := refused(t, s.options(func(o *relay.StoreOptions) { o.URL = u.String() }))
	require.Equal(t, relay.SetupPermission, e.Kind)
	require.Contains(t, e.Error(), role)
	require.Contains(t, e.Error(), "password")
	require.NotContains(t, fmt.Sprintf("%v %+v %v", e, e.Err, e.Unwrap()), secret)

	for _, bad := range []string{
		"postgres://" + role + ":" + secret + "@" + u.Host + u.Path,
		"postgres://" + role + ":12#34@" + u.Host + u.Path,
		"postgres://" + role + ":12/34@" + u.Host + u.Path,
		"postgres://" + role + ":12?34@" + u.Host + u.Path,
		"postgres://" + role + ":12%zz34@" + u.Host + u.Path,
		"postgres://" + role + ":12>34@" + u.Host + u.Path,
	} {
		e := refused(t, s.options(func(o *relay.StoreOptions) { o.URL = bad }))
		require.Equal(t, relay.SetupUsage, e.Kind)
		require.Contains(t, e.Error(), "must be percent-encoded")
		for _, part := range []string{secret, "12", "34", role} {
			require.NotContains(t, fmt.Sprintf("%v %+v", e, e.Err), part)
		}
	}
	e = refused(t, s.options(func(o *relay.StoreOptions) { o.URL = "host=127.0.0.1 port=zzz password=" + secret }))
	require.NotContains(t, fmt.Sprintf("%v %+v", e, e.Err), secret)
}

// TestCase_C12_Pooler: one relay alone needs a session for its lock; with claims and with lanes the suite runs
// through the pooler, and that nothing keeps relays of another mode away is said.
func TestCase_C12_Pooler(t *testing.T) {
	t.Parallel()
	pooler := server(t, "POSTRIDER_TEST_PGBOUNCER")
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), ownDDL())
	through := func(o *relay.StoreOptions) { o.URL, o.Table.Name = pooler, s.schema+".outbox_events" }
	e := refused(t, s.options(through))
	require.Equal(t, relay.SetupUsage, e.Kind)
	require.Contains(t, e.Error(), "pooler")
	require.Contains(t, e.Error(), "direct connection")
	require.Contains(t, e.Error(), "claim: lanes")

	for _, claim := range []relay.ClaimMode{relay.ClaimRows, relay.ClaimLanes} {
		st := s.open(through, func(o *relay.StoreOptions) { o.Claim, o.Lanes = claim, testLanes })
		require.Contains(t, strings.Join(st.Notices(), "\n"), "pooler", claim)
		require.Contains(t, strings.Join(st.Warnings(), "\n"), "stop all relays before either is changed", claim)
	}
}

// TestOpen_Surroundings: defaults of the server or the role that would be in the way are none.
func TestOpen_Surroundings(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, server string) {
		s := newSpace(t, server, articleDDL)
		role, as := s.role("pw", "GRANT SELECT, UPDATE, INSERT ON outbox_events TO ROLE", "GRANT USAGE ON SEQUENCE outbox_events_id_seq TO ROLE")
		conn := s.conn()
		exec(t, conn, fmt.Sprintf(`ALTER ROLE %s SET default_transaction_isolation = 'serializable';
			ALTER ROLE %s SET TimeZone = 'America/St_Johns'; ALTER ROLE %s SET datestyle = 'German, DMY';
			ALTER ROLE %s SET bytea_output = 'escape'; ALTER ROLE %s SET statement_timeout = '50ms'; ALTER ROLE %s SET intervalstyle = 'sql_standard'`,
			role, role, role, role, role, role))
		writer := connect(t, as)
		write := func(id string) {
			_, err := writer.Exec(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'order', 'k', 'T', '{}')`, id)
			require.NoError(t, err)
		}
		st := s.open(func(o *relay.StoreOptions) { o.URL, o.Table = as, articleTable() })
		for i := range 20 {
			write(fmt.Sprint("e", i))
			got, err := st.Fetch(t.Context(), relay.Fetch{Limit: 10, MaxBytes: 1 << 20})
			require.NoError(t, err)
			require.Len(t, got.Events, 1)
			e := got.Events[0]
			require.Less(t, e.Age, time.Minute)
			require.WithinDuration(t, time.Now(), e.CreatedAt, time.Minute)
			o := relay.Outcome{Row: e.Row, From: e.State, State: relay.StateFailed, Attempt: true, RetryAfter: time.Hour}
			lost, err := st.Settle(t.Context(), []relay.Outcome{o})
			require.NoError(t, err)
			require.Empty(t, lost)
		}
		ds, err := st.Doubts(t.Context(), 100)
		require.NoError(t, err)
		require.Len(t, ds, 20)
		require.InDelta(t, time.Hour.Seconds(), ds[19].DueIn.Seconds(), 60)
	})
}

// TestOpen_Notices: what a person should know is said.
func TestOpen_Notices(t *testing.T) {
	t.Parallel()
	s := newSpace(t, server(t, "POSTRIDER_TEST_POSTGRES"), articleDDL)
	exec(t, s.conn(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, created_at) VALUES ('e', 'o', 'k', 'T', '{}', now() + interval '8 hours')`)
	all := strings.Join(s.open(func(o *relay.StoreOptions) { o.Table = articleTable() }).Notices(), "\n")
	for _, want := range []string{"jsonb", "updated_at", "kafka_offset", "cursor", "time_zone", "without zone"} {
		require.Contains(t, all, want)
	}
}
