package app

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // database/sql driver "sqlite"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/mysql"
	"github.com/postrider/postrider/relay/postgres"
)

// FileMode says whether a SQLite file that does not exist is made.
type FileMode string

// The modes.
const (
	CreateFile   FileMode = "rwc"
	ExistingFile FileMode = "rw"
)

// OpenDatabase connects to a database URL for work on tables rather than events. Why it cannot, it says as
// OpenStore does; errors never hold the URL. A context that ended is returned as it is.
func OpenDatabase(ctx context.Context, raw string, mode FileMode) (*sql.DB, error) {
	scheme, _, _ := strings.Cut(raw, ":")
	switch scheme {
	case "postgres", "postgresql":
		return postgres.OpenDB(ctx, raw)
	case "mysql", "mariadb":
		return mysql.OpenDB(ctx, raw)
	case "sqlite":
		return openSQLite(ctx, raw, mode)
	}
	return nil, unknownScheme(scheme)
}

func openSQLite(ctx context.Context, raw string, mode FileMode) (*sql.DB, error) {
	escaped, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(raw, "sqlite:"), "//"), "?")
	path, err := url.PathUnescape(escaped)
	if err != nil || path == "" {
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url", Reason: "cannot be used for SQLite",
			Fix: "check the file's name, where % is written %25"}
	}
	missing := &relay.SetupError{Kind: relay.SetupNotFound, Thing: "database file " + path, Reason: "does not exist"}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			missing.Reason, missing.Fix = "its directory does not exist", "make it, or correct database.url"
			return nil, missing
		}
		if mode == ExistingFile {
			missing.Fix = "postrider schema apply makes it"
			return nil, missing
		}
	}
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	file.RawQuery = url.Values{"mode": {string(mode)}, "_pragma": {"busy_timeout(10000)"}}.Encode()
	db, err := sql.Open("sqlite", file.String())
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err != nil {
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "database file " + path, Reason: err.Error(),
			Fix: "let this user read and write the file and its directory, and check that it is a SQLite database", Err: err}
	}
	return db, nil
}
