//go:build unix

package crashtest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reportFile, when set, asks for all cases and for an account of them.
var reportFile = os.Getenv("POSTRIDER_CRASH_REPORT")

// report gathers what the matrix found, and writes it when all of its cases have ended.
type report struct {
	mu    sync.Mutex
	falls []fall
}

// fall is what came of one case.
type fall struct {
	matrixCase
	report  Report
	aborted int // doubles for a read_uncommitted reader
	took    time.Duration
}

func newReport(t *testing.T) *report {
	r := &report{}
	if r.long() {
		t.Cleanup(func() { require.NoError(t, os.WriteFile(reportFile, []byte(r.String()), 0o600)) })
	}
	return r
}

// long says that every case is to run.
func (r *report) long() bool { return reportFile != "" }

func (r *report) add(f fall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.falls = append(r.falls, f)
}

// String is a Markdown table.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	place := func(f fall) int {
		return slices.IndexFunc(matrix(), func(c matrixCase) bool { return c.name() == f.name() })
	}
	slices.SortFunc(r.falls, func(a, b fall) int { return cmp.Compare(place(a), place(b)) })
	var b strings.Builder
	b.WriteString("| database | delivery | strike | point | events | doubles, read_committed | doubles, read_uncommitted | lost | out of order | other findings | all sent after |\n")
	b.WriteString("|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, f := range r.falls {
		found := map[string]int{}
		for _, finding := range f.report.Findings {
			found[finding.Promise]++
		}
		lost, order := found[NoLoss], found[Ordered]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %d | %d | %d | %d | %.1f s |\n", f.server.name, f.delivery, f.strike(), f.point.name,
			f.report.Committed, f.report.Doubled, f.aborted, lost, order, len(f.report.Findings)-lost-order, f.took.Seconds())
	}
	return b.String()
}
