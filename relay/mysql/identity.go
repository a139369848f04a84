package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "github.com/go-sql-driver/mysql"
)

// Identity names the table wherever it is reached from: relays that share an outbox by lanes must be on the same.
// A server's UUID is not its own for long, a replica that takes over has another; the moment when the product's
// schema was made travels with the data.
func (s *Store) Identity(ctx context.Context) (string, error) {
	var database string
	if err := s.db.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return "", fmt.Errorf("ask which table this is: %w", err)
	}
	id := fmt.Sprintf("MySQL database %s, table %s", database, s.table.Load().table)
	var made string
	err := s.db.QueryRowContext(ctx, "SELECT CAST(applied_at AS CHAR) FROM postrider_schema WHERE version = 1").Scan(&made)
	var refused *driver.MySQLError
	switch {
	case err == nil:
		return id + ", made " + made, nil
	case errors.Is(err, sql.ErrNoRows), errors.As(err, &refused): // another's table
		return id, nil
	}
	return "", fmt.Errorf("ask which table this is: %w", err)
}
