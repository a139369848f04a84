package sqlite

import (
	"fmt"
	"strings"
)

// clock writes and compares the times of one column by the database's clock, in the form that the
// table uses. SQLite has no type for times: they are text of several forms, or numbers.
type clock struct {
	kind clockKind
}

type clockKind int

const (
	// clockISO is the own table's text, 2026-07-15T10:30:00.000Z: fixed width, so it compares as text.
	clockISO clockKind = iota
	// clockSpaced is what CURRENT_TIMESTAMP writes, with milliseconds: 2026-07-15 10:30:00.000.
	clockSpaced
	// clockSeconds and clockMillis are numbers since 1970.
	clockSeconds
	clockMillis
)

// isoFormat and its kin are arguments of strftime.
const (
	isoFormat    = "%Y-%m-%dT%H:%M:%fZ"
	spacedFormat = "%Y-%m-%d %H:%M:%f"
)

// never is the next_retry_at of DEAD rows of the own table: it keeps them in the small index that finds
// them, behind everything that is due.
const never = "9999-12-31T23:59:59.999Z"

// at is the expression for base (a time value of SQLite's, in SQL) plus modifier (SQL, "" for none).
func (c clock) at(base, modifier string) string {
	if modifier != "" {
		base += ", " + modifier
	}
	switch c.kind {
	case clockSpaced:
		return fmt.Sprintf("strftime('%s', %s)", spacedFormat, base)
	case clockSeconds:
		return fmt.Sprintf("unixepoch(%s)", base)
	case clockMillis:
		return millis(base)
	default:
		return fmt.Sprintf("strftime('%s', %s)", isoFormat, base)
	}
}

// millis is the expression for a time value in milliseconds since 1970.
func millis(timeValue string) string {
	return fmt.Sprintf("CAST(round(unixepoch(%s, 'subsec') * 1000) AS INTEGER)", timeValue)
}

// columnMillis reads a column in whatever form a value has, in milliseconds since 1970; NULL when it
// is NULL or cannot be read as a time.
func columnMillis(col string) string {
	return fmt.Sprintf(`CASE typeof(%[1]s) WHEN 'text' THEN %[2]s
WHEN 'null' THEN NULL ELSE CAST(CASE WHEN abs(%[1]s) > 100000000000 THEN %[1]s ELSE %[1]s * 1000 END AS INTEGER) END`,
		col, millis(col))
}

// guessClock says which form a column has: by what stands in it, else by its default, else by its type.
func guessClock(c column, sample string) clock {
	switch {
	case isDigits(sample) && len(sample) > 11:
		return clock{clockMillis}
	case isDigits(sample):
		return clock{clockSeconds}
	case len(sample) > 10 && sample[10] == 'T':
		return clock{clockISO}
	case sample != "":
		return clock{clockSpaced}
	}
	fallback := strings.ToLower(c.fallback.String)
	switch {
	case strings.Contains(fallback, "%dt%h"):
		return clock{clockISO}
	case strings.Contains(fallback, "1000"), strings.Contains(c.declared, "INT") && strings.Contains(fallback, "subsec"):
		return clock{clockMillis}
	case strings.Contains(c.declared, "INT"):
		return clock{clockSeconds}
	default:
		return clock{clockSpaced}
	}
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
