package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// Apply brings the tables in the connection's current schema (PostgreSQL) or database (MySQL) up to
// the newest version and returns the names of the files it ran, none when all was there. It may run
// twice, and from several processes at once: they take turns under a lock of the database. On
// PostgreSQL and SQLite all of it commits together; MySQL commits each statement, and what an
// interrupted run left is completed by the next.
//
// errors.As finds a *PermissionError when a right is missing and a *ConflictError when a table of
// that name is not ours.
func Apply(ctx context.Context, db *sql.DB, d outbox.Dialect) (applied []string, err error) {
	steps, err := stepsOf(d)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, db, d)
	if err != nil {
		return nil, fmt.Errorf("apply schema: %w", err)
	}
	defer s.close()
	applied, err = s.apply(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("apply schema: %w", s.explain(ctx, err))
	}
	if err := s.commit(ctx); err != nil {
		return nil, fmt.Errorf("apply schema: commit: %w", err)
	}
	return applied, nil
}

func (s *session) apply(ctx context.Context, steps []step) (applied []string, err error) {
	installed, err := s.version(ctx)
	if err != nil {
		return nil, err
	}
	if installed > len(steps) {
		return nil, fmt.Errorf("the database has version %d and this program knows %d: use a newer program", installed, len(steps))
	}
	if installed == len(steps) {
		return nil, nil
	}
	if err := s.precheck(ctx, installed); err != nil {
		return nil, err
	}
	for _, step := range steps[installed:] {
		for _, statement := range step.statements() {
			if _, err := s.conn.ExecContext(ctx, statement); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", step.name, firstLine(statement), err)
			}
		}
		applied = append(applied, step.name)
	}
	return applied, nil
}

// precheck finds before the first statement what would stop a later one.
func (s *session) precheck(ctx context.Context, installed int) error {
	if installed == 0 {
		for _, t := range s.tables() {
			have, err := s.columns(ctx, t.name)
			if err != nil {
				return err
			}
			if missing := t.missing(have); len(have) > 0 && len(missing) > 0 {
				return &ConflictError{Table: t.name, Missing: missing}
			}
		}
	}
	if s.dialect != outbox.Postgres {
		return nil
	}
	var schema sql.NullString
	var user string
	var may sql.NullBool
	err := s.conn.QueryRowContext(ctx, `SELECT current_schema(), current_user,
		has_schema_privilege(current_schema(), 'CREATE')`).Scan(&schema, &user, &may)
	if err != nil {
		return err
	}
	if !schema.Valid {
		return fmt.Errorf("no schema of the search_path exists: create one, or name it in the URL (?search_path=...)")
	}
	if !may.Bool {
		return s.lacks("CREATE", "CREATE", "schema "+s.dialect.QuoteIdent(schema.String), user, nil)
	}
	return nil
}

// firstLine names a statement in an error: CREATE TABLE IF NOT EXISTS outbox_events.
func firstLine(statement string) string {
	line, _, _ := strings.Cut(statement, "\n")
	return strings.TrimRight(line, " (")
}

func (t table) missing(have []string) []string {
	present := map[string]bool{}
	for _, column := range have {
		present[strings.ToLower(column)] = true
	}
	var missing []string
	for _, column := range t.columns {
		if !present[column] {
			missing = append(missing, column)
		}
	}
	return missing
}
