package librarytest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// known are the names that a page may rely on: tests, and cases of the conformance suites.
type known struct{ tests, cases map[string]bool }

var (
	testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	caseName = regexp.MustCompile(`name: "([^"]+)"`)
	quoted   = regexp.MustCompile("`(Test[^`]*)`")
)

// repository is the root of the checkout.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// knownNames looks through the whole checkout, behind build tags too.
func knownNames(t *testing.T) known {
	t.Helper()
	k := known{tests: map[string]bool{}, cases: map[string]bool{}}
	err := filepath.WalkDir(repository(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || len(name) > 1 && strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		suite := filepath.Base(filepath.Dir(path)) == "relaytest"
		if !strings.HasSuffix(name, ".go") || !suite && !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range testName.FindAllSubmatch(source, -1) {
			k.tests[string(m[1])] = true
		}
		if suite {
			for _, m := range caseName.FindAllSubmatch(source, -1) {
				k.cases[string(m[1])] = true
			}
		}
		return nil
	})
	require.NoError(t, err)
	return k
}

// promised is how many promises a page of guarantees has sections for.
const promised = 11

// problems says what is wrong with a page of guarantees: a row that no test holds, a name that there is not, a table
// without a place for tests, a promise without a row. Only the table of the overview needs no tests.
func problems(page string, k known) (found []string) {
	section, held, inTable := "", false, false
	rows := map[string]int{}
	for n, line := range strings.Split(page, "\n") {
		at := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("line %d: ", n+1)+fmt.Sprintf(format, args...))
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			test, of, sub := strings.Cut(m[1], "/")
			if !k.tests[test] || sub && !k.cases[of] {
				at("there is no %s", m[1])
			}
		}
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !inTable:
			inTable, held = true, last == "Held by"
			if !held && section != "In short" {
				at("the table has no last column \"Held by\"")
			}
		case strings.HasPrefix(last, "---"):
		case held:
			rows[strings.SplitN(section, " ", 2)[0]]++
			if !quoted.MatchString(last) {
				at("no test holds %q", strings.TrimSpace(cells[0]))
			}
		}
	}
	for p := 1; p <= promised; p++ {
		if rows[fmt.Sprint("P", p)] == 0 {
			found = append(found, fmt.Sprintf("nothing is said of P%d", p))
		}
	}
	return found
}

// TestGuarantees: every row of docs/guarantees.md names the tests that hold it, and these exist.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository(), "docs", "guarantees.md"))
	require.NoError(t, err)
	require.Empty(t, problems(string(page), knownNames(t)))
}

// TestGuarantees_Problems: what the test above must not let pass.
func TestGuarantees_Problems(t *testing.T) {
	t.Parallel()
	k := known{map[string]bool{"TestA": true}, map[string]bool{"a case": true}}
	var good strings.Builder
	for p := 1; p <= promised; p++ {
		fmt.Fprintf(&good, "## P%d It holds\n\n| What | Held by |\n|---|---|\n| this | `TestA`, `TestA/a case` |\n\n", p)
	}
	require.Empty(t, problems(good.String(), k))
	for change, want := range map[[2]string]string{
		{"`TestA`, `TestA/a case`", "-"}:    `no test holds "this"`,
		{"`TestA`", "`TestB`"}:              "there is no TestB",
		{"`TestA/a case`", "`TestA/other`"}: "there is no TestA/other",
		{"Held by", "Because"}:              "no last column",
		{"P3", "Q3"}:                        "nothing is said of P3",
	} {
		found := problems(strings.Replace(good.String(), change[0], change[1], 1), k)
		require.NotEmpty(t, found, change)
		require.Contains(t, found[0], want)
	}
}
