package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// outputFormat is what -o asks for among the forms a command has; the first is its default.
func (c *cli) outputFormat(forms ...string) (string, error) {
	if c.format == "" {
		return forms[0], nil
	}
	if !slices.Contains(forms, c.format) {
		return "", &usageError{thing: "-o", reason: "no such form here", next: "use " + strings.Join(forms, ", ")}
	}
	return c.format, nil
}

// print writes data to stdout: value as JSON, or what table draws. It is all that a verb with the
// forms table and json needs.
func (c *cli) print(value any, draw func(t *table)) error {
	format, err := c.outputFormat("table", "json")
	if err != nil {
		return err
	}
	if format == "json" {
		return printJSON(c.out, value)
	}
	t := newTable(c.out)
	draw(t)
	return t.flush()
}

// printJSON writes value indented, with < > & as they are.
func printJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// table draws aligned columns.
type table struct {
	w      io.Writer
	rows   [][]string
	titled bool
}

func newTable(w io.Writer) *table { return &table{w: w} }

// header sets the column titles; row adds a line below. Cells are data of others: control
// characters, which could rewrite the terminal, are shown as escapes.
func (t *table) header(cells ...string) {
	t.rows, t.titled = append([][]string{cells}, t.rows...), true
}

func (t *table) row(cells ...any) {
	line := make([]string, len(cells))
	for i, cell := range cells {
		line[i] = printable(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, line)
}

func (t *table) flush() error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " ")
		if i == 0 && t.titled && colors(t.w) {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		lines[i] = line
	}
	if len(t.rows) == 0 {
		return nil
	}
	_, err := io.WriteString(t.w, strings.Join(lines, "\n")+"\n")
	return err
}

func printable(s string) string {
	clean := func(r rune) bool { return r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) }
	if !strings.ContainsFunc(s, clean) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// colors says whether w is a terminal that may be sent colours: NO_COLOR and TERM=dumb forbid them.
func colors(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// isTerminal says whether w (or r) is one that a person looks at.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
