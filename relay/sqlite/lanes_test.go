package sqlite

import (
	"fmt"
	"testing"

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
