//go:build unix

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// claimWorld is two relays that share a table by claims. Only the first runs, and what it claims waits
// in front of Kafka.
func claimWorld(t *testing.T, s server, set settings) (w *world, first, second *process) {
	t.Helper()
	set.claim, set.relays, set.shutdownTimeout = relay.ClaimRows, 2, time.Second
	w = sharedWorld(t, s, set)
	first, second = w.relays[0], w.relays[1]
	first.start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	first.kafka.requests.hold()
	return w, first, second
}

// onDatabases runs a test for each database.
func onDatabases(t *testing.T, test func(t *testing.T, s server)) {
	t.Helper()
	for _, s := range []server{postgres, mysqlServer, mariadb} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// TestCase_C08_LateAcknowledgement: a relay's send hangs until its claim has expired and another relay
// has sent and marked the row. Its acknowledgement, when it comes, changes nothing: the row keeps the
// other's receipt, one warning names it, and it stands twice at most.
func TestCase_C08_LateAcknowledgement(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w, slow, other := claimWorld(t, s, settings{})
		w.commit(t, 1, keys[0])
		w.db.has(t, 1, "SENDING")
		other.start(t)
		w.db.has(t, len(keys)+1, "SENT")
		_, before := w.db.read(t)

		slow.kafka.heal()
		w.topics.holds(t, len(keys)+2)
		slow.counts(t, "outbox_lost_claims_total", 1)
		require.Equal(t, 1, slow.said("the row had changed since it was read and was left as it is"))
		_, after := w.db.read(t)
		require.Equal(t, before, after)
		w.terminated(t)
		r := w.good(t, Rules{MaxDoubles: 1})
		require.Equal(t, 1, r.Doubled)
	})
}

// TestCase_C08_ShutdownAfterReclaim: a relay that lost its claim ends. Giving back what it had must not
// put the row that another relay has sent back into a pending state.
func TestCase_C08_ShutdownAfterReclaim(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w, slow, other := claimWorld(t, s, settings{})
		w.commit(t, inFlight, keys...)
		w.db.has(t, inFlight, "SENDING")
		other.start(t)
		w.db.has(t, len(keys)+inFlight, "SENT")
		_, before := w.db.read(t)

		code, _ := slow.term(t, 15*time.Second)
		require.Equal(t, 0, code)
		slow.kafka.down() // what it had handed over never arrives
		_, after := w.db.read(t)
		require.Equal(t, before, after)
		w.terminated(t)
		require.Zero(t, w.good(t, Rules{}).Doubled)
	})
}

// TestCase_C08_FrozenBeforeSending: a relay is paused with one batch on its way to Kafka and another one
// claimed behind it, for longer than claim_timeout. When it wakes, the batch that it has not sent yet is
// not its own any more, and it knows.
func TestCase_C08_FrozenBeforeSending(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		const batch = 10
		w, frozen, other := claimWorld(t, s, settings{batch: batch, claimTimeout: 5 * time.Second})
		w.commit(t, 2*batch, keys...)
		w.db.has(t, 2*batch, "SENDING")
		frozen.signal(syscall.SIGSTOP)
		other.start(t)
		w.db.has(t, len(keys)+2*batch, "SENT")
		frozen.signal(syscall.SIGCONT)
		frozen.kafka.heal()
		w.topics.holds(t, len(keys)+3*batch)
		w.terminated(t)
		require.Equal(t, batch, w.good(t, Rules{MaxDoubles: batch}).Doubled)
	})
}

// TestCase_C06_NoReclaimBeforeTheTimeout: a batch is held up for less than claim_timeout beside idle
// relays. Nobody takes it over, whatever the clocks of the machines say: only the database's counts.
func TestCase_C06_NoReclaimBeforeTheTimeout(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w, slow, other := claimWorld(t, s, settings{})
		other.start(t)
		other.ready(t)
		w.commit(t, 1, keys[0])
		// Whoever has claimed it: one of the two is held up, the other is not.
		time.Sleep(w.settings.claimTimeout / 2)
		slow.kafka.heal()
		w.db.has(t, len(keys)+1, "SENT")
		w.terminated(t)
		require.Zero(t, w.good(t, Rules{}).Doubled)
		for _, r := range w.relays {
			require.Zero(t, r.said("took over rows"), r.name)
		}
	})
}

// oldestTransaction is the age of the oldest open transaction of any relay, by the database's clock.
func (d *database) oldestTransaction(t testing.TB) time.Duration {
	t.Helper()
	query := `SELECT COALESCE(EXTRACT(EPOCH FROM max(clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
		WHERE datname = ? AND application_name LIKE 'postrider%'`
	if d.dialect != outbox.Postgres {
		query = `SELECT COALESCE(max(TIMESTAMPDIFF(MICROSECOND, x.trx_started, NOW(6))), 0) / 1e6
			FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
			WHERE p.db = ? AND p.id <> CONNECTION_ID()`
	}
	var seconds float64
	require.NoError(t, d.QueryRow(d.sql(query), d.name).Scan(&seconds))
	return time.Duration(seconds * float64(time.Second))
}

// TestCase_C10_NoTransactionAcrossASend: one topic takes no records, then Kafka is a black hole. The
// other topic keeps flowing on both relays meanwhile, no relay holds a transaction open at any time, and
// everything goes on by itself afterwards.
func TestCase_C10_NoTransactionAcrossASend(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w := sharedWorld(t, s, settings{claim: relay.ClaimRows, relays: 2, batch: 10, claimTimeout: 30 * time.Second})
		w.neverAcross(t)
	})
	sharing(t, 2, func(t *testing.T, w *world) {
		for _, r := range w.relays {
			r.env = append(r.env, "POSTRIDER_RELAY_SESSION_TIMEOUT=60s") // nobody loses lanes meanwhile
		}
		w.neverAcross(t)
	})
}

func (w *world) neverAcross(t *testing.T) {
	t.Helper()
	w.start(t)
	w.ready(t)
	if w.settings.claim == relay.ClaimLanes {
		w.shared(t) // lanes that move wait for what is in flight
	}
	stuck, flowing := w.types[0], w.types[1]
	w.refuse(t, w.topics.names[0])
	var oldest time.Duration
	for i := range 20 {
		w.commitTo(t, stuck, 3, "s1", "s2", "s3")
		w.commitTo(t, flowing, 3, fmt.Sprint("f", i))
		time.Sleep(100 * time.Millisecond)
		oldest = max(oldest, w.db.oldestTransaction(t))
	}
	w.db.has(t, 60, "SENT")
	require.Len(t, w.topics.read(t), 60, "only the topic that takes records has any")
	for _, r := range w.relays {
		r.kafka.hole()
	}
	for range 40 {
		w.commitTo(t, flowing, 3, keys...)
		time.Sleep(100 * time.Millisecond)
		oldest = max(oldest, w.db.oldestTransaction(t))
	}
	w.heal()
	w.take()
	w.drained(t, 30*time.Second)
	// Kafka was away for more than four seconds; MySQL and MariaDB know a transaction's start by the
	// whole second only.
	require.Less(t, oldest, 2500*time.Millisecond)
	w.terminated(t)
	require.Zero(t, w.good(t, Rules{}).Doubled)
}
