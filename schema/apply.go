package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// Apply brings the tables in the connection's current schema (PostgreSQL) or database (MySQL) up to
// the newest version and returns the names of the files it ran, none when all was there. It looks at
// the tables, not only at the version noted: a table that was dropped is made again. It may run
// twice, and from several processes at once: they take turns under a lock of the database. On
// PostgreSQL and SQLite all of it commits together; MySQL commits each statement, and what an
// interrupted run left is completed by the next.
//
// errors.As finds a *PermissionError when a right is missing, a *ConflictError when a table of that
// name is not ours and an *IncompleteError when one of ours has lost columns.
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
	dropped, err := s.compare(ctx, steps, installed)
	if err != nil {
		return nil, err
	}
	first := installed
	if dropped {
		first = 0
	}
	if first == len(steps) {
		return nil, nil
	}
	if err := s.mayCreate(ctx); err != nil {
		return nil, err
	}
	for _, step := range steps[first:] {
		for _, statement := range step.statements() {
			if _, err := s.conn.ExecContext(ctx, statement); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", step.name, firstLine(statement), err)
			}
		}
		applied = append(applied, step.name)
	}
	return applied, nil
}

// compare finds before the first statement what would stop a later one, and whether a table of an
// installed version is gone. Columns that files not run yet would add are no matter here.
func (s *session) compare(ctx context.Context, steps []step, installed int) (dropped bool, err error) {
	for _, t := range s.tables() {
		have, err := s.columns(ctx, t.name)
		if err != nil {
			return false, err
		}
		missing := t.missing(have)
		switch {
		case len(have) == 0:
			dropped = dropped || installed == len(steps)
		case len(missing) > 0 && installed == 0:
			return false, &ConflictError{Table: t.name, Missing: missing}
		case len(missing) > 0 && installed == len(steps):
			return false, incomplete(s.dialect, steps, t.name, missing)
		}
	}
	return dropped, nil
}

// mayCreate looks up the right that PostgreSQL would ask for first.
func (s *session) mayCreate(ctx context.Context) error {
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
