// Command report reads what `go test -json` writes and prints what `go test` would have: the output
// of failed tests and one closing line a package. Besides that it appends a summary to a file: a
// line for each module, the failed tests, and every skipped test under its reason, which `go test`
// hides unless all output is shown.
//
// It owns how a test run is told, and knows nothing about the tests, the servers or the modules
// beyond their paths.
//
//	go test -json ./... | report -summary FILE MODULE...
//
// The exit code is 0 when no package failed, 1 otherwise.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	summary := flag.String("summary", "", "append the summary to this `file`")
	flag.Parse()
	run := newRun(os.Stdout, flag.Args())
	if err := run.read(os.Stdin); err != nil {
		fatal(err)
	}
	if *summary != "" {
		if err := appendSummary(*summary, run); err != nil {
			fatal(err)
		}
	}
	if run.failed() {
		fmt.Println("FAIL")
		os.Exit(1)
	}
}

func appendSummary(name string, r *run) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open summary: %w", err)
	}
	r.summarise(f)
	if err := f.Close(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "report:", err)
	os.Exit(1)
}
