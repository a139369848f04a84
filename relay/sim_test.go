package relay_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// TestSimulation runs whole relays in virtual time against a fake table and a fake cluster, with faults
// drawn from a seed, and holds the promises afterwards.
//
//	POSTRIDER_SIM_SEEDS   how many seeds; defaults to 300, 60 with -short
//	POSTRIDER_SIM_START   the first; defaults to 1
//	POSTRIDER_SIM_SEED    only this one
//	POSTRIDER_SIM_LOG     set: the relays' logs on stderr
func TestSimulation(t *testing.T) {
	t.Parallel()
	runSeeds(t, newScenario)
}

// TestSimulation_Lanes is the same with relays that share lanes through a group and send in transactions:
// whatever happens to them, a read_committed reader sees each event once.
func TestSimulation_Lanes(t *testing.T) {
	t.Parallel()
	runSeeds(t, newLaneScenario)
}

// TestSimulation_LanesAtLeastOnce is the same with relays that share lanes and send at least once.
func TestSimulation_LanesAtLeastOnce(t *testing.T) {
	t.Parallel()
	runSeeds(t, newPlainLaneScenario)
}

// runSeeds runs a world for each seed.
func runSeeds(t *testing.T, scenarioOf func(seed uint64) scenario) {
	start, n := number("POSTRIDER_SIM_START", 1), number("POSTRIDER_SIM_SEEDS", 300)
	if testing.Short() {
		n = min(n, 60)
	}
	if one := number("POSTRIDER_SIM_SEED", 0); one != 0 {
		start, n = one, 1
	}
	for seed := start; seed < start+n; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newWorld(t, scenarioOf(seed)).run() })
		})
	}
}

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// fail reports a broken promise with the way to see it again. Where goroutines race the same seed may
// need a few runs.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	if w.failures++; w.failures > 5 {
		return
	}
	test := "TestSimulation"
	if w.lanes > 0 {
		test = "TestSimulation_Lanes"
		if w.plain {
			test = "TestSimulation_LanesAtLeastOnce"
		}
	}
	w.t.Errorf("%s\n  replay: POSTRIDER_SIM_SEED=%d go test -count=20 -failfast -run '%s$' github.com/postrider/postrider/relay\n  scenario: %+v",
		fmt.Sprintf(format, args...), w.seed, test, w.scenario)
}

func (w *world) run() {
	var services, rest sync.WaitGroup
	for i := range w.writers {
		services.Go(func() { w.write(i) })
	}
	over := make(chan struct{})
	if w.people {
		rest.Go(func() { w.act(over) })
	}
	last := make([]*session, w.relays)
	for i := range last {
		rest.Go(func() { last[i] = w.live(i) })
	}
	time.Sleep(w.span + 10*time.Second)
	services.Wait()
	close(over)
	rest.Wait()
	if w.drained && !w.t.Failed() {
		w.stopAll(last)
		last = nil
		w.drain1(0)
	}
	time.Sleep(max(0, w.scenario.calm()-w.now()))
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	if w.t.Failed() {
		w.stopAll(last)
		return
	}
	w.settleDown(&last)
	w.checkMemory(last)
	w.stopAll(last)
	w.check1()
}

func (w *world) stopAll(ss []*session) {
	for _, s := range ss {
		s.end(2)
	}
}

// settleDown lets the relays finish without faults, with people who give up what is dead.
func (w *world) settleDown(last *[]*session) {
	const limit = 30 * time.Minute
	people := w.db.Open(relaytest.FakeStoreOptions{StoreOptions: relay.StoreOptions{Name: "people"}})
	if w.lanes > 0 && !w.plain {
		time.Sleep(time.Minute)
		w.checkDead()
	}
	began := time.Now()
	for life := 1; w.pending() > 0; life++ {
		if time.Since(began) > limit {
			w.fail("events are left %s after the last fault: %v", limit, w.db.Pending())
			return
		}
		if w.drained {
			w.drain1(life)
		}
		w.giveUp(people, relay.Filter{})
		time.Sleep(2 * time.Second)
	}
	if w.drained { // for the checks of what a running relay holds
		*last = append(*last, w.open(100, 0, false))
	}
	time.Sleep(20 * time.Second)
}

// makeRoom gives up what is dead when so many keys are blocked that nothing new is read.
func (w *world) makeRoom() {
	if w.maxBlocked < 100 {
		people := w.db.Open(relaytest.FakeStoreOptions{StoreOptions: relay.StoreOptions{Name: "people"}})
		w.giveUp(people, relay.Filter{})
	}
}

// drain1 runs a relay until it says that nothing is due, and looks whether that is so.
func (w *world) drain1(life int) {
	began := w.db.Now() // what failed before is another relay's knowledge
	s := w.open(99, life, true)
	limit := time.After(30 * time.Minute)
	for s.alive() {
		select {
		case <-s.done:
		case <-time.After(5 * time.Second):
			w.makeRoom()
		case <-limit:
			w.fail("a run until drained does not end: %s; %v", relay.Leftovers(s.relay), w.db.Pending())
			s.end(0)
			return
		}
	}
	s.stop()
	if s.err != nil {
		w.fail("a run until drained ended with %v", s.err)
	}
	heads := map[string]relay.RowID{} // by key, the first row that holds it
	for _, r := range w.db.Pending() {
		holds := r.State == relay.StateFailed || r.State == relay.StateDead && w.onDead == relay.OnDeadHold && !discarded(r)
		if r.Key != nil && holds && heads[*r.Key] == "" {
			heads[*r.Key] = r.ID
		}
	}
	seen := 3 * time.Second // how old the relay's last look at the table may be
	if w.slowReads > 0 {
		seen += slowest
	}
	for _, r := range w.db.Pending() {
		free := r.Key == nil || heads[*r.Key] == "" || heads[*r.Key] == r.ID
		due := r.State == relay.StateNew || r.State == relay.StateFailed && r.DueAt.Before(w.db.Now().Add(-seen))
		blameless := strings.HasPrefix(r.LastError, "[unavailable]") || strings.HasPrefix(r.LastError, "[relay]")
		if r.State == relay.StateFailed && blameless && free && r.DueAt.After(began.Add(3*time.Second)) {
			w.fail("a run until drained ended before an outage was over: %v", r)
		}
		if due && free && w.maxBlocked > 100 {
			w.fail("a run until drained ended before this was sent: %v", r)
		}
	}
}

// pending counts events that still have a way to go.
func (w *world) pending() (n int) {
	for _, r := range w.db.Pending() {
		if !(r.State == relay.StateDead && discarded(r)) {
			n++
		}
	}
	return n
}
