package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
	"github.com/postrider/postrider/schema"
)

const testLanes = 16

// eachLane returns the keys of a table, lane by lane.
func eachLane(t *testing.T, path string, table relay.Table) []string {
	t.Helper()
	return relaytest.EachLane(t, open(t, path, table, func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, testLanes }), testLanes)
}

func TestLanes_Refused(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	_, err := Open(t.Context(), relay.StoreOptions{URL: "sqlite:" + path, Table: ownTable(), Claim: relay.ClaimLanes})
	require.Equal(t, relay.SetupUsage, relay.AsSetup(err).Kind)
	s := open(t, path, ownTable())
	require.ErrorContains(t, s.Own(t.Context(), nil), "claim: single")
}

// TestLanes_Encodings: a lane is that of the key's UTF-8 bytes, also where the file keeps UTF-16.
func TestLanes_Encodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"UTF-8", "UTF-16le", "UTF-16be"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			path, db := newFile(t, fmt.Sprintf("PRAGMA encoding = '%s'; %s", encoding, schema.Print(outbox.SQLite)))
			want := []string{"", " ", "a", "a ", "A", "é", "e\u0301", "世界", "\U0001f600", "a\x00b", "\x00"}
			for i, key := range want {
				_, err := db.ExecContext(t.Context(), "INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type) VALUES (?, 'order', ?, 'T')", fmt.Sprint(i), key)
				require.NoError(t, err)
			}
			require.ElementsMatch(t, want, eachLane(t, path, ownTable()))
		})
	}
}

// TestLanes_NoKey: rows without any key have the lane of their row's number; numbers and bytes as keys that of
// their text.
func TestLanes_NoKey(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, `CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, key, payload TEXT);
		INSERT INTO events (key, payload) SELECT NULL, '{}' FROM json_each('[1,2,3,4,5,6,7,8,9]');
		INSERT INTO events (key, payload) VALUES (42, '{}'), (x'6162', '{}'), (1.5, '{}')`)
	require.NoError(t, db.PingContext(t.Context()))
	table := relay.Table{Name: "events", AfterSend: "delete", Columns: relay.Columns{ID: "id", MessageKey: "key", Payload: "payload"}}
	require.ElementsMatch(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "42", "ab", "1.5"}, eachLane(t, path, table))
}

// TestLanes_AllAreFree: with all lanes its own a store asks for no lane.
func TestLanes_AllAreFree(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	s := open(t, path, ownTable(), func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, 2 })
	require.NoError(t, s.Own(t.Context(), []relay.OwnLane{{Lane: 0}, {Lane: 1}}))
	require.Empty(t, s.inLanes())
	require.NoError(t, s.Own(t.Context(), []relay.OwnLane{{Lane: 1}}))
	require.Contains(t, s.inLanes(), "IN (1)")
}

// TestLanes_Floor: what a scan knew of blocked rows in front is forgotten when lanes change.
func TestLanes_Floor(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	s := open(t, path, ownTable(), func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, 2 })
	s.floor.row, s.cut = 7, 8
	require.NoError(t, s.Own(t.Context(), []relay.OwnLane{{Lane: 1}}))
	require.Zero(t, s.floor)
	require.Zero(t, s.cut)
}

// unmarking is a store whose marks never arrive.
type unmarking struct{ *Store }

func (unmarking) Settle(context.Context, []relay.Outcome) ([]relay.RowID, error) {
	return nil, errors.New("not now")
}

// TestCase_C13_progress_does_not_meet_the_new_row: a relay dies between the commit in Kafka and the mark; then the row
// goes, and a new one gets its number. The next owner, who finds the number in the progress of the first, sends the
// new event.
func TestCase_C13_progress_does_not_meet_the_new_row(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, `CREATE TABLE o (id INTEGER PRIMARY KEY, event_id TEXT UNIQUE, aggregate_id TEXT, payload TEXT,
status TEXT DEFAULT 'NEW', retry_count INT DEFAULT 0, next_retry_at TEXT)`)
	kafka := relaytest.NewFakeKafka(1)
	group := relaytest.NewFakeGroup(kafka, testLanes, 100*time.Millisecond, time.Second)
	run := func(wrap func(*Store) relay.Store) (kill func()) {
		s, err := Open(t.Context(), relay.StoreOptions{URL: "sqlite:" + path, Name: "test", Table: plain("o"), Claim: relay.ClaimLanes, Lanes: testLanes})
		require.NoError(t, err)
		member := group.Member()
		sink := member.Transactions(relaytest.FakeSinkOptions{}, nil)
		r := relay.New(relay.Options{Store: wrap(s), Claim: relay.ClaimLanes, Lanes: member, LaneCount: testLanes, Flows: []relay.Sink{sink},
			Router: relay.Router{Default: relay.MustTemplate("t")}, DrainTimeout: 100 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _ = r.Run(ctx); close(done) }()
		return func() {
			member.Kill()
			sink.Kill()
			cancel()
			<-done
		}
	}
	arrives := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var got []string
			for _, p := range kafka.Records("t") {
				for _, r := range p {
					got = append(got, r.Header("event_id"))
				}
			}
			return slices.Equal(want, got)
		}, 20*time.Second, 5*time.Millisecond)
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO o (event_id, aggregate_id, payload) VALUES ('old', 'k', '')")
	require.NoError(t, err)
	kill := run(func(s *Store) relay.Store { return unmarking{s} })
	arrives("old")
	kill()
	_, err = db.ExecContext(t.Context(), "DELETE FROM o; INSERT INTO o (event_id, aggregate_id, payload) VALUES ('new', 'k', '')")
	require.NoError(t, err)
	kill = run(func(s *Store) relay.Store { return s })
	defer kill()
	arrives("old", "new")
}
