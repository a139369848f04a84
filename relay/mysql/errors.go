package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/relay"
)

// Numbers of the servers' errors; both share them.
const (
	errTooManyConnections = 1040
	errNoDatabaseRight    = 1044
	errAccessDenied       = 1045
	errUnknownDatabase    = 1049
	errHostBlocked        = 1129
	errHostNotAllowed     = 1130
	errNoTableRight       = 1142
	errNoColumnRight      = 1143
	errNoTable            = 1146
	errNoIndex            = 1176
	errLockWait           = 1205
	errDeadlock           = 1213
	errReadOnlyServer     = 1290
	errUnknownZone        = 1298
	errReadOnlyTx         = 1792
	errPasswordExpired    = 1862
	errTLSRequired        = 3159
)

func number(err error) uint16 {
	var e *driver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// again runs f until it is not the victim of a lock: a deadlock or a lock wait rolled f's transaction
// back whole, so nothing of it happened. Six attempts, then the error is the caller's.
func again(ctx context.Context, f func() error) error {
	const attempts = 6
	for n := 1; ; n++ {
		err := f()
		if code := number(err); n == attempts || code != errDeadlock && code != errLockWait {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(n) * (5*time.Millisecond + rand.N(15*time.Millisecond))):
		}
	}
}

// setup turns what the server or the network says while opening into an error with the next step.
func setup(err error, c *driver.Config) error {
	if err == nil || relay.AsSetup(err) != nil {
		return err
	}
	e := &relay.SetupError{Kind: relay.SetupPermission, Thing: fmt.Sprintf("server %s", c.Addr), Err: err}
	login := fmt.Sprintf("user %q", c.User)
	var netErr net.Error
	switch number(err) {
	case errAccessDenied:
		e.Reason = login + " is not let in: wrong user or password"
		e.Fix = "check database.user and database.password, or what database.url has in their place"
		if c.Passwd == "" {
			e.Reason, e.Fix = login+" is not let in without a password, and none was given", "set POSTRIDER_DATABASE_PASSWORD"
		}
	case errNoDatabaseRight:
		e.Reason = fmt.Sprintf("%s may not use database %q", login, c.DBName)
		e.Fix = fmt.Sprintf("GRANT SELECT, UPDATE ON %s.* TO %s", ident(c.DBName), quote(c.User))
	case errUnknownDatabase:
		e.Kind, e.Reason, e.Fix = relay.SetupNotFound, fmt.Sprintf("has no database %q", c.DBName), "correct the name at the end of database.url"
	case errHostBlocked, errHostNotAllowed:
		e.Reason, e.Fix = "does not let this host in", "create the user for this host, or run mysqladmin flush-hosts"
	case errPasswordExpired:
		e.Reason, e.Fix = "the password of "+login+" has expired", "ALTER USER … IDENTIFIED BY …"
	case errTLSRequired:
		e.Kind, e.Reason, e.Fix = relay.SetupUsage, "takes encrypted connections only", "add tls=true to database.url"
	case errTooManyConnections:
		e.Kind, e.Reason, e.Fix = relay.SetupUnreachable, "has too many connections", "raise max_connections"
	case errReadOnlyServer, errReadOnlyTx:
		e.Kind, e.Reason, e.Fix = relay.SetupUsage, "is read-only", "point database.url at the primary"
	case 0:
		switch {
		case errors.Is(err, driver.ErrNoTLS):
			e.Kind, e.Reason, e.Fix = relay.SetupUsage, "does not speak TLS", "enable it on the server, or set tls=preferred in database.url"
		case isTLS(err):
			e.Kind, e.Reason, e.Fix = relay.SetupUsage, "its certificate is refused: "+reason(err), "name the authority with tls_ca, or the certificate's name with tls_server_name"
		case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr), errors.Is(err, driver.ErrInvalidConn), strings.Contains(err.Error(), "bad connection"):
			e.Kind, e.Reason, e.Fix = relay.SetupUnreachable, "does not answer: "+reason(err), "start it, or correct host and port in database.url"
		default:
			return err
		}
	default:
		return err
	}
	return e
}

func isTLS(err error) bool {
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var header tls.RecordHeaderError
	return errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &header)
}

// reason is the innermost text, which says it without the layers around.
func reason(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
