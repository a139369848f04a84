//go:build synctests

package sim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/relaytest"
)

// planted is a bug that the simulation must see: a change of the source, compiled by an overlay, so that the tree
// itself stays as it is.
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
	{"no ORDER BY in the store", []change{{"sqlite/fetch.go", "WHERE rowid IN (%s) ORDER BY rowid\"", "WHERE rowid IN (%s) ORDER BY rowid * 7919 %% 13\""}}},
	{"retry of only the failed record of a key", []change{
		{"gate.go", "return !k.shut || len(k.doubts) > 0 && k.doubts[0].row == e.Row && k.doubts[0].kind != doubtPending", "return true || k.shut"},
		{"sender.go", "!s.owner.has(e) || !s.gate.passes(e) ||", "!s.owner.has(e) ||"}}},
	{"unknown commit taken for failed", []change{{"kafka/transaction.go", "there, known := x.b.t.resolve(ctx, x, err)", "there, known := false, true"}}},
	{"unknown commit taken for done", []change{{"kafka/transaction.go", "there, known := x.b.t.resolve(ctx, x, err)", "there, known := true, true"}}},
	{"fenced producer taken for a failed commit", []change{{"kafka/transaction.go", "	there, known := x.b.t.resolve(ctx, x, err)\n",
		"	there, known := false, true\n	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.InvalidTxnState) {\n		there, known = x.b.t.resolve(ctx, x, err)\n	}\n"}}},
	{"unknown commit not taken over before it is looked for", []change{{"kafka/transaction_unknown.go", "if err := t.takeOver(ctx, x.id); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{"client used again after a failed EndTxn", []change{{"kafka/transaction.go", "	x.slot.close()\n	there, known", "	there, known"},
		{"kafka/transaction_unknown.go", "if err := t.takeOver(ctx, x.id); err != nil {", "if err := ctx.Err(); err != nil {"}}},
	{"nil of EndTransaction believed without the promises", []change{{"kafka/transaction.go", "if err != nil || probe {", "if probe {"}}},
	{"mark without its condition", []change{{"sqlite/marks.go", "strings.Join(where, \" AND \"), given(markKind), l.unsettled(), strings.Join(same, \" AND \"))",
		"strings.Join(where[:1], \" AND \"), given(markKind), \"1\", \"1\")"}}},
	{"lanes given without their drain", []change{{"kafka/membership.go", "	g.keeper.Give(within, lanes)\n", "	g.keeper.Lose(lanes)\n"}}},
	{"progress one record behind", []change{{"kafka/offsets.go", "		return l.pending[0]\n", "		return l.pending[0] + 1\n"}}},
	{"carried progress dropped with the commit", []change{{"kafka/carried.go", "func(l *laneLog, i int) { l.carried[i].open = false }", "func(l *laneLog, i int) { l.carried = slices.Delete(l.carried, i, i+1) }"}}},
	{"carried progress not read at a take-over", []change{{"kafka/takeover.go", "Low: n.note.Low, Sent: listed}", "Low: n.note.Low, Sent: listed[:0]}"}}},
	{"take-over reads from the end", []change{{"kafka/takeover.go", "span{lane, n.offset, ends[i], func", "span{lane, ends[i], ends[i], func"}}},
	{"what the last owner had sent is not marked", []change{{"owner.go", "n, err := w.markSent(ctx, lanes[i].Sent)", "n, err := w.markSent(ctx, nil)"}}},
	{"offsets read while a transaction may change them", []change{{"kafka/takeover.go", "now, err := g.offsetFetch(ctx, lanes, true)", "now, err := g.offsetFetch(ctx, lanes, false)"}}},
	{"dead owners are not fenced", []change{{"kafka/takeover.go", "		if present.has(n) {\n", "		if true || present.has(n) {\n"}}},
	{"generation read when it is sent", []change{{"kafka/offsets.go", "		m := g.membership()\n		wait, mine", "		m := g.membership()\n		if g.client != nil {\n			m.id, m.generation = g.client.GroupMetadata()\n		}\n		wait, mine"}}},
	{"offsets committed without a membership", []change{{"kafka/transaction_progress.go", "req.MemberID, req.Generation = m.id, m.generation\n", "req.MemberID, req.Generation = \"\", -1\n"}}},
	{"lanes kept after a new member id", []change{{"kafka/membership.go", "if g.id != \"\" && id != g.id {", "if g.id != \"\" && id == \"\" {"}}},
	{"gates stay open when a lane is taken", []change{{"owner.go", "	w.gate.load(slices.DeleteFunc(ds,", "	_ = (slices.DeleteFunc(ds,"}}},
	{"attempts counted during an outage", []change{
		{"verdict.go", "blameless := f.Class == ClassUnavailable || f.Class == ClassRelay", "blameless := false"},
		{"verdict.go", "if f.Class != ClassRetriable && f.Class != ClassPermanent {", "if f.Class == ClassHeld {"}}},
	{"hash in Go unlike SQL", []change{{"sqlite/lanes.go", "relay.LaneOf(key, int32(n))), nil", "relay.LaneOf(key+\" \", int32(n))), nil"}}},
	{"transactional ids of the next run are the same", []change{{"kafka/group.go", "hex.EncodeToString(b[:])", "hex.EncodeToString(b[:0]) + \"0\""}}},
	{"progress superseded before its marks", []change{{"kafka/transaction.go", "	if carried != 0 {\n		t.idle <- s // its next transaction replaces nothing\n	}\n", "	t.idle <- s\n"},
		{"kafka/transaction.go", "			return\n		}\n		t.idle <- s\n	}\n}", "			return\n		}\n	}\n}"}}},
	{"a silent probe stands for itself alone", []change{{"kafka/transaction_judge.go", "	for _, i := range b.left {\n		if !b.told[i] && b.recs[i].Topic", "	for _, y := range s.todo {\n		if i := y.index; !b.told[i] && b.recs[i].Topic"}}},
	{"foreign rows are sent", []change{{"poller.go", "		if p.owner.has(e) {\n", "		if true || p.owner.has(e) {\n"}, {"sender.go", "!s.owner.has(e) || !s.gate.passes(e)", "!s.gate.passes(e)"},
		{"kafka/offsets.go", "			mine = mine && (g.own[lane] || g.late[lane])\n", ""}, {"kafka/transaction_write.go", "		if !own {\n", "		if !own && false {\n"}}},
	{"budget leaks with what is handed back", []change{{"sender.go", "	s.gate.handBack(e)\n	s.budget.give(e)\n", "	s.gate.handBack(e)\n"}}},
}

// TestPlantedBugs plants each bug and counts the seeds that the simulation needs to see it. It is slow:
//
//	POSTRIDER_PLANTED=1       all of them; or parts of names, with ; between them
//	POSTRIDER_PLANTED_SEEDS   how many seeds to try at most; defaults to 1000
func TestPlantedBugs(t *testing.T) {
	which := os.Getenv("POSTRIDER_PLANTED")
	if which == "" {
		t.Skip("set POSTRIDER_PLANTED=1 to plant bugs and see them found (takes half an hour)")
	}
	most := int(number("POSTRIDER_PLANTED_SEEDS", 1000))
	for _, bug := range plantedBugs {
		if which != "1" && !slices.ContainsFunc(strings.Split(which, ";"), func(part string) bool { return strings.Contains(bug.name, part) }) {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			bin := bug.compile(t)
			const block = 20
			for start := 1; start <= most; start += block {
				if seed, found := search(t, bin, start, block); found != "" {
					t.Logf("| %s | %d | %s |", bug.name, seed, found)
					return
				}
			}
			t.Errorf("%s: not seen in %d seeds", bug.name, most)
		})
	}
}

// TestPlantedBugs_FitTheSource: a planted bug that no longer fits the source proves nothing, so each text that one
// replaces stands exactly once.
func TestPlantedBugs_FitTheSource(t *testing.T) {
	for _, bug := range plantedBugs {
		relaytest.FitsTheSource(t, relayDir(t), bug.changes)
	}
}

func relayDir(t *testing.T) string {
	here, err := os.Getwd()
	require.NoError(t, err)
	return filepath.Dir(here)
}

// compile builds the tests with the bug in them.
func (b planted) compile(t *testing.T) string {
	bin := filepath.Join(t.TempDir(), "sim.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "synctests", "-vet=off", "-overlay", relaytest.Overlay(t, relayDir(t), b.changes), "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return bin
}

var (
	failedSeed = regexp.MustCompile(`--- FAIL: TestSimulation/(\d+)`)
	promise    = regexp.MustCompile(`P\d+[^:\n]{0,12}: [^\n]{0,60}|relay-\S+ did not end|Run ended by itself|a clean stop ended|panic: [a-z ]+`)
	names      = regexp.MustCompile(`(event|relay|key) ?[-0-9a-z.]*\d`)
)

// search runs a block of seeds and says what the first of them that failed has found; "" for nothing.
func search(t *testing.T, bin string, start, n int) (seed int, found string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "TestSimulation$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("POSTRIDER_SIM_START=%d", start), fmt.Sprintf("POSTRIDER_SIM_SEEDS=%d", n), "POSTRIDER_SIM_QUIET=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return 0, ""
	}
	if ctx.Err() != nil {
		return start, "no end: time stands still"
	}
	seeds := map[int]string{}
	for _, part := range strings.Split(string(out), "    --- FAIL")[1:] {
		if m := failedSeed.FindStringSubmatch("--- FAIL" + part); m != nil {
			n, _ := strconv.Atoi(m[1])
			seeds[n] = names.ReplaceAllString(promise.FindString(part), "$1 …")
		}
	}
	if len(seeds) == 0 {
		return start, "failed: " + string(out[:min(len(out), 300)])
	}
	numbers := make([]int, 0, len(seeds))
	for n := range seeds {
		numbers = append(numbers, n)
	}
	seed = slices.Min(numbers)
	return seed, seeds[seed]
}
