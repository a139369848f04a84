package outbox

import (
	"slices"
	"strconv"
	"strings"
)

// field is what the writer fills of a row, in the order of the statement's columns.
type field int

const (
	idField field = iota
	aggregateTypeField
	aggregateIDField
	typeField
	topicField
	keyField
	payloadField
	headersField
	fieldCount
)

// Limits of one statement. The byte limit keeps a statement below the smallest max_allowed_packet
// that servers are run with; a larger row goes alone.
const (
	maxParams         = 65535 // PostgreSQL's and MySQL's protocols count parameters in 16 bits
	maxParamsSQLite   = 32766
	maxStatementBytes = 1 << 20
	rowOverheadBytes  = 64
)

// table knows how one outbox table is written: names quoted, types and limits settled.
type table struct {
	Options
	dialect Dialect
	name    string // as the options give it, for messages
	parts   []string
	columns [fieldCount]string // "" where the table has none
	prefix  string             // INSERT INTO t (a, b) VALUES
	fields  []field
	suffix  string // the expressions of Options.Set, each after a comma
	single  string // the whole statement for one row, the usual case
	json    *jsonLimits
}

// row is one validated event, ready to be bound.
type row struct {
	id    string
	bytes int
	args  [fieldCount]any
}

func newTable(d Dialect, o Options) table {
	t := table{Options: o, dialect: d, name: o.Table, json: jsonLimitsOf(d, o.PayloadType)}
	t.parts, _ = SplitTable(o.Table)
	c := o.Columns
	t.columns = [fieldCount]string{
		c.EventID, c.AggregateType, c.AggregateID, c.EventType, c.Topic, c.MessageKey, c.Payload, c.Headers,
	}
	var names []string
	for f, column := range t.columns {
		if column == Omit {
			t.columns[f] = ""
			continue
		}
		t.fields = append(t.fields, field(f))
		names = append(names, d.QuoteIdent(column))
	}
	for _, column := range sortedKeys(o.Set) {
		names = append(names, d.QuoteIdent(column))
		t.suffix += ", " + o.Set[column]
	}
	quoted, _ := d.QuoteTable(o.Table)
	t.prefix = "INSERT INTO " + quoted + " (" + strings.Join(names, ", ") + ") VALUES "
	t.single = t.insertText(1)
	return t
}

func (t *table) has(f field) bool { return t.columns[f] != "" }

// fit returns how many of the rows go into one statement, at least one.
func (t *table) fit(rows []row) int {
	limit := maxParams
	if t.dialect == SQLite {
		limit = maxParamsSQLite
	}
	limit = min(len(rows), limit/len(t.fields))
	bytes := 0
	for n := range limit {
		bytes += rows[n].bytes
		if n > 0 && bytes > maxStatementBytes {
			return n
		}
	}
	return limit
}

// insert returns the statement for rows and its arguments.
func (t *table) insert(rows []row) (query string, args []any) {
	args = make([]any, 0, len(rows)*len(t.fields))
	for i := range rows {
		for _, f := range t.fields {
			args = append(args, rows[i].args[f])
		}
	}
	if len(rows) == 1 {
		return t.single, args
	}
	return t.insertText(len(rows)), args
}

// insertText needs no casts: every driver leaves a parameter's type to the server, which takes the
// column's, whatever the query mode.
func (t *table) insertText(rows int) string {
	params := 0
	var b strings.Builder
	b.Grow(len(t.prefix) + rows*(len(t.fields)*8+len(t.suffix)+4))
	b.WriteString(t.prefix)
	for r := range rows {
		if r > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for i := range t.fields {
			if i > 0 {
				b.WriteString(", ")
			}
			params++
			if t.dialect != Postgres {
				b.WriteByte('?')
				continue
			}
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(params))
		}
		b.WriteString(t.suffix)
		b.WriteByte(')')
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
