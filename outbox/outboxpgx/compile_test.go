package outboxpgx_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A pool's transaction is a pgx.Tx, so it compiles where a pgx.Tx is wanted.
var _ pgx.Tx = (*pgxpool.Tx)(nil)

// TestWriter_RefusesWhatIsNoTransaction builds programs that write to the outbox with a transaction,
// a pool and a bare connection: only the first may compile.
func TestWriter_RefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	for program, compiles := range map[string]bool{"tx": true, "conn": false, "pool": false} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, "./testdata/"+program).CombinedOutput()
		switch {
		case compiles && err != nil:
			t.Errorf("%s does not compile: %v\n%s", program, err, out)
		case compiles:
		case err == nil:
			t.Errorf("%s compiles", program)
		case !strings.Contains(string(out), "does not implement pgx.Tx"):
			t.Errorf("%s fails for another reason: %v\n%s", program, err, out)
		}
	}
}
