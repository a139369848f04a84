//go:build unix

package crashtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// exact says whether the relays send in transactions.
func (w *world) exact() bool { return w.settings.delivery == exactlyOnce }

// sharing runs a test with relays that share lanes: on PostgreSQL in both kinds of delivery, elsewhere in
// transactions, where POSTRIDER_CRASH asks for a long run.
func sharing(t *testing.T, relays int, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, c := range []struct {
		server
		delivery string
	}{{postgres, atLeastOnce}, {postgres, exactlyOnce}, {mysqlServer, exactlyOnce}, {mariadb, exactlyOnce}} {
		if c.name != postgres.name && os.Getenv("POSTRIDER_CRASH") == "" {
			continue
		}
		t.Run(c.name+"/lanes/"+c.delivery, func(t *testing.T) {
			t.Parallel()
			test(t, sharedWorld(t, c.server, settings{claim: relay.ClaimLanes, relays: relays, delivery: c.delivery}))
		})
	}
}

// inOrder runs a test with one relay, and with two that share lanes.
func inOrder(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	onDatabases(t, func(t *testing.T, s server) { test(t, sharedWorld(t, s, settings{})) })
	sharing(t, 2, test)
}

// ready waits until every relay is.
func (w *world) ready(t testing.TB) {
	t.Helper()
	for _, r := range w.relays {
		r.ready(t)
	}
}

// TestCase_C08_LaneLost: a relay's send hangs until its lanes have gone to another relay, which has sent and marked
// the row. What it hears of its own send later changes nothing: the row keeps the other's receipt. At least once
// it stands twice then; in transactions the broker refuses the second.
func TestCase_C08_LaneLost(t *testing.T) {
	t.Parallel()
	sharing(t, 2, func(t *testing.T, w *world) {
		slow, other := w.relays[0], w.relays[1]
		slow.start(t)
		w.commit(t, len(keys), keys...)
		w.drained(t, 60*time.Second)
		slow.kafka.requests.hold()
		w.commit(t, 1, keys[0])
		other.start(t)
		w.db.has(t, len(keys)+1, "SENT")
		_, before := w.db.read(t)

		slow.kafka.heal()
		eventually(t, 30*time.Second, func() bool { return slow.said("lanes lost") > 0 },
			func() string { return "the relay does not hear that its lanes are another's" })
		w.commit(t, len(keys), keys...)
		w.drained(t, 30*time.Second)
		_, after := w.db.read(t)
		require.Equal(t, before, after[:len(before)])
		w.terminated(t)
		if w.exact() {
			require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
			return
		}
		w.good(t, Rules{Ordered: true, MaxDoubles: 1})
	})
}

// TestCase_C09_SharedTerm is C09 (a) and (b) with two relays: SIGTERM while both wait for Kafka. Both finish what
// they have begun, nothing of it comes twice, and the exit code is 0.
func TestCase_C09_SharedTerm(t *testing.T) {
	t.Parallel()
	sharing(t, 2, func(t *testing.T, w *world) {
		w.start(t)
		w.shared(t)
		w.commit(t, len(keys), keys...)
		w.drained(t, 60*time.Second)
		for _, r := range w.relays {
			r.kafka.point.at(asks(kmsg.Produce), true)
		}
		many := make([]string, 24) // each relay has some
		for i := range many {
			many[i] = fmt.Sprint("many-", i)
		}
		w.commit(t, len(many), many...)
		for _, r := range w.relays {
			eventually(t, 20*time.Second, r.kafka.point.met.Load, func() string { return r.name + " sends nothing" })
		}
		for _, r := range w.relays {
			r.signal(syscall.SIGTERM)
		}
		w.heal()
		for _, r := range w.relays {
			code, _ := r.ended(t, 20*time.Second)
			require.Equal(t, 0, code, r.tail(5))
		}
		w.unharmed(t, len(keys))
		w.start(t)
		w.ready(t)
		w.drained(t, 60*time.Second)
		w.terminated(t)
		require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
	})
}

// shared waits until every relay has lanes.
func (w *world) shared(t testing.TB) {
	t.Helper()
	for _, r := range w.relays {
		eventually(t, 60*time.Second, func() bool {
			n, err := r.metric(t, "outbox_lanes_owned")
			return err == nil && n > 0 && n < laneCount
		}, func() string { return r.name + " has no share of the lanes\n" + r.tail(5) })
	}
}

// TestCase_O02_Relays: three relays with different ways to Kafka, and one of them killed every other second. Each
// key comes in order.
func TestCase_O02_Relays(t *testing.T) {
	t.Parallel()
	sharing(t, 3, func(t *testing.T, w *world) {
		for i, r := range w.relays {
			r.kafka.usual.Store(int64(time.Duration(i) * 15 * time.Millisecond))
		}
		w.start(t)
		w.shared(t)
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprint("key-", i)
		}
		for round := range 3 {
			for range 10 {
				rand.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
				w.commit(t, 30, keys...)
				time.Sleep(100 * time.Millisecond)
			}
			w.restart(t, w.relays[round])
		}
		w.ready(t)
		w.drained(t, 60*time.Second)
		w.terminated(t)
		r := w.good(t, Rules{Ordered: true, MaxDoubles: 3 * 3 * w.settings.batch})
		if w.exact() {
			require.Zero(t, r.Doubled)
		}
	})
}
