//go:build unix

package crashtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// Kill points: kill -9 in every stage between reading and marking. The stage is reached by holding the
// ways to Kafka and to the database, not by hooks in the product, so the outcome is exact: it is known
// what Kafka and the table have when the relay dies. Each time the next start must settle everything
// without any SQL.

// inFlight is what is under way when a relay is killed: one batch, in one transaction, of three keys.
const inFlight = 30

var keys = []string{"k1", "k2", "k3"}

// killWorld is a world whose relay has relayed something already, so that its connections are made and
// its statements prepared.
func killWorld(t *testing.T, s server, mode relay.ClaimMode) (*world, *process) {
	t.Helper()
	w := sharedWorld(t, s, settings{claim: mode})
	w.start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	return w, w.relays[0]
}

// killed kills the relay, opens its ways again and waits until the database has seen its end.
func (w *world) killed(t *testing.T, r *process) {
	t.Helper()
	r.kill()
	w.heal()
	w.sessionsEnd(t)
}

// settles starts the relays again and holds the end: everything is SENT, and exactly so many records stand
// twice. One owner keeps the order too; claims that a dead relay left come back as they expire.
func (w *world) settles(t *testing.T, doubled int) {
	t.Helper()
	w.start(t)
	for _, r := range w.relays {
		r.ready(t)
	}
	w.drained(t, 30*time.Second)
	w.terminated(t)
	r := w.good(t, Rules{Ordered: w.settings.claim == relay.ClaimSingle, MaxDoubles: doubled})
	require.Equal(t, doubled, r.Doubled, r.String())
}

// TestKill_AfterReading: the events are read (and claimed), and nothing of them has reached Kafka.
func TestKill_AfterReading(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w, r := killWorld(t, s, mode)
		r.kafka.requests.hold()
		w.commit(t, inFlight, keys...)
		if mode == relay.ClaimRows {
			w.db.has(t, inFlight, "SENDING")
		} else {
			eventually(t, 10*time.Second, r.kafka.requests.holds, func() string { return "nothing is on its way to Kafka" })
		}
		r.kafka.down()
		w.killed(t, r)
		w.db.has(t, inFlight, inFlightState(mode))
		w.topics.holds(t, len(keys))
		w.settles(t, 0)
	})
}

// TestKill_AfterSending: Kafka has the events, and the relay does not know it yet.
func TestKill_AfterSending(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w, r := killWorld(t, s, mode)
		r.kafka.replies.hold()
		w.commit(t, inFlight, keys...)
		w.topics.holds(t, len(keys)+inFlight)
		w.killed(t, r)
		w.db.has(t, inFlight, inFlightState(mode))
		w.settles(t, inFlight)
	})
}

// TestKill_AfterAckBeforeMark: the relay has the acknowledgements, and its mark hangs on the way to the
// database. Exactly what was in flight is sent twice.
func TestKill_AfterAckBeforeMark(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w, r := killWorld(t, s, mode)
		r.kafka.replies.hold()
		w.commit(t, inFlight, keys...)
		w.topics.holds(t, len(keys)+inFlight)
		r.db.requests.hold()
		r.kafka.heal()
		r.counts(t, "outbox_publish_success_total", float64(len(keys)+inFlight))
		r.db.down()
		w.killed(t, r)
		w.db.has(t, inFlight, inFlightState(mode))
		w.settles(t, inFlight)
	})
}

// TestKill_InTheMark: the database works on the mark when the relay dies, held up by a row lock. All or
// none of the batch is marked; what is not comes twice, what is does not.
func TestKill_InTheMark(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w, r := killWorld(t, s, mode)
		r.kafka.replies.hold()
		w.commit(t, inFlight, keys...)
		w.topics.holds(t, len(keys)+inFlight)
		lock, err := w.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = lock.Rollback() }()
		_, err = lock.Exec("UPDATE outbox_events SET aggregate_type = aggregate_type")
		require.NoError(t, err)
		r.kafka.heal()
		w.db.lockWait(t)
		r.kill()
		require.NoError(t, lock.Rollback())
		w.heal()
		w.sessionsEnd(t)
		left, err := w.db.count(t.Context(), inFlightState(mode))
		require.NoError(t, err)
		require.Zero(t, left%(inFlight/len(keys)), "a mark is whole or not there; flows, which have keys of their own, have marks of their own")
		w.settles(t, left)
	})
}

// TestKill_AfterMark: the database has the mark, and its reply is lost with the relay. What is marked is not
// sent twice; answers that came apart have marks of their own, and the first that is not answered is the last.
func TestKill_AfterMark(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w, r := killWorld(t, s, mode)
		r.kafka.replies.hold()
		w.commit(t, inFlight, keys...)
		w.topics.holds(t, len(keys)+inFlight)
		r.db.muteBehind(w.markText())
		r.kafka.heal()
		eventually(t, 30*time.Second, r.db.muted, func() string { return "the relay marks nothing" })
		eventually(t, 30*time.Second, func() bool {
			left, err := w.db.count(t.Context(), inFlightState(mode))
			return err == nil && left < inFlight
		}, func() string { return "the database does not mark" })
		w.killed(t, r)
		left, err := w.db.count(t.Context(), inFlightState(mode))
		require.NoError(t, err)
		w.settles(t, left)
	})
}

// markText is in the request whose execution makes a mark last, and in no other: on PostgreSQL the
// statement's parameters, since it stands alone, and elsewhere the command that commits.
func (w *world) markText() string {
	if w.db.dialect == outbox.Postgres {
		return w.topics.names[0]
	}
	return query("COMMIT")
}

// query is how a request begins that asks MySQL or MariaDB to execute a text.
func query(text string) string { return "\x03" + text }

// lockWait waits until a statement on this database waits for a lock.
func (d *database) lockWait(t testing.TB) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = ? AND wait_event_type = 'Lock'"
	switch d.dialect {
	case outbox.MySQL, outbox.MariaDB:
		query = `SELECT count(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`
	}
	eventually(t, 20*time.Second, func() bool {
		// InnoDB shows the same picture again to everybody who asks within 100 ms of the last one.
		time.Sleep(200 * time.Millisecond)
		var n int
		return d.QueryRow(d.sql(query), d.name).Scan(&n) == nil && n > 0
	}, func() string { return "no statement waits for a lock" })
}
