package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // database/sql driver "sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/mysql"
	"github.com/postrider/postrider/relay/postgres"
)

// fileMode says whether a SQLite file that does not exist is made.
type fileMode string

const (
	createFile   fileMode = "rwc"
	existingFile fileMode = "rw"
)

// database connects to database.url for the verbs that work on tables rather than events.
func (c *cli) database(ctx context.Context, mode fileMode) (*sql.DB, outbox.Dialect, error) {
	loaded, err := c.load(needDatabase)
	if err != nil {
		return nil, "", err
	}
	d, err := urlDialect(loaded)
	if err != nil {
		return nil, "", err
	}
	db, err := openDatabase(ctx, d, loaded.DatabaseURL(), mode)
	return db, d, because(ctx, err)
}

// openDatabase connects. Errors never hold the URL.
func openDatabase(ctx context.Context, d outbox.Dialect, raw string, mode fileMode) (*sql.DB, error) {
	switch d {
	case outbox.Postgres:
		return postgres.OpenDB(ctx, raw)
	case outbox.SQLite:
		return openSQLite(ctx, raw, mode)
	default:
		return mysql.OpenDB(ctx, raw)
	}
}

func openSQLite(ctx context.Context, raw string, mode fileMode) (*sql.DB, error) {
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
		if mode == existingFile {
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
		return nil, &relay.SetupError{Kind: relay.SetupUsage, Thing: "database file " + path, Reason: oneLine(err),
			Fix: "let this user read and write the file and its directory, and check that it is a SQLite database", Err: err}
	}
	return db, nil
}

// oneLine is the text of an error that a driver may have broken into lines.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
