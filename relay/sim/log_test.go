//go:build synctests

package sim

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// journal is the record of a run. Where goroutines race, the same seed takes another course the next time: what
// happened is told by this alone. It is written to a file when a promise is broken.
type journal struct {
	start time.Time
	loud  bool

	mu    sync.Mutex
	lines []line
}

type line struct {
	at   time.Duration
	who  string
	what string
	with []any
}

// longest is how many lines are kept, the last ones.
const longest = 200_000

func (j *journal) add(who, what string, with ...any) {
	l := line{time.Since(j.start), who, what, with}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.lines) >= longest {
		j.lines = j.lines[longest/2:]
	}
	j.lines = append(j.lines, l)
	if j.loud {
		fmt.Fprint(os.Stderr, l)
	}
}

func (l line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12s %-10s %s", l.at.Round(time.Microsecond), l.who, l.what)
	for _, w := range l.with {
		fmt.Fprintf(&b, " %v", w)
	}
	b.WriteByte('\n')
	return b.String()
}

// save writes the journal to a file and returns its name.
func (j *journal) save(seed uint64) string {
	if os.Getenv("POSTRIDER_SIM_QUIET") != "" {
		return "no file (POSTRIDER_SIM_QUIET)"
	}
	f, err := os.CreateTemp("", fmt.Sprintf("postrider-sim-%d-*.log", seed))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		_, _ = f.WriteString(l.String())
	}
	return f.Name()
}

// logger is a process's, into the journal.
func (j *journal) logger(who string) *slog.Logger { return slog.New(handler{j, who}) }

type handler struct {
	j   *journal
	who string
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	with := make([]any, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		with = append(with, a)
		return true
	})
	h.j.add(h.who, r.Level.String()+" "+r.Message, with...)
	return nil
}

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h handler) WithGroup(string) slog.Handler      { return h }
