package mysql

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// TestCase_C17_Lanes: what a relay with lanes reads, and what a take-over costs, does not depend on how many rows
// were sent, a key that is blocked below all of them included.
//
//	POSTRIDER_TEST_BIG=1
func TestCase_C17_Lanes(t *testing.T) {
	if os.Getenv("POSTRIDER_TEST_BIG") == "" {
		t.Skip("set POSTRIDER_TEST_BIG=1 to read beside a million sent rows (takes minutes)")
	}
	for _, v := range []flavour{mysqlServer, mariadbServer} {
		t.Run(v.name, func(t *testing.T) {
			relaytest.CompareBesideSent(t, func() relaytest.BesideSent { return v.besideSent(t) })
		})
	}
}

func (v flavour) besideSent(t *testing.T) relaytest.BesideSent {
	dsn, db := v.newDatabase(t, "")
	exec := func(query string, args ...any) {
		_, err := db.ExecContext(t.Context(), query, args...)
		require.NoError(t, err)
	}
	numbers := `(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT a.i + 1000 * (b.i - 1) AS g FROM n a JOIN n b) x`
	return relaytest.BesideSent{
		Lanes: 16,
		Open: func() relaytest.Store {
			return openStore(t, dsn, ownTable(), func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, 16 })
		},
		Fill: func(sent int) {
			exec(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, status) VALUES
				('dead', 'order', 'blocked', 'T', '{}', 'DEAD'), ('behind-1', 'order', 'blocked', 'T', '{}', 'NEW'), ('behind-2', 'order', 'blocked', 'T', '{}', 'NEW')`)
			exec(fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, status)
				SELECT CONCAT('event-', g), 'order', CONCAT('key-', g %% 1000), 'OrderCreated', '{}', 'SENT' FROM %s WHERE g <= ?`, numbers), sent)
		},
		Write: func(prefix string, n int) {
			exec(fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
				SELECT CONCAT(?, g), 'order', CONCAT('key-', g), 'OrderCreated', '{}' FROM %s WHERE g <= ?`, numbers), prefix, n)
		},
	}
}
