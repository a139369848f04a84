package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// catalog is what the file says about one table.
type catalog struct {
	name    string // as the file spells it
	create  string // the CREATE statement
	columns []column
	indexes []index
}

type column struct {
	name     string
	declared string // upper case, may be empty
	notNull  bool
	pk       int // place in the primary key, from 1; 0 outside
	fallback sql.NullString
}

type index struct {
	name    string
	unique  bool
	partial bool
	columns []string // "" for an expression
}

// readCatalog looks the table up. found is false when there is none; near lists what there is.
func readCatalog(ctx context.Context, db *sql.DB, spec string) (c catalog, found bool, near []string, err error) {
	parts, err := outbox.SplitTable(spec)
	if err != nil {
		return c, false, nil, usage("outbox.table", err.Error(), "write the table's name as the database spells it")
	}
	if len(parts) == 2 && !strings.EqualFold(parts[0], "main") {
		return c, false, nil, usage("outbox.table", fmt.Sprintf("schema %q is not this file's", parts[0]),
			"name the table alone: an attached database is not seen by the relay")
	}
	want := parts[len(parts)-1]
	rows, err := db.QueryContext(ctx, `SELECT type, name, coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name`)
	if err != nil {
		return c, false, nil, fmt.Errorf("list tables: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, create string
		if err := rows.Scan(&kind, &name, &create); err != nil {
			return c, false, nil, fmt.Errorf("list tables: %w", err)
		}
		near = append(near, name)
		if strings.EqualFold(name, want) {
			if kind == "view" {
				return c, false, nil, usage(fmt.Sprintf("table %q", name), "is a view", "name the table behind it")
			}
			c.name, c.create, found = name, create, true
		}
	}
	if err := rows.Err(); err != nil || !found {
		return c, false, near, err
	}
	if err := c.readColumns(ctx, db); err != nil {
		return c, false, nil, err
	}
	return c, true, nil, c.readIndexes(ctx, db)
}

func (c *catalog) readColumns(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT name, upper(type), "notnull", pk, dflt_value FROM pragma_table_xinfo(?) WHERE hidden <> 1`, c.name)
	if err != nil {
		return fmt.Errorf("list columns: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var col column
		if err := rows.Scan(&col.name, &col.declared, &col.notNull, &col.pk, &col.fallback); err != nil {
			return fmt.Errorf("list columns: %w", err)
		}
		c.columns = append(c.columns, col)
	}
	return rows.Err()
}

func (c *catalog) readIndexes(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT l.name, l."unique", l.partial, coalesce(i.name, '')
FROM pragma_index_list(?) l JOIN pragma_index_info(l.name) i ORDER BY l.seq, i.seqno`, c.name)
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var ix index
		var col string
		if err := rows.Scan(&ix.name, &ix.unique, &ix.partial, &col); err != nil {
			return fmt.Errorf("list indexes: %w", err)
		}
		if n := len(c.indexes); n > 0 && c.indexes[n-1].name == ix.name {
			c.indexes[n-1].columns = append(c.indexes[n-1].columns, col)
			continue
		}
		ix.columns = []string{col}
		c.indexes = append(c.indexes, ix)
	}
	return rows.Err()
}

// column finds a column without regard to case, as SQLite does.
func (c *catalog) column(name string) (column, bool) {
	for _, col := range c.columns {
		if strings.EqualFold(col.name, name) {
			return col, true
		}
	}
	return column{}, false
}

func (c *catalog) columnNames() string {
	names := make([]string, len(c.columns))
	for i, col := range c.columns {
		names[i] = col.name
	}
	return strings.Join(names, ", ")
}

// unique says whether no two rows have the same value in the column.
func (c *catalog) unique(name string) bool {
	var keys int
	for _, col := range c.columns {
		if col.pk > 0 {
			keys++
		}
	}
	if col, ok := c.column(name); ok && col.pk > 0 && keys == 1 {
		return true
	}
	for _, ix := range c.indexes {
		if ix.unique && !ix.partial && len(ix.columns) == 1 && strings.EqualFold(ix.columns[0], name) {
			return true
		}
	}
	return false
}

// rowids says whether the table has row ids, and whether they are never handed out twice.
func (c *catalog) rowids() (has, declared, autoincrement bool) {
	text := strings.ToUpper(stripComments(c.create))
	if i := strings.LastIndexByte(text, ')'); i >= 0 && strings.Contains(strings.Join(strings.Fields(text[i:]),
		" "), "WITHOUT ROWID") {
		return false, false, false
	}
	keys := 0
	for _, col := range c.columns {
		if col.pk > 0 {
			keys++
			declared = col.declared == "INTEGER"
		}
	}
	declared = declared && keys == 1
	return true, declared, declared && strings.Contains(text, "AUTOINCREMENT")
}

// stripComments takes -- and /* */ comments out of a statement, so that a word in them does not count.
func stripComments(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		switch {
		case strings.HasPrefix(s[i:], "--"):
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				return b.String()
			}
			i += end
		case strings.HasPrefix(s[i:], "/*"):
			end := strings.Index(s[i+2:], "*/")
			if end < 0 {
				return b.String()
			}
			i += end + 4
		case s[i] == '\'' || s[i] == '"' || s[i] == '`':
			end := i + 1
			for end < len(s) && s[end] != s[i] {
				end++
			}
			end = min(end+1, len(s))
			b.WriteString(s[i:end])
			i = end
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return b.String()
}
