//go:build unix

package crashtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// world is everything one test has for itself: a database, topics, and relays with ways of their own
// to both.
type world struct {
	db       *database
	topics   *topics
	relays   []*process
	settings settings
	outbox   string   // outbox.name: lock, group and control topic are of this world's own
	types    []string // aggregate types; the topic of a type is its name and "-events"
	payload  []byte   // of the next commits; nil: a small one
	struck   func()   // ends what held a relay at its point, once that is struck; does nothing twice
}

// settings are those that tests change.
type settings struct {
	claim           relay.ClaimMode
	delivery        string // defaults to at-least-once
	relays          int    // defaults to 1
	batch           int    // defaults to 100
	partitions      int32
	claimTimeout    time.Duration // defaults to 2 s
	shutdownTimeout time.Duration // defaults to 10 s
	env             []string      // beside or instead of what the world sets
}

func (s settings) withDefaults() settings {
	if s.claim == "" {
		s.claim = relay.ClaimSingle
	}
	if s.delivery == "" {
		s.delivery = atLeastOnce
	}
	if s.relays == 0 {
		s.relays = 1
	}
	if s.batch == 0 {
		s.batch = 100
	}
	if s.partitions == 0 {
		s.partitions = 2
	}
	if s.claimTimeout == 0 {
		s.claimTimeout = 2 * time.Second
	}
	if s.shutdownTimeout == 0 {
		s.shutdownTimeout = 10 * time.Second
	}
	return s
}

// What relay.delivery may say.
const (
	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// Lanes of the tests: few, and left by a silent relay as soon as brokers allow.
const (
	laneCount      = 6
	sessionTimeout = 6 * time.Second
)

// newWorld prepares a test. The relays are not started yet.
func newWorld(t testing.TB, s server, db, kafka string, set settings) *world {
	t.Helper()
	w := &world{db: newDatabase(t, s.dialect, db), settings: set.withDefaults(), struck: func() {}}
	set = w.settings
	run := w.db.name[len("crash_"):]
	w.types = []string{"A" + run, "B" + run}
	w.outbox = "crash-" + run
	w.topics = newTopics(t, kafka, set.partitions, w.types[0]+"-events", w.types[1]+"-events")
	w.topics.forget(t, w.control())
	for i := range set.relays {
		w.relays = append(w.relays, w.newRelay(t, fmt.Sprintf("relay-%d", i+1), set))
	}
	return w
}

// newRelay prepares a relay of this world, with ways of its own to its servers.
func (w *world) newRelay(t testing.TB, name string, set settings) *process {
	t.Helper()
	toDB := newProxy(t, databaseAddr(t, w.db.server), nil)
	return newProcess(t, name, toDB, w.topics.way(t), append([]string{
		"POSTRIDER_DATABASE_URL=" + w.db.url(t, toDB.addr),
		"POSTRIDER_OUTBOX_NAME=" + w.outbox,
		"POSTRIDER_RELAY_CLAIM=" + string(set.claim),
		"POSTRIDER_RELAY_DELIVERY=" + set.delivery,
		"POSTRIDER_RELAY_LANES=" + strconv.Itoa(laneCount),
		"POSTRIDER_RELAY_SESSION_TIMEOUT=" + sessionTimeout.String(),
		"POSTRIDER_RELAY_BATCH=" + strconv.Itoa(set.batch),
		"POSTRIDER_RELAY_CLAIM_TIMEOUT=" + set.claimTimeout.String(),
		"POSTRIDER_RELAY_SHUTDOWN_TIMEOUT=" + set.shutdownTimeout.String(),
		"POSTRIDER_RELAY_POLL_INTERVAL=100ms",
	}, set.env...)...)
}

// control is the topic, and the group, through which relays share lanes.
func (w *world) control() string { return w.outbox + ".postrider" }

// start starts every relay that does not run.
func (w *world) start(t testing.TB) {
	t.Helper()
	for _, r := range w.relays {
		if !r.alive() {
			r.start(t)
		}
	}
}

// heal opens every way.
func (w *world) heal() {
	for _, r := range w.relays {
		r.db.heal()
		r.kafka.heal()
	}
}

// commit writes n events in one transaction, the keys in turn. All go to the first topic.
func (w *world) commit(t testing.TB, n int, keys ...string) {
	t.Helper()
	w.commitTo(t, w.types[0], n, keys...)
}

func (w *world) commitTo(t testing.TB, aggregateType string, n int, keys ...string) {
	t.Helper()
	tx, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	ids, of := make([]string, n), make([]string, n)
	for i := range n {
		ids[i], of[i] = outbox.NewID(), keys[i%len(keys)]
	}
	require.NoError(t, w.db.record(t.Context(), tx, ids, of, func(id, key string, n int64) outbox.Event {
		payload := w.payload
		if payload == nil {
			payload = fmt.Appendf(nil, "%s %s %d\x00", canary, id, n)
		}
		return outbox.Event{ID: id, AggregateType: aggregateType, AggregateID: key, Type: "Counted", Payload: payload}
	}))
	require.NoError(t, tx.Commit())
}

// drained waits until every row is SENT.
func (w *world) drained(t testing.TB, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	left, err := 0, error(nil)
	eventually(t, limit, func() bool {
		left, err = w.db.count(t.Context(), "NEW", "SENDING", "FAILED", "DEAD")
		return err == nil && left == 0
	}, func() string { return fmt.Sprintf("%d events are not sent (%v)", left, err) })
	return time.Since(began)
}

// terminated ends every relay in order and holds them to exit code 0.
func (w *world) terminated(t testing.TB) {
	t.Helper()
	for _, r := range w.relays {
		if !r.alive() {
			continue
		}
		code, _ := r.term(t, w.settings.shutdownTimeout+20*time.Second)
		require.Equal(t, 0, code, "%s after SIGTERM:\n%s", r.name, r.tail(5))
	}
}

// check compares everything. The relays must have ended.
func (w *world) check(t testing.TB, attempts []Attempt, rules Rules) Report {
	t.Helper()
	h := History{Attempts: attempts, Records: w.topics.read(t)}
	h.Ledger, h.Rows = w.db.read(t)
	w.checkLogs(t)
	return Check(h, rules)
}

// good is check, and fails on findings.
func (w *world) good(t testing.TB, rules Rules) Report {
	t.Helper()
	r := w.check(t, nil, rules)
	require.Empty(t, r.Findings, r.String())
	return r
}

// checkLogs holds that no relay told what was in an event (P10) or broke down.
func (w *world) checkLogs(t testing.TB) {
	t.Helper()
	for _, r := range w.relays {
		log := r.tail(1 << 30)
		for _, bad := range []string{canary, "panic:", "DATA RACE", "fatal error:"} {
			if i := strings.Index(log, bad); i >= 0 {
				t.Errorf("%q is in the log of %s:\n%.3000s", bad, r.name, log[max(0, i-200):])
			}
		}
	}
}

// sessionsEnd waits until the database knows none of the relays' sessions any more: then nothing that
// they had sent can happen later.
func (w *world) sessionsEnd(t testing.TB) {
	t.Helper()
	query := "SELECT count(*) FROM pg_stat_activity WHERE datname = ? AND application_name LIKE 'postrider%'"
	if w.db.dialect != outbox.Postgres {
		// The test's own pool is the only other one on this database, and its sessions are counted out.
		query = "SELECT count(*) FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID()"
		w.db.SetMaxOpenConns(1)
		defer w.db.SetMaxOpenConns(0)
	}
	n := 0
	eventually(t, 20*time.Second, func() bool {
		return w.db.QueryRowContext(t.Context(), w.db.sql(query), w.db.name).Scan(&n) == nil && n == 0
	}, func() string { return fmt.Sprintf("%d sessions of relays are left", n) })
}

// onEvery runs a test for each database and claim mode, on the servers that are shared with other tests.
func onEvery(t *testing.T, test func(t *testing.T, s server, mode relay.ClaimMode)) {
	t.Helper()
	for _, s := range []server{postgres, mysqlServer, mariadb} {
		for _, mode := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
			t.Run(s.name+"-"+string(mode), func(t *testing.T) {
				t.Parallel()
				test(t, s, mode)
			})
		}
	}
}

// sharedWorld is a world on the servers that other tests use too.
func sharedWorld(t testing.TB, s server, set settings) *world {
	t.Helper()
	db, kafka := shared(t, s.variable), shared(t, kafkaVariable)
	return newWorld(t, s, db, kafka, set)
}

// inFlightState is what a row says while its event is in flight.
func inFlightState(mode relay.ClaimMode) string {
	if mode == relay.ClaimRows {
		return "SENDING"
	}
	return "NEW"
}
