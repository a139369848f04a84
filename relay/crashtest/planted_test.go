//go:build unix

package crashtest

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/relaytest"
)

// planted is a bug that the tests of this package must see: a change of the product's source, compiled
// by an overlay, so that the tree itself stays as it is.
type planted struct {
	name    string
	changes []change
	seenBy  string // the tests to run, as for go test -run
}

// change is a relaytest.Change, in files below relay/.
type change struct{ File, Old, New string }

var plantedBugs = []planted{
	{"mark before ack", []change{{"sender.go", "s.sink.Write(ctx, f.recs, f.report)", `recs := append([]Record(nil), f.recs...)
		for i := range recs {
			f.report(i, Result{Receipt: Receipt{Topic: recs[i].Topic}})
		}
		s.sink.Write(ctx, recs, func(int, Result) {})`}},
		"TestKill_AfterReading/postgres-single"},
	{"mark when it was handed over", []change{{"flight.go",
		"f.evs[i] = f.sender.addLate(e)", "f.outs = append(f.outs, f.sender.sent(e, Receipt{Topic: f.topics[i]}, f.started))\n\t\t\tf.evs[i] = nil"}},
		"TestCase_P08_OutageCostsNothing/postgres"},
	{"retry of only the failed record of a key", []change{
		{"gate.go", "return !k.shut || len(k.doubts) > 0 && k.doubts[0].row == e.Row && k.doubts[0].kind != doubtPending", "return true || k.shut"},
		{"gate.go", "f.Blocked = g.blocked", "f.Blocked = nil"}},
		"TestCase_O01"},
	{"gates not loaded at the start", []change{{"relay.go", "	r.gate.load(ds)\n", "	_ = ds\n"}}, "TestCase_O01"},
	{"mark without the claim's condition, PostgreSQL", []change{
		{"postgres/settle.go", `same := fmt.Sprintf("(%s = CASE o.f`, `same := fmt.Sprintf("(TRUE OR (%s = CASE o.f`},
		{"postgres/settle.go", `AND (o.tries < 0 OR %s = o.tries)"`, `AND (o.tries < 0 OR %s = o.tries))"`}},
		"TestCase_C08.*/postgres"},
	{"mark without the claim's condition, MySQL", []change{{"mysql/marks.go", "if len(where) == 0 {", "if true || len(where) == 0 {"}},
		"TestCase_C08.*/mysql"},
	{"cursor by the largest id", []change{{"postgres/tracker.go",
		"if len(holders) == 0 || len(ids) == 0 {", "if true || len(holders) == 0 || len(ids) == 0 {"}},
		"TestCase_P08_OutageCostsNothing/postgres"},
	{"no order in what is read", []change{
		{"poller.go", "\tp.gate.take(evs)\n", "\trand.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })\n\tp.gate.take(evs)\n"},
		{"poller.go", "\t\"log/slog\"\n", "\t\"log/slog\"\n\t\"math/rand/v2\"\n"}},
		"TestKill_AfterReading/postgres-single"},
	{"a claim is forgotten when the end comes", []change{{"relay.go", "if r.o.Claim != ClaimRows {", "if true || r.o.Claim != ClaimRows {"}},
		"TestCase_C09_TermInTheClaim"},
	{"what a take-over finds sent is not marked", []change{{"owner.go", "n, err := w.markSent(ctx, lanes[i].Sent)", "n, err := w.markSent(ctx, nil)"}},
		"TestMatrix/postgres/exactly-once/kill/ended"},
	{"open transactions of the dead stay open", []change{{"kafka/takeover.go",
		`if run == "" || run == g.runID {`, `if true || run == "" || run == g.runID {`}},
		"TestMatrix/postgres/exactly-once/kill/before_the_end"},
	{"sessions may stand still inside a mark, MySQL", []change{{"mysql/session.go",
		`"wait_timeout":             strconv.Itoa(int(quietFor.Seconds())),`, ""}},
		"TestMatrix/mysql/exactly-once/freeze/in_the_mark"},
	{"an outage counts as an attempt", []change{
		{"verdict.go", "blameless := f.Class == ClassUnavailable || f.Class == ClassRelay", "blameless := false"},
		{"verdict.go", "if f.Class != ClassRetriable && f.Class != ClassPermanent {", "if f.Class == ClassHeld {"}},
		"TestCase_P08_OutageCostsNothing/postgres"},
}

// TestPlantedBugs plants one bug after the other and runs the tests that must see it:
//
//	POSTRIDER_PLANTED=1         all of them; or a part of a name
//	POSTRIDER_PLANTED_RUN=NAME  run these tests instead, such as TestChaos
func TestPlantedBugs(t *testing.T) {
	which := os.Getenv("POSTRIDER_PLANTED")
	if which == "" {
		t.Skip("set POSTRIDER_PLANTED=1 to plant bugs in the relay and see them found (takes minutes)")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, bug := range plantedBugs {
		if which != "1" && !strings.Contains(bug.name, which) {
			continue
		}
		t.Run(bug.name, func(t *testing.T) {
			cmd := exec.Command(self, "-test.run", cmp.Or(os.Getenv("POSTRIDER_PLANTED_RUN"), bug.seenBy), "-test.v")
			cmd.Env = append(os.Environ(), "POSTRIDER_CRASH_BINARY="+bug.build(t), "POSTRIDER_PLANTED=")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("nothing sees it:\n%s", out)
				return
			}
			t.Logf("seen:\n%s", findings(string(out)))
		})
	}
}

// findings are the lines that tell what was seen.
func findings(out string) string {
	var said []string
	for line := range strings.Lines(out) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "--- FAIL") || strings.HasPrefix(trimmed, "P") && strings.Contains(trimmed, ": ") ||
			strings.Contains(trimmed, "_test.go:") && !strings.Contains(trimmed, "Error Trace") {
			said = append(said, line)
		}
	}
	return strings.Join(said[:min(12, len(said))], "")
}

// TestPlantedBugs_FitTheSource: a planted bug that no longer fits the source proves nothing, so each text
// that one replaces stands exactly once.
func TestPlantedBugs_FitTheSource(t *testing.T) {
	t.Parallel()
	for _, bug := range plantedBugs {
		relaytest.FitsTheSource(t, filepath.Join(root(), "relay"), bug.changes)
	}
}

// build compiles the relay with the bug in it.
func (b planted) build(t *testing.T) string {
	t.Helper()
	source, out := filepath.Join(root(), "relay"), filepath.Join(t.TempDir(), "postrider")
	cmd := exec.Command("go", "build", "-overlay", relaytest.Overlay(t, source, b.changes), "-o", out, "github.com/postrider/postrider/relay/cmd/postrider")
	cmd.Dir = source
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return out
}
