package postgres

import (
	"context"
	"fmt"
)

// Identity names the table wherever it is reached from: relays that share an outbox by lanes must be on the same.
// The system identifier stays with a database cluster through restarts and fail-overs to its replicas.
func (s *Store) Identity(ctx context.Context) (string, error) {
	var system, database, table string
	err := s.db.pool.QueryRow(ctx, `SELECT (SELECT system_identifier::text FROM pg_control_system()), current_database(),
		(SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1)`,
		s.layout.catalog.oid).Scan(&system, &database, &table)
	if err != nil {
		return "", fmt.Errorf("ask which table this is: %w", err)
	}
	return fmt.Sprintf("PostgreSQL %s, database %s, table %s", system, database, table), nil
}
