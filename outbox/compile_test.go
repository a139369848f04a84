package outbox_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTx_RefusesWhatIsNoTransaction builds programs that write to the outbox with a transaction, a
// pool and a bare connection: only the first may compile.
func TestTx_RefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	for program, missing := range map[string]string{"tx": "", "db": "Commit", "conn": "Commit"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, "./testdata/"+program)
		out, err := build.CombinedOutput()
		switch {
		case missing == "" && err != nil:
			t.Errorf("%s does not compile: %v\n%s", program, err, out)
		case missing == "":
		case err == nil:
			t.Errorf("%s compiles", program)
		case !strings.Contains(string(out), "missing method "+missing):
			t.Errorf("%s fails for another reason: %v\n%s", program, err, out)
		}
	}
}
