package relay_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/relaytest"
)

// planted is a bug that the simulation must see: a change of the source, compiled by an overlay, so
// that the tree itself stays as it is.
type planted struct {
	name    string
	changes []change
}

// change is a relaytest.Change.
type change struct{ File, Old, New string }

var plantedBugs = []planted{
	{"mark before ack", []change{{"sender.go", "s.sink.Write(ctx, f.recs, f.report)", `recs := append([]Record(nil), f.recs...)
		for i := range recs {
			f.report(i, Result{Receipt: Receipt{Topic: recs[i].Topic}})
		}
		s.sink.Write(ctx, recs, func(int, Result) {})`}}},
	{"no ORDER BY in the store", []change{{"relaytest/fake_fetch.go",
		"slices.SortFunc(p.rows, func(a, b *fakeRow) int { return cmp.Compare(a.id, b.id) })",
		"slices.SortFunc(p.rows, func(a, b *fakeRow) int { return cmp.Compare(a.id*7919%13, b.id*7919%13) })"}}},
	{"cursor by the largest id", []change{{"relaytest/fake_fetch.go", "p.next.gaps[gap] = true", "_ = gap"}}},
	{"retry of only the failed record of a key", []change{{"gate.go",
		"return !k.shut || len(k.doubts) > 0 && k.doubts[0].row == e.Row && k.doubts[0].kind != doubtPending", "return true || k.shut"}}},
	{"gate not loaded at restart", []change{{"relay.go", "	r.gate.load(ds)\n", "	_ = ds\n"}}},
	{"handBack forgets to reopen", []change{{"gate.go", "	g.close(k, e.Row)\n	g.open(*e.Key, k)\n", "	if g.close(k, e.Row); len(k.doubts) == 0 && k.busy == 0 {\n		k.shut = false\n		g.shut--\n	}\n"}}},
	{"mark without the claim's condition", []change{{"relaytest/fake_store.go", "r := s.db.row(o.Row)", "r := s.db.event(o.EventID)"}, {"relaytest/fake_store.go",
		`if r == nil || !s.applies(r, o) || o.Claim != "" && r.token != o.Claim {`, "if r == nil {"}}},
	{"attempts counted during an outage", []change{
		{"verdict.go", "blameless := f.Class == ClassUnavailable || f.Class == ClassRelay", "blameless := false"},
		{"verdict.go", "if f.Class != ClassRetriable && f.Class != ClassPermanent {", "if f.Class == ClassHeld {"}}},
	{"late answers do not gate their key", []change{{"late.go", "	s.gate.pend(e)\n", ""}}},
	{"unknown settle taken for done", []change{{"settler.go", "		w.repeated = true\n", "		if w.repeated = true; true {\n			return nil, nil\n		}\n"}}},
	{"application clock for next_retry_at", []change{{"relaytest/fake_store.go",
		"r.due, r.lastError = s.db.now().Add(o.RetryAfter), clean(o.LastError)", "r.due, r.lastError = time.Now().Add(o.RetryAfter), clean(o.LastError)"}}},

	{"key opens while rows of it are under way", []change{{"gate.go", "k.shut && k.busy == 0 && len(k.doubts) == 0", "k.shut && len(k.doubts) == 0"}}},
	{"answer older than the opening is let through", []change{{"gate.go", "			g.close(k, k.first)\n", "			g.reopened = append(g.reopened, *e.Key)\n			k.reopened = true\n"}}},
	{"lost mark opens the gate", []change{{"settler.go", "s.gate.lost(e, out.State)", "s.gate.settled(e, StateSent)"}}},
	{"verdict on an event behind one in doubt", []change{{"verdict.go", "case !s.gate.oldest(e):", "case !s.gate.oldest(e) && e == nil:"}}},
	{"local verdict before earlier ones are sent", []change{{"sender.go", "case f.carries(e.Key):", "case f.carries(e.Key) && e == nil:"}}},
	{"late row of a key is not looked for below its head", []change{{"doubt.go", "		return b\n", "		return a\n"}}},
	{"failed Fetch forgets what had reopened", []change{{"poller.go", "		p.gate.restore(f.Reopened)\n", ""}}},
	{"run until drained does not wait for marks", []change{{"relay.go", "return r.gate.quiet() && !r.settle.expects(time.Now())", "return r.send[0].lateCount() == 0 && !time.Now().IsZero()"}}},
	{"run until drained forgets who will be back", []change{{"relay.go", "return r.gate.quiet() && !r.settle.expects(time.Now())", "return r.gate.quiet()"}}},
	{"stop does not wait for answers", []change{{"sender.go", "for s.awaitLate(hard) && s.digGraves(hard) {", "for s.digGraves(hard) {"}}},
	{"stop does not wait for marks", []change{{"settler.go", "s.ended && n == 0", "s.ended"}}},
	{"budget leaks with late answers", []change{{"late.go", "	s.budget.give(e)\n", ""}}},
	{"dead-letter copy written after the mark", []change{{"verdict.go", "		return outs\n	}\n	return append(outs, settling{event: e, out: out})", "	}\n	return append(outs, settling{event: e, out: out})"},
		{"graves.go", "	s.settle.push([]settling{dead})\n", "	_ = dead\n"}}},
	{"copies without an answer are forgotten", []change{{"graves.go", "		if !done {\n", "		if !done && b == nil {\n"}}},
	{"released heads are never asked about", []change{{"poller.go", "		p.gate.answer(held, still)\n", "		_ = still\n"}}},

	{"lanes: what the last owner had sent is not marked", []change{{"owner.go", "n, err := w.markSent(ctx, lanes[i].Sent)", "n, err := w.markSent(ctx, nil)"}}},
	{"lanes: gates stay open when a lane is taken", []change{{"owner.go", "	w.gate.load(slices.DeleteFunc(ds,", "	_ = (slices.DeleteFunc(ds,"}}},
	{"lanes: the low end of a lane that is not read", []change{{"owner.go", "	if !mine {\n", "	if !mine && lane < 0 {\n"}, {"owner.go", `low != "" && before == after`, `low != "" && before <= after`}}},
	{"lanes: a lane that comes back is read on from where it was", []change{{"owner.go", "	if err := w.sync(ctx); err != nil {\n		return err\n	}\n	own := w.own()", "	own := w.own()"}}},
	{"lanes: flights of an earlier time are not awaited", []change{{"owner.go", "if err := w.gate.lanesIdle(ctx, numbers); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{"lanes: foreign rows are sent", []change{{"poller.go", "		if p.owner.has(e) {\n", "		if true || p.owner.has(e) {\n"}, {"sender.go", "!s.owner.has(e) || !s.gate.passes(e)", "!s.gate.passes(e)"},
		{"relaytest/fake_transactions.go", " || !t.s.m.holds(lanes)", ""}}},
	{"lanes: nobody fences", []change{{"relaytest/fake_transactions.go", " || !t.s.m.holds(lanes)", ""}}},
	{"lanes: SENT does not outdo a late verdict", []change{{"relaytest/fake_store.go", "if s.o.Claim == relay.ClaimLanes && o.State", "if s.o.Claim == \"\" && o.State"}}},
	{"lanes: SENT does not outdo DEAD", []change{{"relaytest/fake_store.go", "r.state == relay.StateFailed || r.state == relay.StateDead && !r.discarded()", "r.state == relay.StateFailed"}}},
	{"lanes: SENT outdoes what a person gave up", []change{{"relaytest/fake_store.go", "r.state == relay.StateDead && !r.discarded()\n}", "r.state == relay.StateDead\n}"}}},
	{"lanes: keys that wait are forgotten at a take-over", []change{{"relaytest/fake_lanes.go", "waits, begin = min(from, low), append(waits, more...), true", "waits, begin = min(from, low), append(waits, more[:0]...), true"}}},
	{"lanes: a key that waited is not read again although nothing holds it", []change{{"relaytest/fake_fetch.go", "if _, shut := p.head[key]; !shut {", "if _, shut := p.head[key]; !shut && low < 0 {"}}},
	{"lanes: a run until drained does not wait for lanes", []change{{"relay.go", " && !r.owner.waiting()", ""}}},
}

// TestPlantedBugs plants each bug and counts the seeds that the simulation needs to see it. It is slow:
//
//	POSTRIDER_PLANTED=1       all of them; or a part of a name
//	POSTRIDER_PLANTED_SEEDS   how many seeds to try at most; defaults to 1000
func TestPlantedBugs(t *testing.T) {
	which := os.Getenv("POSTRIDER_PLANTED")
	if which == "" {
		t.Skip("set POSTRIDER_PLANTED=1 to plant bugs and see them found (takes minutes)")
	}
	for _, bug := range plantedBugs {
		if which != "1" && !strings.Contains(bug.name, which) {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			bin, test := bug.compile(t), "TestSimulation$"
			if strings.HasPrefix(bug.name, "lanes: ") {
				test = "TestSimulation_Lanes$"
			}
			most := int(number("POSTRIDER_PLANTED_SEEDS", 1000))
			for seed := 1; seed <= most; seed++ {
				if found := simulate(t, bin, test, seed); found != "" {
					t.Logf("| %s | %d | %s |", bug.name, seed, found)
					return
				}
			}
			t.Errorf("%s: not seen in %d seeds", bug.name, most)
		})
	}
}

// TestPlantedBugs_FitTheSource: a planted bug that no longer fits the source proves nothing, so each text
// that one replaces stands exactly once.
func TestPlantedBugs_FitTheSource(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, bug := range plantedBugs {
		relaytest.FitsTheSource(t, here, bug.changes)
	}
}

// compile builds the tests with the bug in them.
func (b planted) compile(t *testing.T) string {
	here, err := os.Getwd()
	require.NoError(t, err)
	bin := filepath.Join(t.TempDir(), "relay.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", relaytest.Overlay(t, here, b.changes), "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return bin
}

var promise = regexp.MustCompile(`(P\d+[^:\n]{0,8}: [a-z]+|Run did not end|a clean stop did not wait|Run ended by itself|a clean stop ended|a run until drained [a-z ]+|events are left|panic: [a-z ]+|has no row|is DEAD and neither)`)

// simulate runs one seed and says what it found; "" for nothing.
func simulate(t *testing.T, bin, test string, seed int) string {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", test)
	cmd.Env = append(os.Environ(), fmt.Sprintf("POSTRIDER_SIM_SEED=%d", seed))
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return "no end: time stands still"
	}
	if what := promise.FindString(string(out)); what != "" {
		return what
	}
	return "failed: " + string(out[:min(len(out), 300)])
}
