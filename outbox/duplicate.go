package outbox

import (
	"errors"
	"reflect"
	"strings"
)

// duplicate turns a driver's error into a *DuplicateError when it says that one of the rows has an
// event id which the table already holds, and returns nil otherwise. No driver is imported: errors
// are known by their methods, fields and texts. A unique constraint of another table, hit by a
// trigger for example, is not taken for ours as far as the error tells the two apart.
func (t *table) duplicate(err error, rows []row) error {
	if !t.has(idField) {
		return nil
	}
	var named string
	var ours bool
	switch t.dialect {
	case Postgres:
		named, ours = t.postgresDuplicate(err, rows)
	case MySQL, MariaDB:
		named, ours = t.mysqlDuplicate(err, rows)
	case SQLite:
		ours = t.sqliteDuplicate(err)
	}
	switch {
	case !ours:
		return nil
	case named != "":
		return &DuplicateError{EventIDs: []string{named}, Err: err}
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].id
	}
	return &DuplicateError{EventIDs: ids, Err: err}
}

// postgresDuplicate knows pgx's and lib/pq's errors by SQLState and their fields. The detail, which
// the server leaves out for a user without SELECT on the table, reads in every language
// "... (event_id)=(e-71) ...". A partition reports its own name, which must begin with the table's.
func (t *table) postgresDuplicate(err error, rows []row) (named string, ours bool) {
	var pg interface{ SQLState() string }
	if !errors.As(err, &pg) || pg.SQLState() != "23505" {
		return "", false
	}
	own := t.parts[len(t.parts)-1]
	if table := stringField(pg, "TableName", "Table"); table != "" && !strings.HasPrefix(table, own) {
		return "", false
	}
	detail := stringField(pg, "Detail")
	if detail == "" {
		return "", true
	}
	columns, values, found := strings.Cut(detail, ")=(")
	if !found || !hasWord(columns, t.columns[idField]) {
		return "", false
	}
	for i := range rows {
		if hasWord(values, rows[i].id) {
			return rows[i].id, true
		}
	}
	return "", true
}

// hasWord finds word in a list as PostgreSQL prints it: ended by a comma, a bracket or a quote.
func hasWord(list, word string) bool {
	for rest := list; ; {
		_, after, found := strings.Cut(rest, word)
		if !found {
			return false
		}
		before := list[:len(list)-len(after)-len(word)]
		if (before == "" || strings.ContainsAny(before[len(before)-1:], `( "`)) &&
			(after == "" || strings.ContainsAny(after[:1], `),"`)) {
			return true
		}
		rest = after
	}
}

// mysqlDuplicate knows error 1062, whose text reads in every language "... 'VALUE' ... 'KEY'" with
// KEY as table.key on MySQL 8 and key alone on MariaDB.
func (t *table) mysqlDuplicate(err error, rows []row) (named string, ours bool) {
	text := err.Error()
	at := strings.Index(text, "Error 1062")
	if at < 0 {
		return "", false
	}
	text = text[at:]
	own := t.parts[len(t.parts)-1]
	if quoted := strings.Split(text, "'"); len(quoted) > 2 {
		key := quoted[len(quoted)-2]
		if table, _, qualified := strings.Cut(key, "."); qualified && table != own && !strings.HasPrefix(key, own+".") {
			return "", false
		}
	}
	// On a partitioned table the key is longer than the event id: its values are joined by hyphens.
	for _, end := range []string{"'", "-"} {
		for i := range rows {
			if strings.Contains(text, "'"+rows[i].id+end) {
				return rows[i].id, true
			}
		}
	}
	// A binary id is not legible in the text.
	return "", t.EventIDType == UUIDBytes
}

// sqliteDuplicate knows the text "UNIQUE constraint failed: table.column, table.column (2067)".
func (t *table) sqliteDuplicate(err error) bool {
	_, list, failed := strings.Cut(err.Error(), "UNIQUE constraint failed: ")
	if !failed {
		return false
	}
	own := t.parts[len(t.parts)-1] + "." + t.columns[idField]
	for _, column := range strings.Split(list, ", ") {
		if column == own || strings.HasPrefix(column, own+" (") {
			return true
		}
	}
	return false
}

// stringField reads the first of the named string fields that an error's struct has.
func stringField(err any, names ...string) string {
	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return ""
	}
	for _, name := range names {
		if f := v.FieldByName(name); f.IsValid() && f.Kind() == reflect.String {
			return f.String()
		}
	}
	return ""
}
