package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestSettle_StatisticsOfAnIdleTable: statistics that were taken while everything was SENT promise that hardly a row
// is not. A backlog that comes then is marked by primary key all the same: each row is looked at once, not once for
// each row of the backlog.
func TestSettle_StatisticsOfAnIdleTable(t *testing.T) {
	t.Parallel()
	const sent, backlog, batch = 52_000, 10_500, 2000
	removed := regexp.MustCompile(`"Rows Removed by Join Filter": (\d+)`)
	eachServer(t, func(t *testing.T, url string) {
		for _, claim := range []relay.ClaimMode{relay.ClaimLanes, relay.ClaimSingle} {
			for name, table := range map[string]relay.Table{"own": ownTable(), "article": articleTable()} {
				if claim == relay.ClaimSingle && !table.Own {
					continue // as with lanes
				}
				t.Run(fmt.Sprintf("%s %s", claim, name), func(t *testing.T) {
					t.Parallel()
					ddl := ownDDL()
					if !table.Own {
						ddl = articleDDL
					}
					s := newSpace(t, url, ddl)
					conn := s.conn()
					exec(t, conn, "ALTER TABLE outbox_events SET (autovacuum_enabled = off)")
					fill(t, s, sent)
					exec(t, conn, "UPDATE outbox_events SET status = 'SENT', sent_at = now()")
					exec(t, conn, "ANALYZE outbox_events")
					exec(t, conn, fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
						SELECT 'n' || g, 'order', 'k' || g %% 7, 'T', '{}' FROM generate_series(1, %d) g`, backlog))
					st := s.open(func(o *relay.StoreOptions) {
						o.Table, o.Claim = table, claim
						if claim == relay.ClaimLanes {
							o.Lanes = testLanes
						}
					})
					for i, failed := range []int{0, batch / 2} { // all sent, and some not
						outs := make([]relay.Outcome, batch)
						for n := range outs {
							outs[n] = relay.Outcome{Row: rowID(int64(sent + i*batch + n + 1)), From: relay.StateNew, State: relay.StateSent,
								Receipt: relay.Receipt{Topic: "t"}}
							if n < failed {
								outs[n].State, outs[n].Receipt = relay.StateFailed, relay.Receipt{}
							}
						}
						m, err := st.newMarks(outs)
						require.NoError(t, err)
						sql, args := st.statement(m, false)
						text, _ := plan(t, st, sql, args...)
						for _, found := range removed.FindAllStringSubmatch(text, -1) {
							rows, err := strconv.Atoi(found[1])
							require.NoError(t, err)
							require.Less(t, rows, 10*(sent+backlog), text)
						}
					}
				})
			}
		}
	})
}
