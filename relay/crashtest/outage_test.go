//go:build unix

package crashtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// Outages of one server at a time, with one relay that owns its table and services that write on. Each
// kind lasts long enough for events to be late, and must cost nothing: no double, no attempt, no order.

// outageWorld is a world under traffic.
func outageWorld(t *testing.T, s server) (*world, *traffic) {
	t.Helper()
	w := sharedWorld(t, s, settings{batch: 20, env: []string{"POSTRIDER_RELAY_RETRY_MAX_ATTEMPTS=2"}})
	w.start(t)
	w.relays[0].ready(t)
	tr := newTraffic(t, w.db, w.types...)
	tr.start(t, 1)
	w.some(t, 50)
	return w, tr
}

// some waits until so many more events are sent.
func (w *world) some(t *testing.T, more int) {
	t.Helper()
	before, err := w.db.count(t.Context(), "SENT")
	require.NoError(t, err)
	eventually(t, 60*time.Second, func() bool {
		n, err := w.db.count(t.Context(), "SENT")
		return err == nil && n >= before+more
	}, func() string { return "no more events are sent" })
}

// caughtUp waits until all that is written by now is sent.
func (w *world) caughtUp(t *testing.T) time.Duration {
	t.Helper()
	began, newest, left := time.Now(), 0, 0
	require.NoError(t, w.db.QueryRowContext(t.Context(), "SELECT max(id) FROM outbox_events").Scan(&newest))
	eventually(t, 60*time.Second, func() bool {
		err := w.db.QueryRowContext(t.Context(), w.db.sql("SELECT count(*) FROM outbox_events WHERE id <= ? AND status <> 'SENT'"), newest).Scan(&left)
		return err == nil && left == 0
	}, func() string { return fmt.Sprintf("%d events are not sent", left) })
	return time.Since(began)
}

// over ends the traffic and holds that everything is sent.
func (w *world) over(t *testing.T, tr *traffic, rules Rules) Report {
	t.Helper()
	w.some(t, 50)
	tr.end()
	took := w.drained(t, 20*time.Second)
	w.terminated(t)
	r := w.check(t, tr.attempts, rules)
	t.Logf("drained in %s: %s", took.Round(time.Millisecond), r)
	require.Empty(t, r.Findings)
	return r
}

// TestCase_P08_OutageCostsNothing: Kafka is a black hole, then silent, then refuses connections. Events
// are late, wait at no cost and come in order.
func TestCase_P08_OutageCostsNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []server{postgres, mysqlServer, mariadb} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w, tr := outageWorld(t, s)
			kafka := w.relays[0].kafka
			for _, outage := range []struct {
				name  string
				begin func()
			}{{"black hole", kafka.hole}, {"no replies", kafka.replies.hold}, {"refused", kafka.down}} {
				outage.begin()
				time.Sleep(4 * time.Second)
				began := time.Now()
				kafka.heal()
				w.some(t, 1)
				t.Logf("%s: the first event was sent %s after its end", outage.name, time.Since(began).Round(time.Millisecond))
			}
			w.over(t, tr, Rules{Ordered: true})
		})
	}
}

// TestCase_P09_NothingIsMarkedWithoutKafka: Kafka is away when the relay starts, and while it runs through
// many cycles; then the relay is killed. Nothing is SENT; with Kafka back, everything is sent once.
func TestCase_P09_NothingIsMarkedWithoutKafka(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w := sharedWorld(t, s, settings{claim: mode})
		r := w.relays[0]
		r.kafka.down()
		w.commit(t, inFlight, keys...)
		r.start(t)
		eventually(t, 20*time.Second, func() bool { return r.said("waiting for Kafka") > 0 }, func() string { return "it does not say that it waits" })
		r.kill()
		w.db.has(t, inFlight, "NEW")

		// The same with a Kafka that leaves when the relay is at work.
		r.kafka.heal()
		r.start(t)
		w.db.has(t, inFlight, "SENT")
		r.kafka.down()
		w.commit(t, inFlight, keys...)
		time.Sleep(2 * time.Second)
		status, body, err := r.get(t, "/readyz")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "a broker that is away must not unschedule the relay: %s", body)
		r.kill()
		w.db.has(t, inFlight, "SENT")
		r.kafka.heal()
		w.settles(t, 0)
	})
}

// TestCase_P08_OutageIsQuiet: while Kafka is away with a backlog, the database is not asked over and over.
func TestCase_P08_OutageIsQuiet(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t, postgres, settings{batch: 20})
	w.start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	w.relays[0].kafka.down()
	for i := range 200 {
		w.commit(t, 2, fmt.Sprint("key", i))
	}
	time.Sleep(3 * time.Second) // until every key has met the outage
	// What a session did shows in the statistics when it has been idle for a moment; a relay's are not.
	asked := func() (n int) {
		_, err := w.db.Exec("SELECT pg_stat_force_next_flush()")
		require.NoError(t, err)
		require.NoError(t, w.db.QueryRow("SELECT xact_commit FROM pg_stat_database WHERE datname = $1", w.db.name).Scan(&n))
		return n
	}
	before := asked()
	time.Sleep(5 * time.Second)
	rate := float64(asked()-before) / 5
	t.Logf("%.0f transactions a second while Kafka is away", rate)
	require.Less(t, rate, 100.0)
	w.heal()
	w.drained(t, 20*time.Second)
	w.terminated(t)
	require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
}
