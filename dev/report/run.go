package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// run collects a whole test run. Only output that may still be printed is kept: a test's own until
// it passes, a package's until it ends.
type run struct {
	out     io.Writer
	modules []string            // module paths, to group packages by
	open    map[string]*pkg     // packages that have not ended, by path
	tally   map[string]*tally   // by module path
	skips   map[string][]string // tests by reason
	fails   []string
}

type pkg struct {
	lines   []line
	outcome map[string]string // test name to its last action: pass, fail or skip
}

type line struct{ test, text string }

type tally struct{ packages, failed, tests, skipped int }

func newRun(out io.Writer, modules []string) *run {
	return &run{
		out:     out,
		modules: modules,
		open:    map[string]*pkg{},
		tally:   map[string]*tally{},
		skips:   map[string][]string{},
	}
}

// read consumes events until the end of input. A line that is no event comes from the go command
// itself and is printed as it is.
func (r *run) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		raw, err := lines.ReadBytes('\n')
		if len(raw) > 0 {
			var e event
			if !bytes.HasPrefix(raw, []byte("{")) || json.Unmarshal(raw, &e) != nil {
				fmt.Fprint(r.out, string(raw))
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (r *run) add(e event) {
	if e.Action == "build-output" { // compiler messages, which belong to no package's tests
		fmt.Fprint(r.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.open[e.Package]
	if p == nil {
		p = &pkg{outcome: map[string]string{}}
		r.open[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.lines = append(p.lines, line{e.Test, e.Output})
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.end(e.Package, p, e.Action)
			return
		}
		p.outcome[e.Test] = e.Action
		r.note(e, p)
	}
}

// note takes a test that ended into the summary.
func (r *run) note(e event, p *pkg) {
	name := e.Package + "." + e.Test
	switch e.Action {
	case "pass":
		p.drop(e.Test)
	case "fail":
		r.fails = append(r.fails, name)
	case "skip":
		reason := p.reason(e.Test)
		r.skips[reason] = append(r.skips[reason], name)
	}
}

// drop forgets a test's output.
func (p *pkg) drop(test string) {
	p.lines = slices.DeleteFunc(p.lines, func(l line) bool { return l.test == test })
}

// reason is what a skipped test said, without the lines of the test framework and the file name.
func (p *pkg) reason(test string) string {
	var said []string
	for _, l := range p.lines {
		text := strings.TrimSpace(l.text)
		if l.test != test || text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
			continue
		}
		if _, after, found := strings.Cut(text, ".go:"); found {
			if _, message, found := strings.Cut(after, ": "); found {
				text = message
			}
		}
		said = append(said, text)
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// end prints a package that is done: its closing line, and when it failed all that did not pass.
func (r *run) end(path string, p *pkg, action string) {
	delete(r.open, path)
	for _, l := range p.lines {
		closing := strings.HasPrefix(l.text, "ok  \t") || strings.HasPrefix(l.text, "?   \t")
		outcome := p.outcome[l.test]
		unseen := outcome == "pass" || outcome == "skip" || strings.HasPrefix(l.text, "=== ")
		if closing || action == "fail" && !unseen {
			fmt.Fprint(r.out, l.text)
		}
	}
	t := r.tally[r.module(path)]
	if t == nil {
		t = &tally{}
		r.tally[r.module(path)] = t
	}
	t.packages++
	if action == "fail" {
		t.failed++
	}
	for _, outcome := range p.outcome {
		t.tests++
		if outcome == "skip" {
			t.skipped++
		}
	}
}

// module is the longest of the known module paths that the package lies in, or the package itself.
func (r *run) module(path string) string {
	best := ""
	for _, m := range r.modules {
		if len(m) > len(best) && (path == m || strings.HasPrefix(path, m+"/")) {
			best = m
		}
	}
	if best == "" {
		return path
	}
	return best
}

// failed tells whether a package failed, or never ended, or none was there to pass.
func (r *run) failed() bool {
	for _, t := range r.tally {
		if t.failed > 0 {
			return true
		}
	}
	return len(r.open) > 0 || len(r.tally) == 0
}

// summarise writes a line for each module, the failed tests, and the skipped ones by reason.
func (r *run) summarise(w io.Writer) {
	for _, m := range slices.Sorted(maps.Keys(r.tally)) {
		t, verdict := r.tally[m], "ok  "
		if t.failed > 0 {
			verdict = "FAIL"
		}
		fmt.Fprintf(w, "%s  %s: %d packages (%d failed), %d tests (%d skipped)\n",
			verdict, m, t.packages, t.failed, t.tests, t.skipped)
	}
	for _, path := range slices.Sorted(maps.Keys(r.open)) {
		fmt.Fprintf(w, "FAIL  %s never ended\n", path)
	}
	if len(r.fails) > 0 {
		slices.Sort(r.fails)
		fmt.Fprintf(w, "failed:\n    %s\n", strings.Join(r.fails, "\n    "))
	}
	for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
		tests := r.skips[reason]
		slices.Sort(tests)
		fmt.Fprintf(w, "skipped: %s\n    %s\n", reason, strings.Join(tests, "\n    "))
	}
}
