package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // database/sql driver "sqlite"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
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
	db, err := openDatabase(d, loaded.DatabaseURL(), mode)
	if err != nil {
		return nil, "", err
	}
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, "", because(ctx, addressOf(loaded.DatabaseURL()).failure(err))
	}
	return db, d, nil
}

const connectTimeout = 10 * time.Second

// openDatabase makes the pool; it does not connect. Errors never hold the URL.
func openDatabase(d outbox.Dialect, raw string, mode fileMode) (*sql.DB, error) {
	switch d {
	case outbox.Postgres:
		cfg, err := pgx.ParseConfig(raw)
		if err != nil {
			return nil, unusable("PostgreSQL", "sslmode, host and port")
		}
		cfg.ConnectTimeout = connectTimeout
		return stdlib.OpenDB(*cfg), nil
	case outbox.SQLite:
		return openSQLite(raw, mode)
	default:
		cfg, err := mysqlConfig(raw)
		if err != nil {
			return nil, err
		}
		connector, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, unusable("MySQL", "its options")
		}
		return sql.OpenDB(connector), nil
	}
}

func openSQLite(raw string, mode fileMode) (*sql.DB, error) {
	escaped, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(raw, "sqlite:"), "//"), "?")
	path, err := url.PathUnescape(escaped)
	if err != nil || path == "" {
		return nil, unusable("SQLite", "the file's name, where % is written %25")
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
	return sql.Open("sqlite", file.String())
}

func unusable(server, look string) error {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url",
		Reason: "cannot be used for " + server, Fix: "check " + look}
}

// address is what errors say of database.url: where it leads, never the password.
type address struct{ server, user, database string }

func addressOf(raw string) address {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return address{server: "database"}
	}
	kind := "PostgreSQL"
	if !strings.HasPrefix(u.Scheme, "postgres") {
		kind = u.Scheme
	}
	return address{server: kind + " at " + u.Host, user: u.User.Username(), database: strings.TrimPrefix(u.Path, "/")}
}

// failure sorts what a driver says by what a person can do about it.
func (a address) failure(err error) error {
	var network *net.OpError
	var dns *net.DNSError
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	setup := func(kind relay.SetupKind, reason, fix string) error {
		return &relay.SetupError{Kind: kind, Thing: a.server, Reason: reason, Fix: fix, Err: err}
	}
	switch {
	case errors.As(err, &pg) && (pg.Code == "28P01" || pg.Code == "28000"),
		errors.As(err, &my) && (my.Number == 1045 || my.Number == 1698):
		return setup(relay.SetupPermission, fmt.Sprintf("user %q is not let in: wrong user or password", a.user),
			"check database.user and database.password, and what the server lets this host do")
	case errors.As(err, &pg) && pg.Code == "3D000", errors.As(err, &my) && my.Number == 1049:
		return setup(relay.SetupNotFound, fmt.Sprintf("has no database %q", a.database), "create it, or name another in database.url")
	case errors.As(err, &pg) && pg.Code == "42501", errors.As(err, &my) && (my.Number == 1044 || my.Number == 1142):
		return setup(relay.SetupPermission, fmt.Sprintf("user %q may not do this", a.user), "grant the right, or use a user who has it")
	case errors.As(err, &dns):
		return setup(relay.SetupUnreachable, "host "+dns.Name+" is not known", "check the host in database.url")
	case errors.Is(err, mysql.ErrNoTLS), strings.Contains(err.Error(), "server refused TLS connection"):
		return setup(relay.SetupUsage, "does not offer TLS, which database.url asks for", "switch it on at the server, or change sslmode or tls in database.url if the network is trusted")
	case errors.As(err, &network), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrDeadlineExceeded):
		reason := "does not answer"
		if network != nil {
			reason += ": " + network.Err.Error()
		}
		return setup(relay.SetupUnreachable, reason, "check host and port in database.url, and that the server runs")
	default:
		return fmt.Errorf("database: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
}
