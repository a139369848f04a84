package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/relay"
)

// OpenDB connects to database.url for work on tables rather than events. Why there is no connection it
// says in Open's words, as a *relay.SetupError; a context that ended is returned as it is.
func OpenDB(ctx context.Context, url string) (*sql.DB, error) {
	config, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	db, err := open(config)
	if err != nil {
		return nil, err
	}
	greet, cancel := greeting(ctx, config)
	defer cancel()
	if err := db.PingContext(greet); err != nil {
		_ = db.Close()
		return nil, unreached(ctx, err, config)
	}
	return db, nil
}

// greeting bounds the first exchange with a server: the driver's own timeout ends with the dialling, and
// a server of another kind says nothing after it.
func greeting(ctx context.Context, c *driver.Config) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*c.Timeout)
}

// unreached explains why the first exchange with a server failed.
func unreached(ctx context.Context, err error, c *driver.Config) error {
	if ctx.Err() != nil {
		return fmt.Errorf("connect to the database: %w", ctx.Err())
	}
	var network *net.OpError
	dialled := !errors.As(err, &network) || network.Op != "dial"
	if dialled && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrInvalidConn)) {
		return silence(ctx, err, c)
	}
	return setup(err, c)
}

// sslRequest is what a client of PostgreSQL may send first; the server answers with one letter.
var sslRequest = []byte{0, 0, 0, 8, 4, 210, 22, 47}

// silence asks a server that took the connection and did not greet whether it is a PostgreSQL.
func silence(ctx context.Context, err error, c *driver.Config) error {
	e := &relay.SetupError{Kind: relay.SetupUnreachable, Thing: "server " + c.Addr, Err: err,
		Reason: "takes the connection, but does not greet as MySQL does", Fix: "check that host and port in database.url are MySQL's"}
	conn, dialErr := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, c.Net, c.Addr)
	if dialErr != nil {
		return e
	}
	defer func() { _ = conn.Close() }()
	answer := make([]byte, 16) // the greeting of MySQL is longer
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write(sslRequest); err != nil {
		return e
	}
	n, _ := conn.Read(answer)
	switch {
	case n == 1 && (answer[0] == 'S' || answer[0] == 'N'):
		e.Kind, e.Reason = relay.SetupUsage, "PostgreSQL answers there, not MySQL"
		e.Fix = "correct host and port in database.url, or write it as postgres://…"
	case n > 1:
		return setup(err, c) // it greets now
	}
	return e
}
