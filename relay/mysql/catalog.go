package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// catalog is what the server says about one table.
type catalog struct {
	schema, name string
	columns      []column
	indexes      []index
	checks       []string // clauses of CHECK constraints
}

type column struct {
	name      string
	dataType  string // lower case: bigint, varchar, json, …
	fullType  string // enum('A','B'), bigint unsigned, …
	nullable  bool
	length    int64 // characters, of text; 0 otherwise
	precision int   // digits of seconds, of times
	charset   string
	anyCase   bool // its collation does not tell A from a
}

type index struct {
	name    string
	unique  bool
	columns []string
}

func ident(name string) string { return outbox.MySQL.QuoteIdent(name) }

// readCatalog looks the table up. It asks the table itself first, since the catalogue hides what the
// user may not see.
func readCatalog(ctx context.Context, db *sql.DB, s server, spec string) (catalog, error) {
	parts, err := outbox.SplitTable(spec)
	if err != nil {
		return catalog{}, usage("outbox.table", err.Error(), "write the table's name as the database spells it")
	}
	c := catalog{schema: s.database, name: parts[len(parts)-1]}
	if len(parts) == 2 {
		c.schema = parts[0]
	}
	err = readable(ctx, db, "SELECT 1 FROM "+c.table()+" LIMIT 0")
	switch number(err) {
	case 0:
	case errNoTable, errUnknownDatabase:
		return c, c.missing(ctx, db)
	case errNoTableRight, errNoColumnRight, errNoDatabaseRight:
		return c, c.right(s, "may not be read", "SELECT, UPDATE", err)
	}
	if err != nil {
		return c, fmt.Errorf("look at table %s: %w", c.table(), err)
	}
	for _, read := range []func(context.Context, *sql.DB) error{c.readKind, c.readColumns, c.readIndexes, c.readChecks} {
		if err := read(ctx, db); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *catalog) table() string { return ident(c.schema) + "." + ident(c.name) }

// right is a set-up error about a missing right, with the statement that gives it.
func (c *catalog) right(s server, reason, rights string, err error) error {
	return &relay.SetupError{Kind: relay.SetupPermission, Thing: "table " + c.table(), Reason: reason, Err: err,
		Fix: fmt.Sprintf("GRANT %s ON %s TO %s", rights, c.table(), s.user)}
}

func (c *catalog) missing(ctx context.Context, db *sql.DB) error {
	e := &relay.SetupError{Kind: relay.SetupNotFound, Thing: "table " + c.table(), Reason: "does not exist",
		Fix: "run postrider schema apply, or set outbox.table"}
	rows, err := db.QueryContext(ctx, `SELECT table_name FROM information_schema.tables WHERE table_schema = ?
ORDER BY table_name LIKE '%outbox%' DESC, table_name LIMIT 8`, c.schema)
	if err != nil {
		return e
	}
	defer rows.Close()
	var near []string
	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil {
			near = append(near, name)
		}
	}
	if rows.Err() == nil && len(near) > 0 {
		e.Reason += " (the database has " + strings.Join(near, ", ") + ")"
	}
	return e
}

// readKind wants a table whose rows belong to their transaction.
func (c *catalog) readKind(ctx context.Context, db *sql.DB) error {
	var kind string
	var engine sql.NullString
	err := db.QueryRowContext(ctx, "SELECT table_type, engine FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", c.schema, c.name).
		Scan(&kind, &engine)
	switch {
	case errors.Is(err, sql.ErrNoRows): // lower_case_table_names may differ: the table was readable a moment ago
		return c.readRealName(ctx, db)
	case err != nil:
		return fmt.Errorf("look at table %s: %w", c.table(), err)
	case kind != "BASE TABLE":
		return usage("table "+c.table(), "is a "+strings.ToLower(kind), "name the table behind it")
	case engine.String != "InnoDB":
		return usage("table "+c.table(), fmt.Sprintf("uses the engine %s, which does not roll back: events of failed transactions would be sent", engine.String),
			"ALTER TABLE "+c.table()+" ENGINE = InnoDB")
	}
	return nil
}

func (c *catalog) readRealName(ctx context.Context, db *sql.DB) error {
	var schema, name string
	err := db.QueryRowContext(ctx, "SELECT table_schema, table_name FROM information_schema.tables WHERE lower(table_schema) = lower(?) AND lower(table_name) = lower(?)",
		c.schema, c.name).Scan(&schema, &name)
	if err != nil || schema == c.schema && name == c.name {
		return fmt.Errorf("look at table %s: the catalogue does not show it", c.table())
	}
	c.schema, c.name = schema, name
	return c.readKind(ctx, db)
}

func (c *catalog) readColumns(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT column_name, lower(data_type), column_type, is_nullable = 'YES',
coalesce(character_maximum_length, 0), coalesce(datetime_precision, 0), coalesce(character_set_name, ''),
coalesce(collation_name LIKE '%\_ci', FALSE)
FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`, c.schema, c.name)
	if err != nil {
		return fmt.Errorf("list columns of %s: %w", c.table(), err)
	}
	defer rows.Close()
	for rows.Next() {
		var col column
		if err := rows.Scan(&col.name, &col.dataType, &col.fullType, &col.nullable, &col.length, &col.precision, &col.charset, &col.anyCase); err != nil {
			return fmt.Errorf("list columns of %s: %w", c.table(), err)
		}
		c.columns = append(c.columns, col)
	}
	return rows.Err()
}

// readIndexes keeps usable indexes over whole ascending columns, up to the first part that is not one.
// SHOW INDEX names the last columns differently on the two servers.
func (c *catalog) readIndexes(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SHOW INDEX FROM "+c.table())
	if err != nil {
		return fmt.Errorf("list indexes of %s: %w", c.table(), err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return fmt.Errorf("list indexes of %s: %w", c.table(), err)
	}
	cut := map[string]bool{}
	for rows.Next() {
		values, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return fmt.Errorf("list indexes of %s: %w", c.table(), err)
		}
		field := func(name string) sql.NullString { return values[max(slices.Index(names, name), 0)] }
		if slices.Contains(names, "Visible") && field("Visible").String == "NO" ||
			slices.Contains(names, "Ignored") && field("Ignored").String == "YES" || field("Index_type").String != "BTREE" {
			continue
		}
		name := field("Key_name").String
		if len(c.indexes) == 0 || c.indexes[len(c.indexes)-1].name != name {
			c.indexes = append(c.indexes, index{name: name, unique: field("Non_unique").String == "0"})
		}
		ix := &c.indexes[len(c.indexes)-1]
		if cut[name] || field("Sub_part").Valid || field("Collation").String != "A" || !field("Column_name").Valid {
			cut[name], ix.unique = true, false
			continue
		}
		ix.columns = append(ix.columns, field("Column_name").String)
	}
	return rows.Err()
}

// readChecks reads CHECK clauses. A server that does not show them to this user has none for us.
func (c *catalog) readChecks(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT cc.check_clause FROM information_schema.check_constraints cc
JOIN information_schema.table_constraints tc ON tc.constraint_schema = cc.constraint_schema AND tc.constraint_name = cc.constraint_name
WHERE tc.table_schema = ? AND tc.table_name = ? AND tc.constraint_type = 'CHECK'`, c.schema, c.name)
	if err != nil {
		return ctx.Err()
	}
	defer rows.Close()
	for rows.Next() {
		var clause string
		if err := rows.Scan(&clause); err != nil {
			return fmt.Errorf("list checks of %s: %w", c.table(), err)
		}
		// MySQL shows the quotes of its literals with backslashes.
		c.checks = append(c.checks, strings.ReplaceAll(clause, `\'`, `'`))
	}
	return rows.Err()
}

// column finds a column without regard to case, as the servers do.
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
	return slices.ContainsFunc(c.indexes, func(ix index) bool {
		return ix.unique && len(ix.columns) == 1 && strings.EqualFold(ix.columns[0], name)
	})
}

// starts says whether the index begins with these columns.
func (ix *index) starts(columns ...string) bool {
	if len(ix.columns) < len(columns) {
		return false
	}
	for i, name := range columns {
		if !strings.EqualFold(ix.columns[i], name) {
			return false
		}
	}
	return true
}

// readable runs a query that returns no rows and says whether the server lets this user ask it.
func readable(ctx context.Context, db *sql.DB, query string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	rows.Next()
	return rows.Err()
}
