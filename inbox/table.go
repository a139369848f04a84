package inbox

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// table knows the statements for one inbox table.
type table struct {
	dialect        outbox.Dialect
	name           string // as the options give it
	bare           string // without its schema
	group, eventID string
	set            map[string]string
	alone          bool
}

func newTable(d outbox.Dialect, o Options) table {
	parts, _ := outbox.SplitTable(o.Table)
	return table{
		dialect: d, name: o.Table, bare: parts[len(parts)-1],
		group: o.Columns.ConsumerGroup, eventID: o.Columns.EventID, set: o.Set, alone: o.EventIDAlone,
	}
}

// insert notes an event. PostgreSQL must not see an error, which would abort the transaction, and
// naming the key makes it and SQLite refuse a table where a repetition would go unnoticed. MySQL
// gets a plain INSERT whose duplicate error spoils nothing: IGNORE would hide other errors too, and
// the count of ON DUPLICATE KEY UPDATE says nothing under CLIENT_FOUND_ROWS.
func (t *table) insert() string {
	columns := t.dialect.QuoteIdent(t.group) + ", " + t.dialect.QuoteIdent(t.eventID)
	values := "?, ?"
	if t.dialect == outbox.Postgres {
		values = "$1, $2"
	}
	conflict := ""
	switch {
	case t.alone:
		conflict = " ON CONFLICT (" + t.dialect.QuoteIdent(t.eventID) + ") DO NOTHING"
	case t.dialect == outbox.Postgres || t.dialect == outbox.SQLite:
		conflict = " ON CONFLICT (" + columns + ") DO NOTHING"
	}
	for _, column := range slices.Sorted(maps.Keys(t.set)) {
		columns += ", " + t.dialect.QuoteIdent(column)
		values += ", " + t.set[column]
	}
	quoted, _ := t.dialect.QuoteTable(t.name)
	return "INSERT INTO " + quoted + " (" + columns + ") VALUES (" + values + ")" + conflict
}

// selectOwn is run for its row count, which PostgreSQL reports for a SELECT too.
func (t *table) selectOwn() string {
	quoted, _ := t.dialect.QuoteTable(t.name)
	return "SELECT 1 FROM " + quoted + " WHERE " + t.dialect.QuoteIdent(t.group) + " = $1 AND " +
		t.dialect.QuoteIdent(t.eventID) + " = $2"
}

// isDuplicate knows MySQL's error 1062, whose text reads "... 'GROUP-ID' ... 'KEY'" in every language,
// with KEY as table.key on MySQL 8. A key of another table, hit by a trigger, is not ours.
func (t *table) isDuplicate(err error, group, eventID string) bool {
	if t.dialect != outbox.MySQL && t.dialect != outbox.MariaDB {
		return false
	}
	text := err.Error()
	at := strings.Index(text, "Error 1062")
	if at < 0 {
		return false
	}
	text = text[at:]
	if quoted := strings.Split(text, "'"); len(quoted) > 2 {
		key := quoted[len(quoted)-2]
		if strings.Contains(key, ".") && !strings.HasPrefix(key, t.bare+".") {
			return false
		}
	}
	return strings.Contains(text, "'"+group+"-") || strings.Contains(text, "'"+eventID+"-")
}

// lacksKey knows the refusal of ON CONFLICT (columns) on a table without that unique key.
func (t *table) lacksKey(err error) bool {
	var pg interface{ SQLState() string }
	if errors.As(err, &pg) {
		return pg.SQLState() == "42P10"
	}
	return strings.Contains(err.Error(), "does not match any PRIMARY KEY or UNIQUE constraint")
}
