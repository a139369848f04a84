package sqlite

import (
	"context"
	"fmt"
	"path/filepath"
)

// Identity names the table: relays that share an outbox by lanes must be on the same.
func (s *Store) Identity(context.Context) (string, error) {
	path, err := filepath.Abs(s.loc.path)
	if err != nil {
		return "", fmt.Errorf("ask which table this is: %w", err)
	}
	return fmt.Sprintf("SQLite %s, table %s", path, s.table.Load().table), nil
}
