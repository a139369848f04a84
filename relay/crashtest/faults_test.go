//go:build unix

package crashtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// fault is one blow. What it hits and how long it lasts is drawn before anything runs, so that a seed
// gives the same blows again.
type fault struct {
	kind  string
	relay int           // which relay
	lasts time.Duration // of pauses, holes and delays
	pause time.Duration // before what was killed comes back, and the quiet behind the blow
}

func (f fault) String() string {
	return fmt.Sprintf("%s relay-%d %s/%s", f.kind, f.relay+1, f.lasts.Round(time.Millisecond), f.pause.Round(time.Millisecond))
}

// Two decks are played side by side: what happens to relays, and what happens to servers and networks.
var (
	relayDeck   = []string{"kill", "freeze", "kill", "roll", "kill"}
	serverDeck  = []string{"kafka-kill", "db-kill"}
	networkDeck = []string{"kafka-hole", "db-hole", "kafka-cut", "db-cut", "kafka-slow", "db-slow", "kafka-mute", "db-mute"}
	longDeck    = []string{"kafka-restart", "db-restart"} // graceful, and slow
)

// drawn are n cards of a deck.
func drawn(rng *rand.Rand, deck []string, n int) []string {
	cards := make([]string, n)
	for i, at := range rng.Perm(len(deck))[:n] {
		cards[i] = deck[at]
	}
	return cards
}

// shuffled makes a deck's faults. longest bounds how long one lasts.
func shuffled(rng *rand.Rand, deck []string, relays int, longest time.Duration) []fault {
	faults := make([]fault, len(deck))
	for i, kind := range drawn(rng, deck, len(deck)) {
		faults[i] = fault{kind: kind, relay: rng.IntN(relays),
			lasts: time.Second + time.Duration(rng.Int64N(int64(longest-time.Second))),
			pause: time.Duration(rng.Int64N(int64(1500 * time.Millisecond)))}
	}
	return faults
}

// tormentor deals the blows and keeps account of what they may cost.
type tormentor struct {
	*world
	servers  *servers
	database string // dev/servers' name
	log      func(format string, args ...any)
	over     func() bool // no more blows

	silent atomic.Int64 // Unix nanoseconds until which Kafka counts as silent
	debt   atomic.Int64 // records that may be doubled for what was struck (claim: single)
	struck atomic.Int64
}

// deal strikes with one fault after the other. It runs beside the test's own goroutine: what fails in
// here ends this deck, and the test once both decks are played.
func (m *tormentor) deal(t *testing.T, faults []fault) {
	for _, f := range faults {
		if t.Failed() || m.over() {
			return
		}
		m.log("fault: %s", f)
		m.strike(t, f)
		m.struck.Add(1)
		time.Sleep(f.pause)
	}
}

func (m *tormentor) strike(t *testing.T, f fault) {
	r := m.relays[f.relay]
	switch f.kind {
	case "kill", "freeze", "roll":
		m.alive(t)
	}
	switch f.kind {
	case "kill":
		m.owesFor(r)
		r.kill()
		time.Sleep(f.pause)
		r.start(t)
	case "freeze":
		// Longer than claim_timeout now and then: others take over what it has claimed. The owner of the
		// whole table keeps it.
		r.signal(syscall.SIGSTOP)
		time.Sleep(f.lasts)
		r.signal(syscall.SIGCONT)
	case "roll":
		m.roll(t)
	case "kafka-kill", "kafka-restart":
		m.kafkaSilent(time.Minute)
		m.server(t, f, "kafka")
		m.kafkaSilent(5 * time.Second)
	case "db-kill", "db-restart":
		m.owes() // there is one owner
		m.server(t, f, m.database)
	case "kafka-hole", "kafka-cut", "kafka-slow", "kafka-mute":
		m.kafkaSilent(f.lasts + 5*time.Second)
		m.network(r.kafka, f)
	case "db-hole", "db-cut", "db-slow", "db-mute":
		if w, ok := r.working(); !ok || w.State == "polling" {
			m.owes() // its session may end
		}
		m.network(r.db, f)
	default:
		t.Errorf("there is no fault %q", f.kind)
	}
}

// alive holds that no relay has given up. It is asked before a relay is struck, for afterwards nobody
// could tell.
func (m *tormentor) alive(t *testing.T) {
	for _, r := range m.relays {
		if !r.alive() {
			t.Errorf("%s ended by itself with %s:\n%s", r.name, r.run.Load().cmd.ProcessState, r.tail(10))
			r.start(t)
		}
	}
}

// roll restarts the relays one after the other, as a deployment does. One that cannot finish in time
// leaves what was in flight.
func (m *tormentor) roll(t *testing.T) {
	for _, r := range m.relays {
		limit := m.settings.shutdownTimeout
		code, took := r.term(t, limit+20*time.Second)
		if code != 0 {
			t.Errorf("%s ended with %d after SIGTERM", r.name, code)
		}
		if took > limit-500*time.Millisecond {
			m.owes()
		}
		m.log("fault: %s ended in %s", r.name, took.Round(time.Millisecond))
		r.start(t)
	}
}

func (m *tormentor) server(t *testing.T, f fault, name string) {
	command := "kill"
	if f.kind == "kafka-restart" || f.kind == "db-restart" {
		command = "down"
	}
	_, err := m.servers.run(2*time.Minute, command, name)
	require.NoError(t, err)
	time.Sleep(f.pause)
	_, err = m.servers.run(3*time.Minute, "up", name)
	require.NoError(t, err)
}

func (m *tormentor) network(p *proxy, f fault) {
	switch f.kind[len(f.kind)-4:] {
	case "hole":
		p.hole()
		time.Sleep(f.lasts)
	case "mute": // what is asked is done, and nobody hears of it; then the connections end
		p.replies.hold()
		time.Sleep(f.lasts)
		p.cut()
	case "slow":
		p.delay.Store(int64(f.lasts / 40))
		time.Sleep(f.lasts)
	default: // cut
		for range 3 {
			p.cut()
			time.Sleep(f.lasts / 10)
		}
	}
	p.heal()
}

// owes allows the doubles of an owner that loses its table: three batches, and while Kafka is silent one
// batch more for each partition that owes an answer.
func (m *tormentor) owes() {
	n := 3 * m.settings.batch
	if time.Now().UnixNano() < m.silent.Load() {
		n += int(m.settings.partitions) * len(m.topics.names) * m.settings.batch
	}
	m.debt.Add(int64(n))
}

// owesFor allows the doubles of a relay that is about to be killed: what it has in hand, and two batches
// for what it may read meanwhile. A standby has nothing.
func (m *tormentor) owesFor(r *process) {
	switch w, ok := r.working(); {
	case !ok:
		m.owes()
	case w.State == "polling":
		m.debt.Add(int64(w.InFlight + w.Late + 2*m.settings.batch))
	}
}

// kafkaSilent notes that answers may be late for so long.
func (m *tormentor) kafkaSilent(d time.Duration) { m.silent.Store(time.Now().Add(d).UnixNano()) }

// allowed is how many records may stand twice. With claims each sending after the first needs another
// claim, and relays say how many they took over or gave back with an unknown fate.
func (m *tormentor) allowed() int {
	if m.settings.claim != relay.ClaimRows {
		return int(m.debt.Load())
	}
	n := 0
	for _, r := range m.relays {
		for _, line := range r.lines(true) {
			count, _ := line[takeovers[fmt.Sprint(line["msg"])]].(float64)
			n += int(count)
		}
	}
	return n
}

// takeovers are the log's messages about rows that may be sent again, and the field with their number.
var takeovers = map[string]string{
	"took over rows whose claim had expired":                                 "rows",
	"stopped with records whose fate is unknown: they will be sent again":    "records",
	"stopped before all marks were written: those events will be sent again": "events",
}
