package sqlite

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/schema"
)

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

// newFile makes a database of the test's own with the given statements, "" for the product's tables.
func newFile(t *testing.T, ddl string) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=10000&_txlock=immediate&_synchronous=off")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	if ddl == "" {
		ddl = schema.Print(outbox.SQLite)
	}
	_, err = db.ExecContext(t.Context(), ddl)
	require.NoError(t, err)
	return path, db
}

func open(t *testing.T, path string, table relay.Table, change ...func(*relay.StoreOptions)) *Store {
	t.Helper()
	o := relay.StoreOptions{URL: "sqlite:" + path, Name: "test", Relay: "relay-1", Table: table}
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
	t.Parallel()
	path, db := newFile(t, "")
	s := open(t, path, ownTable())
	write(t, db, "a-1", "a-2", "b-1")
	evs := fetch(t, s, relay.Fetch{})
	require.Equal(t, []string{"a-1", "a-2", "b-1"}, ids(evs))
	require.Equal(t, relay.StateNew, evs[0].State)
	require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
	settle(t, s, outcome(evs[0], relay.StateSent), outcome(evs[1], relay.StateFailed), outcome(evs[2], relay.StateDead))
	require.Empty(t, fetch(t, s, relay.Fetch{}))
	ds, err := s.Doubts(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ds, 2)
	require.Equal(t, "a", ds[0].Key)
	require.InDelta(t, time.Hour, ds[0].DueIn, float64(time.Minute))
	row, found, err := s.Get(t.Context(), "a-1")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, relay.StateSent, row.State)
	require.Equal(t, &relay.Receipt{Topic: "orders", Partition: 2, Offset: 41}, row.Receipt)
	c, err := s.Counts(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, relay.Count{Value: 1, Exact: true}, c.Failed)
	require.Equal(t, relay.Count{Value: 1, Exact: true}, c.Dead)
	require.Equal(t, relay.Count{Value: 2, Exact: true}, c.BlockedKeys)
	done, skipped, err := s.Retry(t.Context(), relay.Filter{}, false)
	require.NoError(t, err)
	require.EqualValues(t, 2, done)
	require.Zero(t, skipped, "sent rows are not on their way")
	require.Equal(t, []string{"a-2", "b-1"}, ids(fetch(t, s, relay.Fetch{})))
}

// What SQLite keeps is what comes: bytes, text with NUL, numbers digit by digit.
func TestStore_keeps_payloads(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, "")
	s := open(t, path, ownTable())
	long := `{"account":1234567890123456789,"wei":19876543210987654321,"p":1.10}`
	for i, p := range []any{[]byte{0, 255, 1}, "a\x00b", long, []byte{}, "", nil} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
VALUES (?, 'order', 'k', 'OrderCreated', ?)`, fmt.Sprint(i), p)
		require.NoError(t, err)
	}
	evs := fetch(t, s, relay.Fetch{})
	require.Len(t, evs, 6)
	require.Equal(t, []byte{0, 255, 1}, evs[0].Payload)
	require.Equal(t, []byte("a\x00b"), evs[1].Payload)
	require.Equal(t, []byte(long), evs[2].Payload)
	require.Equal(t, []byte{}, evs[3].Payload, "empty is no tombstone")
	require.Equal(t, []byte{}, evs[4].Payload, "empty is no tombstone")
	require.Nil(t, evs[5].Payload)
}

func TestOpen_faults(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	garbage := filepath.Join(t.TempDir(), "garbage.db")
	require.NoError(t, os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600))
	for _, c := range []struct {
		name, url string
		table     func(*relay.Table)
		kind      relay.SetupKind
		says      string
	}{
		{"missing directory", "sqlite:/nowhere/at/all.db", nil, relay.SetupNotFound, "directory does not exist"},
		{"missing file", "sqlite:" + path + "x", nil, relay.SetupNotFound, "does not exist"},
		{"not a database", "sqlite:" + garbage, nil, relay.SetupUsage, "is not a SQLite database"},
		{"memory", "sqlite::memory:", nil, relay.SetupUsage, "memory"},
		{"unknown option", "sqlite:" + path + "?mode=ro", nil, relay.SetupUsage, `option "mode"`},
		{"missing table", "sqlite:" + path, func(t *relay.Table) { t.Name = "outbox" }, relay.SetupNotFound,
			"the file has inbox_events, outbox_events"},
		{"missing column", "sqlite:" + path, func(t *relay.Table) { t.Columns.Payload = "body|data" },
			relay.SetupUsage, `no column "body" or "data" for payload`},
		{"missing columns", "sqlite:" + path, func(t *relay.Table) { t.Columns.Topic, t.Columns.MessageKey = "dest", "k" },
			relay.SetupUsage, `no column "dest" for topic, "k" for message_key (it has`},
		{"time zone", "sqlite:" + path, func(t *relay.Table) { t.TimeZone = "Asia/Shanghai" }, relay.SetupUsage,
			"UTC only"},
		{"word that the CHECK refuses", "sqlite:" + path, func(t *relay.Table) { t.States.Dead = "GIVEN UP" },
			relay.SetupUsage, `does not allow "GIVEN UP"`},
		{"no status", "sqlite:" + path, func(t *relay.Table) { t.Columns.Status = "" }, relay.SetupUsage,
			"no status column"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := ownTable()
			if c.table != nil {
				c.table(&table)
			}
			_, err := Open(t.Context(), relay.StoreOptions{URL: c.url, Table: table})
			e := relay.AsSetup(err)
			require.NotNil(t, e, "%v", err)
			require.Equal(t, c.kind, e.Kind, "%v", err)
			require.ErrorContains(t, err, c.says)
			require.NotEmpty(t, e.Fix)
		})
	}
}
