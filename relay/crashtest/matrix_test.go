//go:build unix

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// matrixCase is one fall of a relay.
type matrixCase struct {
	server   server
	delivery string
	point    killPoint
	freeze   bool
	short    bool // part of every run
}

func (c matrixCase) name() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.server.name, c.delivery, c.strike(), c.point.name)
}

func (c matrixCase) strike() string {
	if c.freeze {
		return "freeze"
	}
	return "kill"
}

// matrix lists all cases. Each run has every point, and not in every way.
func matrix() (cases []matrixCase) {
	for _, s := range []server{postgres, mysqlServer, mariadb} {
		for _, delivery := range []string{exactlyOnce, atLeastOnce} {
			for _, freeze := range []bool{false, true} {
				for _, p := range killPoints {
					if p.once && delivery == atLeastOnce {
						continue
					}
					short := delivery == exactlyOnce && (p.mark || s == postgres && !freeze) || p.much && s == postgres
					cases = append(cases, matrixCase{s, delivery, p, freeze, short})
				}
			}
		}
	}
	return cases
}

var matrixSection = section{
	title: "A relay falls",
	about: "One relay with all lanes is brought to a point of its work with 30 events under way, and killed there, or frozen\n" +
		"for longer than its session. Another one takes over; one that was frozen then goes on where it was.",
	columns: []string{"database", "delivery", "strike", "point"},
	took:    "taken over after",
}

// TestMatrix ends a relay, or stops it for longer than its session, at each point of its work. Another takes its
// lanes over; one that was stopped goes on where it was. Nothing is lost, all stands in order, every receipt leads
// to its record, and what stands twice is what was in flight: nothing at all with exactly-once.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for i, c := range matrix() {
		if !c.short && !long() {
			continue
		}
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			w := sharedWorld(t, c.server, settings{claim: relay.ClaimLanes, relays: 3, delivery: c.delivery})
			defer func() { w.struck() }()
			w.relays[0].start(t)
			w.commit(t, len(keys), keys...)
			w.drained(t, 60*time.Second)
			w.falls(t, i, c)
		})
	}
}

// falls takes a relay to its point, strikes it there and holds what comes of it.
func (w *world) falls(t *testing.T, number int, c matrixCase) {
	t.Helper()
	fallen := c.point.reach(t, w)
	heir := w.relays[1]
	if fallen == heir {
		heir = w.relays[2]
	}
	began := time.Now()
	if c.freeze {
		fallen.signal(syscall.SIGSTOP)
	} else {
		fallen.kill()
		fallen.kafka.cut() // what it had not sent yet goes with it
		fallen.db.cut()
		w.heal()
	}
	w.struck()
	w.commit(t, inFlight, keys...)
	if !heir.alive() {
		heir.start(t)
	}
	w.drained(t, 60*time.Second)
	took := time.Since(began)
	if c.freeze {
		w.heal() // what the brokers and the database had not got yet comes now
		fallen.signal(syscall.SIGCONT)
		w.commit(t, inFlight, keys...)
		w.divided(t, laneCount/2, laneCount/2)
	}
	w.commit(t, inFlight, keys...)
	w.drained(t, 60*time.Second)
	w.terminated(t)

	doubles := 0
	if c.delivery == atLeastOnce {
		doubles = inFlight
		if fallen != w.relays[0] { // its predecessor fell too
			doubles += inFlight
		}
		if c.freeze { // until its next heartbeat it does not know, and no broker fences it
			doubles += inFlight
		}
	}
	r := w.check(t, nil, Rules{Ordered: true, MaxDoubles: doubles})
	account.add(line{matrixSection, number, []string{c.server.name, c.delivery, c.strike(), c.point.name}, r, w.uncommitted(t), took})
	require.Empty(t, r.Findings, r.String())
	// A busy machine is slow, but it does not wait for a transaction's timeout, or a lock's.
	require.Less(t, took, 3*sessionTimeout)
}

// uncommitted counts the records beyond the first of each event that a read_uncommitted reader sees.
func (w *world) uncommitted(t *testing.T) (doubled int) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range w.topics.everything(t) {
		if seen[r.EventID] {
			doubled++
		}
		seen[r.EventID] = true
	}
	return doubled
}
