package outbox

import (
	"fmt"
	"strings"
)

// Dialect names the SQL of one database. The zero value is not valid.
type Dialect string

// The databases that the product knows.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	MariaDB  Dialect = "mariadb"
	SQLite   Dialect = "sqlite"
)

// Dialects lists every dialect, in the order in which documentation names them.
func Dialects() []Dialect { return []Dialect{Postgres, MySQL, MariaDB, SQLite} }

// ParseDialect reads a dialect's name in any case. An unknown name is an error that lists the known
// ones.
func ParseDialect(name string) (Dialect, error) {
	for _, d := range Dialects() {
		if strings.EqualFold(name, string(d)) {
			return d, nil
		}
	}
	return "", fmt.Errorf("unknown dialect %q: use postgres, mysql, mariadb or sqlite", name)
}

func (d Dialect) valid() bool {
	switch d {
	case Postgres, MySQL, MariaDB, SQLite:
		return true
	}
	return false
}

// QuoteIdent quotes one identifier exactly as it is: case, dots and quotes inside it survive.
func (d Dialect) QuoteIdent(name string) string {
	if d == MySQL || d == MariaDB {
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// QuoteTable quotes a table's name that may carry its schema (its database on MySQL):
// outbox_events, app.outbox_events. A part that itself holds a dot stands in double quotes or
// backticks, with a quote inside it doubled: `cap.published` is one name, "Sales"."Out.Box" are
// two. Case is kept, so names are written as the catalogue shows them. An empty part, an unfinished
// quote or more than two parts is an error.
func (d Dialect) QuoteTable(name string) (string, error) {
	parts, err := SplitTable(name)
	if err != nil {
		return "", err
	}
	for i, part := range parts {
		parts[i] = d.QuoteIdent(part)
	}
	return strings.Join(parts, "."), nil
}

// SplitTable reads a table's name as QuoteTable does and returns its one or two parts without
// quotes, the table last.
func SplitTable(name string) ([]string, error) {
	var parts []string
	rest := name
	for {
		part, after, err := cutIdent(rest)
		if err != nil {
			return nil, fmt.Errorf("table name %q: %w", name, err)
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		rest = after[1:] // cutIdent stops at a dot or at the end
	}
	if len(parts) > 2 {
		return nil, fmt.Errorf("table name %q: has %d parts, want table or schema.table; quote a part that contains a dot", name, len(parts))
	}
	return parts, nil
}

// cutIdent takes the first identifier off s; after is empty or begins with the dot that ended it.
func cutIdent(s string) (ident, after string, err error) {
	if s == "" {
		return "", "", fmt.Errorf("has an empty part")
	}
	quote := s[0]
	if quote != '"' && quote != '`' {
		ident, _, _ = strings.Cut(s, ".")
		if ident == "" {
			return "", "", fmt.Errorf("has an empty part")
		}
		return ident, s[len(ident):], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != quote:
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == quote:
			b.WriteByte(quote)
			i++
		case b.Len() == 0:
			return "", "", fmt.Errorf("has an empty part")
		case i+1 < len(s) && s[i+1] != '.':
			return "", "", fmt.Errorf("has text after a closing quote")
		default:
			return b.String(), s[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("has a quote that does not end")
}
