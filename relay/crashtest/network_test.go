//go:build unix

package crashtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// networkFaults strike the ways of one of two relays. Holes outlast the session: the other relay takes over, while
// the one behind the hole is alive and does not know.
var networkFaults = []fault{
	{kind: "kafka-hole", relay: 0, lasts: sessionTimeout + 2*time.Second},
	{kind: "db-hole", relay: 1, lasts: sessionTimeout + 2*time.Second},
	{kind: "kafka-mute", relay: 1, lasts: 3 * time.Second},
	{kind: "db-mute", relay: 0, lasts: 3 * time.Second},
	{kind: "kafka-slow", relay: 0, lasts: 3 * time.Second},
	{kind: "db-slow", relay: 1, lasts: 3 * time.Second},
	{kind: "kafka-cut", relay: 1, lasts: time.Second},
	{kind: "db-cut", relay: 0, lasts: time.Second},
}

var networkSection = section{
	title: "Networks",
	about: "Two relays share the lanes. The way of one of them to Kafka or to the database swallows everything for longer than\n" +
		"its session (hole), brings no answers (mute), is slow, or is cut over and over (cut), each after the other.",
	columns: []string{"database", "delivery"},
	took:    "caught up after, at most",
}

// TestNetwork cuts, delays and black-holes either side of two relays with lanes, while services write. What a relay
// had in flight is settled by whoever has its lanes then: nothing is lost, in order, and nothing stands twice with
// exactly-once.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for i, delivery := range []string{exactlyOnce, atLeastOnce} {
		for j, s := range []server{postgres, mysqlServer, mariadb} {
			if !long() && (s != postgres || delivery != exactlyOnce) {
				continue
			}
			t.Run(s.name+"/"+delivery, func(t *testing.T) {
				t.Parallel()
				w := sharedWorld(t, s, settings{claim: relay.ClaimLanes, relays: 2, delivery: delivery, batch: 20,
					env: []string{"POSTRIDER_RELAY_RETRY_MAX_ATTEMPTS=2"}})
				w.start(t)
				w.divided(t, laneCount/2, laneCount/2)
				tr := newTraffic(t, w.db, w.types...)
				tr.start(t, 1)
				w.some(t, 50)
				m := &tormentor{world: w}
				var longest time.Duration
				for _, f := range networkFaults {
					r := w.relays[f.relay]
					way := r.db
					if f.kind[:5] == "kafka" {
						way = r.kafka
					}
					m.network(way, f)
					took := w.caughtUp(t)
					t.Logf("%s: what was written meanwhile is sent %s after its end", f, took.Round(10*time.Millisecond))
					longest = max(longest, took)
					require.True(t, r.alive(), r.tail(10))
				}
				doubles := 0
				if delivery == atLeastOnce { // what a relay had in flight, each time
					doubles = len(networkFaults) * (3 + int(w.settings.partitions)*len(w.topics.names)) * w.settings.batch
				}
				r := w.over(t, tr, Rules{Ordered: true, MaxDoubles: doubles})
				account.add(line{networkSection, 3*i + j, []string{s.name, delivery}, r, w.uncommitted(t), longest})
			})
		}
	}
}
