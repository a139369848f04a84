package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

const testLanes = 16

func inLanes(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, testLanes }

// eachLane returns the keys of a table, lane by lane.
func eachLane(t *testing.T, dsn string, table relay.Table) []string {
	t.Helper()
	return relaytest.EachLane(t, openStore(t, dsn, table, inLanes), testLanes)
}

func TestLanes_Refused(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, _ := v.newDatabase(t, "")
		_, err := Open(t.Context(), relay.StoreOptions{URL: dsn, Table: ownTable(), Claim: relay.ClaimLanes})
		require.Equal(t, "relay.lanes", relay.AsSetup(err).Thing)
		s := openStore(t, dsn, ownTable())
		require.ErrorContains(t, s.Own(t.Context(), nil), "claim: single")
	})
}

// TestLanes_Columns: a lane is that of the key's UTF-8 bytes, whatever the column's character set, collation and
// type.
func TestLanes_Columns(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		latin := []string{"", " ", "a", "a ", "A", "é", "É", "ß", "ÿ", "naïve", "x\\y"}
		wide := append([]string{"世界", "e\u0301", "\U0001f600", "a\x00b"}, latin...)
		for name, c := range map[string]struct {
			column string
			keys   []string
		}{
			"latin1":      {"VARCHAR(64) CHARACTER SET latin1", latin},
			"latin1 text": {"TEXT CHARACTER SET latin1", latin},
			"general_ci":  {"VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", wide},
			"bin":         {"VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", wide},
			"utf16":       {"VARCHAR(64) CHARACTER SET utf16", wide},
			"char":        {"CHAR(64) CHARACTER SET utf8mb4", []string{"a", "A", "é", "世界"}},
			"binary":      {"VARBINARY(64)", wide},
			"number":      {"BIGINT", []string{"0", "-7", "12345678901"}},
			"none":        {"VARCHAR(64)", nil},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dsn, db := v.newDatabase(t, `CREATE TABLE events (id BIGINT PRIMARY KEY AUTO_INCREMENT, k `+c.column+`, payload JSON)`)
				want := c.keys
				for _, key := range c.keys {
					_, err := db.ExecContext(t.Context(), "INSERT INTO events (k, payload) VALUES (?, '{}')", key)
					require.NoError(t, err)
				}
				if c.keys == nil {
					_, err := db.ExecContext(t.Context(), "INSERT INTO events (payload) VALUES ('{}'), ('{}'), ('{}'), ('{}'), ('{}')")
					require.NoError(t, err)
					want = []string{"1", "2", "3", "4", "5"}
				}
				table := relay.Table{Name: "events", AfterSend: "delete", Columns: relay.Columns{ID: "id", MessageKey: "k", Payload: "payload"}}
				require.ElementsMatch(t, want, eachLane(t, dsn, table))
			})
		}
	})
}

// TestLanes_AllAreFree: with all lanes its own a store asks for no lane; what a scan knew is forgotten when
// lanes change.
func TestLanes_AllAreFree(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		dsn, _ := v.newDatabase(t, "")
		s := openStore(t, dsn, ownTable(), inLanes)
		var all []relay.OwnLane
		for lane := range int32(testLanes) {
			all = append(all, relay.OwnLane{Lane: lane})
		}
		require.NoError(t, s.Own(t.Context(), all))
		require.Empty(t, s.inLanes())
		s.floor.row, s.cut.row = 7, 8
		require.NoError(t, s.Own(t.Context(), all[3:5]))
		require.Contains(t, s.inLanes(), "IN (3, 4)")
		require.Zero(t, s.floor.row)
		require.Zero(t, s.cut.row)
	})
}
