//go:build unix

package crashtest

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// reportFile, when set, asks for all cases and for an account of them.
var reportFile = os.Getenv("POSTRIDER_CRASH_REPORT")

// long says that every case is to run, not only those of each run.
func long() bool { return reportFile != "" }

// account gathers what the cases came to. TestMain writes it when all have ended.
var account accounts

type accounts struct {
	mu    sync.Mutex
	lines []line
}

// line is what came of one case.
type line struct {
	section section
	number  int      // where it stands among the section's
	what    []string // as the section's columns say
	Report
	uncommitted int // doubles for a read_uncommitted reader
	took        time.Duration
}

// section is a table of the account.
type section struct {
	title, about string
	columns      []string
	took         string // what the time is that is given
}

func (a *accounts) add(l line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, l)
}

// write writes the page.
func (a *accounts) write() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	b.WriteString(accountHead)
	for _, s := range []section{matrixSection, clusterSection, networkSection, fleetSection, timesSection} {
		a.section(&b, s)
	}
	return os.WriteFile(reportFile, []byte(b.String()), 0o644) //nolint:gosec // a page of the documentation
}

func (a *accounts) section(b *strings.Builder, s section) {
	lines := slices.DeleteFunc(slices.Clone(a.lines), func(l line) bool { return l.section.title != s.title })
	if len(lines) == 0 {
		return
	}
	slices.SortStableFunc(lines, func(x, y line) int { return cmp.Compare(x.number, y.number) })
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| %s | events | doubles, read_committed | doubles, read_uncommitted | lost | out of order | other findings | %s |\n",
		s.title, s.about, strings.Join(s.columns, " | "), s.took)
	b.WriteString(strings.Repeat("|---", len(s.columns)) + strings.Repeat("|---:", 7) + "|\n")
	for _, l := range lines {
		found := map[string]int{}
		for _, f := range l.Findings {
			found[f.Promise]++
		}
		lost, order := found[NoLoss], found[Ordered]
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %.1f s |\n", strings.Join(l.what, " | "), l.Committed,
			l.Doubled, l.uncommitted, lost, order, len(l.Findings)-lost-order, l.took.Seconds())
	}
}

const accountHead = `# The crash matrix

What became of relays that were killed, frozen and cut off. This page is written by a run of

    dev/crash

on real servers, with the relay as a process of its own, as package relay/crashtest tells. Each line is one case, in
which a service writes events and a ledger in the same transactions; in the end ledger, table and topics are compared.

- **doubles**: records beyond the first of an event. A read_committed reader of exactly-once sees none. With
  at-least-once what was in flight may stand twice, and what a relay that wakes up sends before its next heartbeat
  tells it that its lanes are another's: no broker fences it. A read_uncommitted reader also sees what was aborted.
- **lost**: committed events that are in no topic. **out of order**: first occurrences of a key's events not in the order
  of their commits.
- **other findings**: anything else that is not as promised, such as a receipt under which another record stands, a row
  that is not settled, or an attempt that an outage cost.

Sessions last six seconds here, the least that brokers allow by default; so a silent relay's lanes go to another one
after six seconds, and those of one that stops in order at once. Times are of a busy machine with two cores.
`
