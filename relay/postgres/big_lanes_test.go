package postgres

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
	url := server(t, "POSTRIDER_TEST_POSTGRES")
	relaytest.CompareBesideSent(t, func() relaytest.BesideSent {
		s := newSpace(t, url, ownDDL())
		return relaytest.BesideSent{
			Lanes: testLanes,
			Open: func() relaytest.Store {
				st, err := Open(t.Context(), s.options(func(o *relay.StoreOptions) { o.Claim, o.Lanes = relay.ClaimLanes, testLanes }))
				require.NoError(t, err)
				return st
			},
			Fill: func(sent int) {
				exec(t, s.conn(), fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, status, next_retry_at)
					VALUES ('dead', 'order', 'blocked', 'T', 'DEAD', 'infinity'), ('behind-1', 'order', 'blocked', 'T', 'NEW', NULL), ('behind-2', 'order', 'blocked', 'T', 'NEW', NULL);
					INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload, status, sent_at)
					SELECT 'event-' || g, 'order', 'key-' || g %% 1000, 'OrderCreated', '{}', 'SENT', now() FROM generate_series(1, %d) g`, sent))
			},
			Write: func(prefix string, n int) {
				exec(t, s.conn(), fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
					SELECT '%s' || g, 'order', 'key-' || g, 'OrderCreated', '{}' FROM generate_series(1, %d) g`, prefix, n))
			},
		}
	})
}
