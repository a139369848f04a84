package mysql

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// An index that the reads were tied to may go away while the relay runs.
func TestStore_Fetch_after_its_index_was_dropped(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		write(t, db, "a-1")
		_, err := db.ExecContext(t.Context(), "CREATE INDEX better ON outbox_events (status, id); DROP INDEX outbox_events_status_idx ON outbox_events")
		require.NoError(t, err)
		got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 10, MaxBytes: 1 << 20})
		require.NoError(t, err)
		require.True(t, got.More)
		require.Equal(t, []string{"a-1"}, ids(fetch(t, s, relay.Fetch{})))
		require.Contains(t, strings.Join(s.Notices(), "\n"), `"better"`)
	})
}

// Keys are told apart by their bytes, whatever the column's collation calls equal, and whatever its
// character set.
func TestStore_Fetch_tells_keys_apart_by_bytes(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, `CREATE TABLE o (id BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) UNIQUE,
aggregate_id VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_swedish_ci, payload TEXT, status VARCHAR(9) NOT NULL DEFAULT 'NEW',
retry_count INT NOT NULL DEFAULT 0, next_retry_at DATETIME(6), KEY s (status)) DEFAULT CHARACTER SET utf8mb4`)
		table := relay.Table{Name: "o", States: ownTable().States,
			Columns: relay.Columns{ID: "id", EventID: "event_id", AggregateID: "aggregate_id",
				Payload: "payload", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at"}}
		s := openStore(t, dsn, table)
		for i, key := range []string{"größe", "GRÖSSE", "a", "A", "a ", "à"} {
			_, err := db.ExecContext(t.Context(), "INSERT INTO o (event_id, aggregate_id, payload) VALUES (?, ?, '')",
				fmt.Sprint(i), key)
			require.NoError(t, err)
		}
		all := fetch(t, s, relay.Fetch{})
		require.Len(t, all, 6)
		require.Equal(t, "größe", *all[0].Key)
		blocked := []relay.Blocked{{Key: *all[0].Key, Head: all[0].Row}, {Key: "a", Head: all[2].Row}}
		require.Equal(t, []string{"1", "3", "4", "5"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
	})
}

// The payload is the server's text of the column, byte for byte: what CAST(… AS CHAR) gives.
func TestCase_W04_json_columns(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, strings.Replace(articleMySQLDDL, "payload JSON NOT NULL",
			"payload JSON NOT NULL, headers JSON", 1))
		k := kinds(v)[1]
		s := openStore(t, dsn, k.table)
		written := `{"b":1, "a":2,"b":3, "amt": 10.50, "account":1234567890123456789, "wei": 19876543210987654321, "t":"é\u00e9"}`
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
VALUES ('e', 'o', 'k', 't', 'orders', ?, '{"n": 1.10, "x": "y"}')`, written)
		require.NoError(t, err)
		evs := fetch(t, s, relay.Fetch{})
		require.Len(t, evs, 1)
		var text string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT CAST(payload AS CHAR) FROM outbox_event").Scan(&text))
		require.Equal(t, text, string(evs[0].Payload))
		require.Contains(t, text, "1234567890123456789")
		if v == mariadbServer {
			require.Equal(t, written, string(evs[0].Payload), "JSON is text there")
		}
		require.Equal(t, "y", string(evs[0].Headers[1].Value))
	})
}

// Naive times are in the zone that is configured, or in the server's own: due, age and marks agree with
// what a service in that zone writes and reads.
func TestStore_time_zones(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, articleMySQLDDL)
		db.SetMaxOpenConns(1) // the service's session
		_, err := db.ExecContext(t.Context(), "SET time_zone = '+08:00'")
		require.NoError(t, err)
		insert := func(id string) {
			_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, topic, payload, next_retry_at)
VALUES (?, 'o', ?, 't', 'orders', '{}', NULL)`, id, id)
			require.NoError(t, err)
		}
		table := kinds(v)[1].table
		check := func(s *Store, id string) {
			t.Helper()
			insert(id)
			evs := fetch(t, s, relay.Fetch{})
			require.Equal(t, []string{id}, ids(evs))
			require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
			require.Equal(t, time.UTC, evs[0].CreatedAt.Location())
			require.Less(t, evs[0].Age, time.Minute)
			o := outcome(evs[0], relay.StateFailed)
			o.RetryAfter = 10 * time.Minute
			settle(t, s, o)
			var minutes int
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT TIMESTAMPDIFF(MINUTE, NOW(), next_retry_at) FROM outbox_event WHERE event_id = ?", id).Scan(&minutes))
			require.InDelta(t, 10, minutes, 1, "as the service reads it")
			_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET next_retry_at = NOW() WHERE event_id = ?", id)
			require.NoError(t, err)
			evs = fetch(t, s, relay.Fetch{})
			require.Equal(t, []string{id}, ids(evs), "due at once")
			settle(t, s, outcome(evs[0], relay.StateSent))
			row, _, err := s.Get(t.Context(), id)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), row.SentAt, time.Minute)
		}
		for _, zone := range []string{"Asia/Shanghai", "Etc/GMT-8"} { // loaded on the server or not
			table.TimeZone = zone
			check(openStore(t, dsn, table), zone)
		}
		// A server whose own zone is another one: what its sessions would begin with.
		table.TimeZone = ""
		s := openStore(t, dsn, table)
		s.config.Params["time_zone"] = "'+08:00'"
		require.NoError(t, s.db.Close())
		s.db, err = open(s.config)
		require.NoError(t, err)
		check(s, "server's own")
		// A zone with summer time needs the server to know it.
		var known sql.NullString
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT CONVERT_TZ('2026-01-01', 'Europe/Berlin', 'UTC')").Scan(&known))
		if !known.Valid {
			table.TimeZone = "Europe/Berlin"
			refused(t, dsn, table, relay.SetupUsage, "does not know", "mysql_tzinfo_to_sql")
		}
	})
}

// Deciding times are the database's: an age edited into a claim counts, the relay's clock does not.
func TestCase_C06_times_of_whole_seconds(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, articleMySQLDDL)
		claim := func(o *relay.StoreOptions) { o.Claim, o.ClaimTimeout = relay.ClaimRows, 3*time.Second }
		s := openStore(t, dsn, kinds(v)[1].table, claim)
		_, err := db.ExecContext(t.Context(), insertOne(s.layout()), "e", "k")
		require.NoError(t, err)
		require.Len(t, fetch(t, s, relay.Fetch{}), 1)
		// The claim may have been made at the very end of the second that it says.
		_, err = db.ExecContext(t.Context(), "UPDATE outbox_event SET updated_at = NOW() - INTERVAL 3 SECOND")
		require.NoError(t, err)
		var micros int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT MICROSECOND(NOW(6))").Scan(&micros))
		if micros < 800_000 {
			require.Empty(t, fetch(t, s, relay.Fetch{}), "3.0 to 3.9 s old by its text, 2.0 s at least")
		}
		_, err = db.ExecContext(t.Context(), "UPDATE outbox_event SET updated_at = NOW() - INTERVAL 5 SECOND")
		require.NoError(t, err)
		require.Len(t, fetch(t, s, relay.Fetch{}), 1)
	})
}

// A backlog of large events is read within the byte limit, and no read asks for much more than it uses.
func TestCase_C16_large_events(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		const size, rows, budget = 1 << 20, 60, 8 << 20
		for i := range rows {
			_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
VALUES (?, 'o', ?, 't', REPEAT('x', ?))`, fmt.Sprintf("%03d", i), fmt.Sprint(i%7), size)
			require.NoError(t, err)
		}
		s.db.SetMaxOpenConns(1)
		sent := func() (n int) {
			var name string
			require.NoError(t, s.db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Bytes_sent'").Scan(&name, &n))
			return n
		}
		seen := []string{}
		var busy []relay.RowID
		for n := 0; len(seen) < rows; n++ {
			require.Less(t, n, 20)
			before := sent()
			got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 500, MaxBytes: budget, Busy: busy})
			require.NoError(t, err)
			require.Len(t, got.Events, min(7, rows-len(seen)))
			if n > 0 { // by then the size is known
				require.Less(t, sent()-before, 2*budget, "read %d", n)
			}
			for _, e := range got.Events {
				seen, busy = append(seen, e.ID), append(busy, e.Row)
			}
		}
		require.IsIncreasing(t, seen)
	})
}

// A table without states keeps nothing of failures: the store does, while it runs.
func TestStore_without_states(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "CREATE TABLE o (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload TEXT)")
		table := relay.Table{Name: "o", AfterSend: "delete", Columns: relay.Columns{ID: "id",
			AggregateID: "aggregate_id", Payload: "payload"}}
		s := openStore(t, dsn, table)
		_, err := db.ExecContext(t.Context(), "INSERT INTO o (aggregate_id, payload) VALUES ('a', '1'), ('b', '2'), ('c', '3')")
		require.NoError(t, err)
		evs := fetch(t, s, relay.Fetch{})
		require.Equal(t, []string{"1", "2", "3"}, ids(evs), "the row's id is the event's")
		failed := outcome(evs[0], relay.StateFailed)
		failed.RetryAfter = 0
		settle(t, s, failed, outcome(evs[1], relay.StateDead), outcome(evs[2], relay.StateSent))
		again := fetch(t, s, relay.Fetch{})
		require.Equal(t, []string{"1"}, ids(again), "a dead row does not loop")
		require.Equal(t, 1, again[0].RetryCount)
		require.Equal(t, relay.StateFailed, again[0].State)
		still, err := s.StillBlocking(t.Context(), []relay.RowID{evs[0].Row, evs[1].Row, evs[2].Row})
		require.NoError(t, err)
		require.ElementsMatch(t, []relay.RowID{evs[0].Row, evs[1].Row}, still)
		c, err := s.Counts(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 0, c.New.Value)
		require.EqualValues(t, 1, c.Failed.Value)
		require.EqualValues(t, 1, c.Dead.Value)
	})
}

// UUIDs as BINARY(16) come in their usual form, as id, as key and in questions.
func TestStore_binary_uuids(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, `CREATE TABLE o (id BIGINT AUTO_INCREMENT PRIMARY KEY, event_id BINARY(16) UNIQUE, aggregate_id BINARY(16), payload BLOB,
status VARCHAR(9) NOT NULL DEFAULT 'NEW', retry_count INT NOT NULL DEFAULT 0, next_retry_at DATETIME(6), KEY s (status, id))`)
		_, err := db.ExecContext(t.Context(), "INSERT INTO o (event_id, aggregate_id, payload) VALUES (x'0193b0aa11227bbb8ccc0123456789ab', x'000102030405060708090a0b0c0d0e0f', '')")
		require.NoError(t, err)
		table := relay.Table{Name: "o", States: ownTable().States,
			Columns: relay.Columns{ID: "id", EventID: "event_id", AggregateID: "aggregate_id",
				Payload: "payload", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at"}}
		s := openStore(t, dsn, table)
		evs := fetch(t, s, relay.Fetch{})
		require.Equal(t, []string{"0193b0aa-1122-7bbb-8ccc-0123456789ab"}, ids(evs))
		require.Equal(t, "00010203-0405-0607-0809-0a0b0c0d0e0f", *evs[0].Key)
		require.Equal(t, *evs[0].Key, evs[0].AggregateID)
		require.Empty(t, fetch(t, s, relay.Fetch{Blocked: []relay.Blocked{{Key: *evs[0].Key, Head: evs[0].Row}}}))
		_, found, err := s.Get(t.Context(), evs[0].ID)
		require.NoError(t, err)
		require.True(t, found)
		rows, err := s.List(t.Context(), relay.Filter{EventIDs: []string{evs[0].ID, "x"}, Key: *evs[0].Key})
		require.NoError(t, err)
		require.Len(t, rows, 1)
	})
}

// Tens of thousands of blocked keys, long ones too, fit one statement and cost a bounded time.
func TestStore_Fetch_with_many_blocked_keys(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable())
		long := strings.Repeat("k", 250)
		for _, key := range []string{long + "1", long + "2", "short1", "short2"} {
			_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, 'o', ?, 't', '')`,
				key[len(key)-1:]+fmt.Sprint(len(key)), key)
			require.NoError(t, err)
		}
		blocked := []relay.Blocked{{Key: long + "1", Head: "999"}, {Key: "short2", Head: "998"}}
		for i := range 50_000 {
			blocked = append(blocked, relay.Blocked{Key: fmt.Sprintf("%s-%d", strings.Repeat("x", i%400), i),
				Head: relay.RowID(fmt.Sprint(1000 + i))})
		}
		began := time.Now()
		require.Equal(t, []string{"2251", "16"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
		t.Logf("the first took %s", time.Since(began))
		began = time.Now()
		require.Equal(t, []string{"2251", "16"}, ids(fetch(t, s, relay.Fetch{Blocked: blocked})))
		t.Logf("the next took %s", time.Since(began))
	})
}

// Only the database's clock decides: with that clock five hours ahead of the relay's, attempts, claims
// and marks follow it.
func TestCase_C06_the_database_clock_decides(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, db := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable(), func(o *relay.StoreOptions) {
			o.Claim, o.ClaimTimeout = relay.ClaimRows, 30*time.Second
		})
		ahead := func(d time.Duration) {
			t.Helper()
			s.config.Params["timestamp"] = fmt.Sprint(time.Now().Add(d).Unix())
			require.NoError(t, s.db.Close())
			var err error
			s.db, err = open(s.config)
			require.NoError(t, err)
		}
		ahead(5 * time.Hour)
		write(t, db, "a-1", "b-1")
		evs := fetch(t, s, relay.Fetch{})
		require.Len(t, evs, 2)
		require.InDelta(t, 5*time.Hour, evs[0].Age, float64(time.Minute))
		failed := outcome(evs[0], relay.StateFailed)
		failed.RetryAfter = 10 * time.Minute
		settle(t, s, failed)
		require.Empty(t, fetch(t, s, relay.Fetch{}), "neither due nor abandoned")
		var retry, claim float64
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT (SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), next_retry_at) FROM outbox_events WHERE event_id = 'a-1'),
(SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), updated_at) FROM outbox_events WHERE event_id = 'b-1')`).Scan(&retry, &claim))
		require.InDelta(t, (5*time.Hour + 10*time.Minute).Seconds(), retry, 60)
		require.InDelta(t, (5 * time.Hour).Seconds(), claim, 60)
		ahead(5*time.Hour + 20*time.Second)
		require.Empty(t, fetch(t, s, relay.Fetch{}), "a claim of 20 s by that clock")
		ahead(5*time.Hour + 11*time.Minute)
		got, err := s.Fetch(t.Context(), relay.Fetch{Limit: 10, MaxBytes: 1 << 20})
		require.NoError(t, err)
		require.Equal(t, []string{"a-1", "b-1"}, ids(got.Events))
		require.Equal(t, 1, got.Reclaimed)
	})
}
