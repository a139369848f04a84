package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// column is a column as the catalogue describes it.
type column struct {
	name      string
	kind      string // the type's name in pg_type, of domains the base type's
	sqlType   string // for casts, with its length
	typmod    int32
	enum      []string // labels, in order
	notNull   bool
	identity  string // "a" always, "d" by default, ""
	fallback  bool   // it has a default
	canSelect bool
	canUpdate bool
}

// maxChars is the length of a varchar(n) or char(n), 0 without limit.
func (c column) maxChars() int {
	if (c.kind == "varchar" || c.kind == "bpchar") && c.typmod > 4 {
		return int(c.typmod - 4)
	}
	return 0
}

// sequence is where a column's default takes its numbers.
type sequence struct {
	oid              uint32
	cache, increment int64
	cycle            bool
	named            string
}

// index is the columns of an index in order, expressions as "", and its predicate.
type index struct {
	columns []string
	partial bool
	unique  bool
}

// catalog is what the server knows of the table.
type catalog struct {
	oid         uint32
	schema      string
	table       string
	kind        string // relkind
	database    uint32
	columns     []column
	sequence    *sequence
	indexes     []index
	checks      []check
	user        string
	canDelete   bool
	rowSecurity bool
	zone        string // the session's default TimeZone
	encoding    string // the database's
	recovery    bool
	readOnly    bool
}

// check is a CHECK constraint over one column.
type check struct{ name, column, expr string }

func (c *catalog) column(name string) (column, bool) {
	i := slices.IndexFunc(c.columns, func(col column) bool { return col.name == name })
	if i < 0 {
		return column{}, false
	}
	return c.columns[i], true
}

func (c *catalog) columnNames() string {
	names := make([]string, len(c.columns))
	for i := range c.columns {
		names[i] = c.columns[i].name
	}
	return strings.Join(names, ", ")
}

// quoted is the table's name for SQL, with its schema: later changes of search_path do not matter.
func (c *catalog) quoted() string { return quote(c.schema) + "." + quote(c.table) }

func quote(name string) string { return outbox.Postgres.QuoteIdent(name) }

// lit quotes a text as an SQL literal.
func lit(s string) string {
	text := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(text, `\`, `\\`)
	}
	return text
}

// readCatalog finds the table and reads all that matters of it.
func readCatalog(ctx context.Context, conn *pgx.Conn, name string) (*catalog, error) {
	quoted, err := outbox.Postgres.QuoteTable(name)
	if err != nil {
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "outbox.table", Reason: err.Error(),
			Fix: "write it as table or schema.table, parts with dots in double quotes"}
	}
	c := &catalog{}
	var oid *uint32
	err = conn.QueryRow(ctx, `SELECT to_regclass($1::text)::oid, current_user::text, current_setting('TimeZone'),
		pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',
		(SELECT oid FROM pg_database WHERE datname = current_database()), current_setting('server_encoding')`, quoted).
		Scan(&oid, &c.user, &c.zone, &c.recovery, &c.readOnly, &c.database, &c.encoding)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codePrivilege {
		return nil, &relay.SetupError{Kind: relay.SetupPermission, Thing: "table " + quoted, Reason: pg.Message,
			Fix: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO the user of database.url", quote(strings.Split(name, ".")[0])), Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("look for table %s: %w", quoted, err)
	}
	if oid == nil {
		return nil, missingTable(ctx, conn, name, quoted)
	}
	c.oid = *oid
	for _, part := range []func(context.Context, *pgx.Conn) error{
		c.readTable, c.readColumns, c.readIndexes, c.readChecks,
	} {
		if err := part(ctx, conn); err != nil {
			return nil, fmt.Errorf("read the catalogue of table %s: %w", quoted, err)
		}
	}
	return c, nil
}

func (c *catalog) readTable(ctx context.Context, conn *pgx.Conn) error {
	return conn.QueryRow(ctx, `SELECT n.nspname::text, t.relname::text, t.relkind::text,
		has_table_privilege(t.oid, 'DELETE'), row_security_active(t.oid)
		FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE t.oid = $1::oid`, c.oid).
		Scan(&c.schema, &c.table, &c.kind, &c.canDelete, &c.rowSecurity)
}

func (c *catalog) readColumns(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT a.attname::text, coalesce(b.typname, y.typname)::text,
		format_type(a.atttypid, a.atttypmod), coalesce(nullif(y.typtypmod, -1), a.atttypmod),
		coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = y.oid), '{}'),
		a.attnotnull OR y.typnotnull, a.attidentity::text, a.atthasdef,
		has_column_privilege(a.attrelid, a.attnum, 'SELECT'), has_column_privilege(a.attrelid, a.attnum, 'UPDATE')
		FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = nullif(y.typbasetype, 0)
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, c.oid)
	if err != nil {
		return err
	}
	c.columns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (col column, err error) {
		err = row.Scan(&col.name, &col.kind, &col.sqlType, &col.typmod, &col.enum, &col.notNull,
			&col.identity, &col.fallback, &col.canSelect, &col.canUpdate)
		return col, err
	})
	return err
}

// readSequence finds the sequence behind a column's identity or default.
func (c *catalog) readSequence(ctx context.Context, conn *pgx.Conn, column string) error {
	var s sequence
	err := conn.QueryRow(ctx, `SELECT s.seqrelid, s.seqcache, s.seqincrement, s.seqcycle, s.seqrelid::regclass::text
		FROM pg_attribute a
		LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
		JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
				AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND d.deptype = 'i'
			OR d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
		JOIN pg_sequence s ON s.seqrelid = CASE WHEN d.deptype = 'i' THEN d.objid ELSE d.refobjid END
		WHERE a.attrelid = $1::oid AND a.attname = $2::text`, c.oid, column).
		Scan(&s.oid, &s.cache, &s.increment, &s.cycle, &s.named)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	c.sequence = &s
	return err
}

func (c *catalog) readIndexes(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT ARRAY(SELECT coalesce(a.attname::text, '') FROM unnest(x.indkey[0:x.indnkeyatts - 1]) WITH ORDINALITY k(n, o)
			LEFT JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.n AND k.n > 0 ORDER BY k.o),
		x.indpred IS NOT NULL, x.indisunique
		FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam
		WHERE x.indrelid = $1::oid AND x.indisvalid AND m.amname = 'btree'`, c.oid)
	if err != nil {
		return err
	}
	c.indexes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (x index, err error) {
		err = row.Scan(&x.columns, &x.partial, &x.unique)
		return x, err
	})
	return err
}

func (c *catalog) readChecks(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT k.conname::text, a.attname::text, pg_get_expr(k.conbin, k.conrelid)
		FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[1]
		WHERE k.conrelid = $1::oid AND k.contype = 'c' AND cardinality(k.conkey) = 1`, c.oid)
	if err != nil {
		return err
	}
	c.checks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k check, err error) {
		err = row.Scan(&k.name, &k.column, &k.expr)
		return k, err
	})
	return err
}

// missingTable names what there is nearby.
func missingTable(ctx context.Context, conn *pgx.Conn, name, quoted string) error {
	parts, _ := outbox.SplitTable(name)
	last := parts[len(parts)-1]
	e := &relay.SetupError{Kind: relay.SetupNotFound, Thing: "table " + quoted, Reason: "does not exist",
		Fix: "run postrider schema apply, or set outbox.table"}
	rows, err := conn.Query(ctx, `SELECT n.nspname || '.' || t.relname FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
		WHERE t.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
			AND (lower(t.relname) = lower($1::text) OR t.relname ILIKE '%outbox%') AND t.relname <> 'outbox_cursor'
		ORDER BY pg_table_is_visible(t.oid) DESC, lower(t.relname) = lower($1::text) DESC, 1 LIMIT 5`, last)
	if err != nil {
		return e
	}
	near, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(near) > 0 {
		e.Reason += " in the search path (this database has " + strings.Join(near, ", ") + ")"
	}
	return e
}
