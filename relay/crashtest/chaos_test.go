//go:build unix

package crashtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// chaosRun is one database under torment.
type chaosRun struct {
	server server
	claim  relay.ClaimMode
	relays int
	short  bool // part of the short run
}

func (c chaosRun) name() string { return c.server.name + "-" + string(c.claim) }

var chaosRuns = []chaosRun{
	{postgres, relay.ClaimSingle, 2, true},
	{postgres, relay.ClaimLanes, 3, true},
	{mysqlServer, relay.ClaimLanes, 3, false},
	{mariadb, relay.ClaimLanes, 3, false},
	{postgres, relay.ClaimRows, 3, true},
	{mariadb, relay.ClaimRows, 3, true},
	{mysqlServer, relay.ClaimSingle, 2, false},
	{mysqlServer, relay.ClaimRows, 3, false},
	{mariadb, relay.ClaimSingle, 2, false},
	{postgresNewest, relay.ClaimSingle, 2, false},
	{postgresNewest, relay.ClaimRows, 3, false},
}

// TestChaos torments relays, Kafka and databases while services write, heals everything, and compares
// ledger, table and topics. A run of POSTRIDER_CRASH=10m takes so long for each database.
func TestChaos(t *testing.T) {
	long, seed := chaosOptions(t)
	names := []string{"kafka"}
	for _, c := range chaosRuns {
		if c.short || long > 0 {
			names = append(names, c.server.name)
		}
	}
	s := private(t, unique(names)...)
	for _, c := range chaosRuns {
		if !c.short && long == 0 {
			continue
		}
		t.Run(c.name(), func(t *testing.T) {
			replay := fmt.Sprintf("POSTRIDER_CRASH_SEED=%d", seed)
			if long > 0 {
				replay += " POSTRIDER_CRASH=" + long.String()
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to run these faults again: %s go test ./relay/crashtest -count=1 -timeout 0 -run 'TestChaos/%s$'", replay, c.name())
				}
			})
			torment(t, s, c, seed, long)
		})
	}
}

func chaosOptions(t *testing.T) (long time.Duration, seed uint64) {
	t.Helper()
	var err error
	if text := os.Getenv("POSTRIDER_CRASH"); text != "" {
		long, err = time.ParseDuration(text)
		require.NoError(t, err, "POSTRIDER_CRASH is a duration such as 10m")
	}
	seed = rand.Uint64N(1_000_000)
	if text := os.Getenv("POSTRIDER_CRASH_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "POSTRIDER_CRASH_SEED is a number")
	}
	return long, seed
}

func unique(names []string) (once []string) {
	seen := map[string]bool{}
	for _, n := range names {
		if !seen[n] {
			once = append(once, n)
		}
		seen[n] = true
	}
	return once
}

// chaosSettings make takeovers frequent and what is in flight small, so that the bound on doubles
// says something.
func chaosSettings(c chaosRun) settings {
	s := settings{
		claim: c.claim, relays: c.relays, batch: 20, partitions: 2,
		claimTimeout: 3 * time.Second, shutdownTimeout: 5 * time.Second,
		// An outage that counted as an attempt would soon be seen as a dead event (case P08).
		env: []string{"POSTRIDER_RELAY_RETRY_MAX_ATTEMPTS=2"},
	}
	if c.claim == relay.ClaimLanes {
		s.delivery = exactlyOnce
	}
	return s
}

// chaosDistance is how far away Kafka is, so that a kill finds something in flight.
const chaosDistance = 10 * time.Millisecond

func torment(t *testing.T, s *servers, c chaosRun, seed uint64, long time.Duration) {
	w := newWorld(t, c.server, s.addr[c.server.variable], s.addr[kafkaVariable], chaosSettings(c))
	for _, r := range w.relays {
		r.kafka.usual.Store(int64(chaosDistance))
	}
	w.start(t)
	w.relays[0].ready(t)
	tr := newTraffic(t, w.db, w.types...)
	tr.start(t, seed)
	began := time.Now()
	m := &tormentor{world: w, servers: s, database: c.server.name, log: func(format string, args ...any) {
		t.Logf("%6.1fs "+format, append([]any{time.Since(began).Seconds()}, args...)...)
	}}
	m.play(t, c, seed, long)
	tr.end()
	stopped := time.Now()
	if t.Failed() {
		return
	}

	w.heal()
	m.alive(t)
	drain := w.drained(t, 90*time.Second)
	w.terminated(t)
	doubles := m.allowed()
	if c.claim == relay.ClaimLanes {
		doubles = 0
	}
	report := w.check(t, tr.attempts, Rules{Ordered: c.claim != relay.ClaimRows, MaxDoubles: doubles})
	t.Logf("seed %d, %d faults in %s, drained %s after the last: %s (doubles allowed: %d)",
		seed, m.struck.Load(), stopped.Sub(began).Round(time.Second), drain.Round(10*time.Millisecond), report, doubles)
	require.Empty(t, report.Findings)
	require.Greater(t, report.Committed, 200, "there was too little traffic for the result to mean anything")
	require.Positive(t, report.RolledBack)
	require.Positive(t, report.Unknown, "no COMMIT was cut")
}

// play deals both decks side by side, and over again: in a short run until servers and networks were
// struck once, in a long one until its time is over.
func (m *tormentor) play(t *testing.T, c chaosRun, seed uint64, long time.Duration) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.name()))
	until, longest := time.Now().Add(long), 3*time.Second
	if long > 0 {
		longest = 15 * time.Second
	}
	var done atomic.Bool
	m.over = func() bool { return done.Load() || long > 0 && time.Now().After(until) }
	var both sync.WaitGroup
	both.Go(func() {
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		for !m.over() && !t.Failed() {
			m.deal(t, shuffled(rng, relayDeck, len(m.relays), longest))
		}
	})
	both.Go(func() {
		defer done.Store(true)
		rng := rand.New(rand.NewPCG(seed, h.Sum64()+1))
		for round := 0; round == 0 || long > 0 && !m.over() && !t.Failed(); round++ {
			deck := slices.Concat(serverDeck, drawn(rng, networkDeck, 4))
			if long > 0 {
				deck = slices.Concat(serverDeck, networkDeck, longDeck)
			}
			m.deal(t, shuffled(rng, deck, len(m.relays), longest))
		}
	})
	both.Wait()
}
