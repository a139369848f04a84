//go:build unix

package crashtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

var fleetSection = section{
	title: "Fleets of two kinds",
	about: "Two relays under traffic are restarted one after the other with another configuration, and then back, as deployments\n" +
		"do; meanwhile both kinds are at work, or the newcomer waits.",
	columns: []string{"database", "from", "to"},
	took:    "longest until caught up",
}

// kind is how a fleet is configured.
type kind struct {
	claim    relay.ClaimMode
	delivery string
}

func (k kind) String() string { return string(k.claim) + ", " + k.delivery }

func (k kind) env() []string {
	return []string{"POSTRIDER_RELAY_CLAIM=" + string(k.claim), "POSTRIDER_RELAY_DELIVERY=" + k.delivery}
}

// TestFleet_Deploy rolls a fleet from one kind to another and back, with services writing on. Relays with lanes may
// differ in delivery; a relay of another claim mode waits until the last of those that are at work is gone.
func TestFleet_Deploy(t *testing.T) {
	t.Parallel()
	number := 0
	for _, from := range []kind{{relay.ClaimLanes, atLeastOnce}, {relay.ClaimSingle, atLeastOnce}, {relay.ClaimRows, atLeastOnce}} {
		to := kind{relay.ClaimLanes, exactlyOnce}
		for _, s := range []server{postgres, mysqlServer, mariadb} {
			number++
			if !long() && s != postgres {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s to %s", s.name, from, to), func(t *testing.T) {
				t.Parallel()
				w := sharedWorld(t, s, settings{claim: from.claim, delivery: from.delivery, relays: 2, batch: 20, claimTimeout: time.Minute})
				r, longest := w.rolled(t, to.set, from.set)
				if from.claim == relay.ClaimRows {
					require.Positive(t, w.relays[0].said("another relay owns the table"), "lanes were at work beside claims of rows")
				}
				account.add(line{fleetSection, number, []string{s.name, from.String(), to.String()}, r, w.uncommitted(t), longest})
			})
		}
	}
}

// TestFleet_Older rolls a fleet from an older build of the relay to the present one and back.
func TestFleet_Older(t *testing.T) {
	t.Parallel()
	older := os.Getenv("POSTRIDER_CRASH_OLDER")
	if older == "" {
		t.Skip("set POSTRIDER_CRASH_OLDER to the binary of an older commit to let it work beside this one")
	}
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel()
			w := sharedWorld(t, postgres, settings{claim: relay.ClaimLanes, delivery: delivery, relays: 2, batch: 20})
			for _, r := range w.relays {
				r.binary = older
			}
			r, longest := w.rolled(t, func(p *process) { p.binary = "" }, func(p *process) { p.binary = older })
			account.add(line{fleetSection, 1000, []string{postgres.name, "older build, " + delivery, "this build"}, r, w.uncommitted(t), longest})
		})
	}
}

func (k kind) set(p *process) { p.env = append(p.env, k.env()...) }

// rolled restarts one relay after the other as each of the kinds, under traffic, and holds that nothing is lost or
// doubled.
func (w *world) rolled(t *testing.T, kinds ...func(*process)) (Report, time.Duration) {
	t.Helper()
	w.start(t)
	w.ready(t)
	tr := newTraffic(t, w.db, w.types...)
	tr.start(t, 1)
	w.some(t, 50)
	var longest time.Duration
	for _, set := range kinds {
		for _, r := range w.relays {
			code, _ := r.term(t, w.settings.shutdownTimeout+20*time.Second)
			require.Equal(t, 0, code, r.tail(10))
			set(r)
			r.start(t)
			r.ready(t)
			longest = max(longest, w.caughtUp(t))
		}
	}
	// Relays that claim rows keep no order among each other.
	r := w.over(t, tr, Rules{Ordered: w.settings.claim != relay.ClaimRows})
	return r, longest
}

// conflict is the exit code of a relay that may not work beside those that are there.
const conflict = 5

// TestFleet_LaneCount: the number of lanes is fixed by the control topic. A relay that is told another one waits
// while others are at work, who do not notice, and says why; when they are gone it stops, and names both numbers.
func TestFleet_LaneCount(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t, postgres, settings{claim: relay.ClaimLanes, relays: 2, delivery: exactlyOnce})
	w.relays[0].start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	stranger := w.relays[1]
	stranger.env = append(stranger.env, fmt.Sprintf("POSTRIDER_RELAY_LANES=%d", laneCount+1))
	stranger.start(t)
	eventually(t, 30*time.Second, func() bool { return stranger.said("another relay owns the table") > 0 },
		func() string { return "it does not wait:\n" + stranger.tail(5) })
	require.Contains(t, stranger.tail(1), "relay.lanes")
	w.commit(t, inFlight, keys...)
	w.drained(t, 10*time.Second)
	code, _ := w.relays[0].term(t, 20*time.Second)
	require.Equal(t, 0, code)
	stranger.refused(t, fmt.Sprint(laneCount), fmt.Sprint(laneCount+1))
	require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
}

// TestFleet_AnotherTable: an outbox name belongs to one table. A relay on another database under the same name stops
// and names both, and takes no lane.
func TestFleet_AnotherTable(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t, postgres, settings{claim: relay.ClaimLanes, delivery: exactlyOnce})
	other := sharedWorld(t, postgres, settings{claim: relay.ClaimLanes, delivery: exactlyOnce})
	w.start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	stranger := other.relays[0]
	stranger.env = append(stranger.env, "POSTRIDER_OUTBOX_NAME="+w.outbox)
	other.commit(t, inFlight, keys...)
	stranger.start(t)
	stranger.refused(t, w.db.name, other.db.name)
	other.db.has(t, inFlight, "NEW")
	w.commit(t, inFlight, keys...)
	w.drained(t, 10*time.Second)
	w.terminated(t)
	require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
}

// refused waits until a relay ends by itself, as one that conflicts with others, and says with what.
func (p *process) refused(t *testing.T, names ...string) {
	t.Helper()
	select {
	case <-p.run.Load().done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s works on:\n%s", p.name, p.tail(10))
	}
	require.Equal(t, conflict, p.run.Load().cmd.ProcessState.ExitCode(), p.tail(10))
	for _, name := range names {
		require.Contains(t, p.tail(3), name)
	}
}
