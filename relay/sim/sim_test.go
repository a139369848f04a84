//go:build synctests

package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
)

// TestSimulation runs whole relays in virtual time, with faults drawn from a seed, and holds the promises afterwards.
//
//	POSTRIDER_SIM_SEEDS   how many seeds; defaults to 300, 60 with -short
//	POSTRIDER_SIM_START   the first; defaults to 1
//	POSTRIDER_SIM_SEED    only this one
//	POSTRIDER_SIM_LOG     set: everything that happens on stderr
func TestSimulation(t *testing.T) {
	start, n := number("POSTRIDER_SIM_START", 1), number("POSTRIDER_SIM_SEEDS", 300)
	if testing.Short() {
		n = min(n, 60)
	}
	if one := number("POSTRIDER_SIM_SEED", 0); one != 0 {
		start, n = one, 1
	}
	runSeeds(t, start, n)
}

// TestSimulation_Fresh does the same with seeds that are other ones each time.
//
//	POSTRIDER_SIM_FRESH   how many; defaults to none while seeds 30382 and 30756 stand unexplained (docs/simulation.md)
func TestSimulation_Fresh(t *testing.T) {
	n := number("POSTRIDER_SIM_FRESH", 0)
	if n == 0 || testing.Short() || number("POSTRIDER_SIM_SEED", 0) != 0 {
		t.Skip("no fresh seeds with -short, POSTRIDER_SIM_FRESH=0 or POSTRIDER_SIM_SEED")
	}
	start := 1_000_000 + rand.Uint64N(1_000_000_000)
	t.Logf("again: POSTRIDER_SIM_START=%d POSTRIDER_SIM_SEEDS=%d go test -tags synctests -run 'TestSimulation$' github.com/postrider/postrider/relay/sim", start, n)
	runSeeds(t, start, n)
}

func runSeeds(t *testing.T, start, n uint64) {
	for seed := start; seed < start+n; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			run(t, newScenario(seed))
		})
	}
}

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// run lives through a scenario in a year of its own.
func run(t *testing.T, s scenario) {
	year := <-years
	defer func() { years <- year }()
	path := newFile(t)
	synctest.Test(t, func(t *testing.T) {
		moveTo(year)
		w := newWorld(t, s, path)
		defer w.close()
		w.live()
	})
}

// fail reports a broken promise with the way to see it again. Where goroutines race the same seed may need a few runs;
// the journal tells what happened in this one.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	said := fmt.Sprintf(format, args...)
	w.log.add("promise", "BROKEN", said)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failures++; w.failures > 5 {
		return
	}
	w.t.Errorf("%s\n  replay: POSTRIDER_SIM_SEED=%d go test -tags synctests -count=20 -failfast -run 'TestSimulation$' github.com/postrider/postrider/relay/sim",
		said, w.seed)
}
