package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/relay"
)

// poolSize is the number of connections for reading, settling, the keeper and operators.
const poolSize = 4

// connectTimeout bounds one attempt to connect where the URL sets no connect_timeout.
const connectTimeout = 10 * time.Second

// sqlstates that are told apart.
const (
	codeInvalidPassword   = "28P01"
	codeInvalidAuth       = "28000"
	codeNoDatabase        = "3D000"
	codePrivilege         = "42501"
	codeSerialization     = "40001"
	codeDeadlock          = "40P01"
	codeTooManyConns      = "53300"
	codeCannotConnectNow  = "57P03"
	codeUndefinedTable    = "42P01"
	codeLockNotAvailable  = "55P03"
	codeReadOnly          = "25006"
	codeNotSupported      = "0A000"
	codeUndefinedFunction = "42883"
)

// settings are what every session of the store has. Every statement of the hot path goes row by row along an
// index, or from a list of ids to an index; any other plan could only come from wrong statistics.
func settings(o relay.StoreOptions) [][2]string {
	return [][2]string{
		{"statement_timeout", strconv.FormatInt(o.StatementTimeout.Milliseconds(), 10)},
		{"enable_seqscan", "off"},
		{"enable_hashjoin", "off"},
		{"enable_mergejoin", "off"},
		{"jit", "off"},
		{"bytea_output", "hex"},
	}
}

// connConfig is the configuration of every connection.
func connConfig(o relay.StoreOptions) (*pgx.ConnConfig, error) {
	config, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	name := "postrider/" + o.Relay
	config.RuntimeParams["application_name"] = strings.ToValidUTF8(name[:min(len(name), 63)], "")
	// Defaults of a role or database that would change how values are read. Poolers know these names.
	config.RuntimeParams["datestyle"] = "ISO, MDY"
	config.RuntimeParams["client_encoding"] = "UTF8"
	config.RuntimeParams["standard_conforming_strings"] = "on"
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	// A server that vanished must be noticed within the time that a standby waits.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
	}}
	config.DialFunc = dialer.DialContext
	return config, nil
}

// probe connects once and finds out whether a pooler sits in between: then the process that answers is not
// the one that the connection was opened to.
func probe(ctx context.Context, config *pgx.ConnConfig, o relay.StoreOptions) (conn *pgx.Conn, pooled bool, err error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err = pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, false, unreached(ctx, config, err)
	}
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		_ = conn.Close(ctx)
		return nil, false, unreached(ctx, config, err)
	}
	if pooled = pid != conn.PgConn().PID(); !pooled {
		_, err = conn.Exec(ctx, fmt.Sprintf("SET statement_timeout = %d", o.StatementTimeout.Milliseconds()))
	}
	return conn, pooled, err
}

// newPool makes the pool. A direct session keeps its settings and its prepared statements; behind a pooler
// nothing may outlive a transaction (case C12).
func newPool(ctx context.Context, base *pgx.ConnConfig, o relay.StoreOptions, pooled bool, own *pids) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("make the pool's configuration: %w", err)
	}
	config.ConnConfig = base.Copy()
	config.MaxConns = poolSize
	if pooled {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	} else {
		for _, kv := range settings(o) {
			config.ConnConfig.RuntimeParams[kv[0]] = kv[1]
		}
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
		config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			own.add(conn.PgConn().PID())
			return nil
		}
		config.BeforeClose = func(conn *pgx.Conn) { own.remove(conn.PgConn().PID()) }
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("make the pool: %w", err)
	}
	return pool, nil
}

// unreached is connectError, but for a context that ended: nothing is known of the server then.
func unreached(ctx context.Context, config *pgx.ConnConfig, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("connect to the database: %w", ctx.Err())
	}
	return connectError(config, err)
}

// connectError says in one line why there is no connection and what to do.
func connectError(config *pgx.ConnConfig, err error) error {
	where := fmt.Sprintf("PostgreSQL at %s", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	e := &relay.SetupError{Kind: relay.SetupUnreachable, Thing: where, Err: err}
	var pg *pgconn.PgError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var dns *net.DNSError
	switch {
	case errors.As(err, &pg):
		serverRefusal(e, config, pg)
	case anotherServer(err):
		e.Kind, e.Reason, e.Fix = relay.SetupUsage, "another kind of server answers there, not PostgreSQL", "correct host and port in database.url"
	case strings.Contains(err.Error(), "server refused TLS connection"):
		e.Kind, e.Reason = relay.SetupUsage, "the server does not offer TLS, which database.url asks for"
		e.Fix = "set ssl = on in the server's postgresql.conf, or sslmode=disable in database.url if the network is trusted"
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid), errors.As(err, &alert):
		e.Kind, e.Reason = relay.SetupUsage, "TLS: "+tlsReason(err)
		e.Fix = "give the server's CA with sslrootcert=FILE in database.url, and the name that its certificate has"
	case errors.As(err, &dns):
		e.Reason, e.Fix = fmt.Sprintf("the name %q is not known", dns.Name), "check the host in database.url"
	case errors.Is(err, context.Canceled):
		return err
	case silent(err):
		e.Reason = "takes the connection, but does not answer as PostgreSQL does"
		e.Fix = "check that host and port in database.url are PostgreSQL's"
	default:
		e.Reason, e.Fix = "does not answer: "+dialReason(err), "check host and port in database.url, and that the server runs"
	}
	return e
}

// anotherServer tells an answer that is no message of PostgreSQL's, such as the greeting of a MySQL server.
func anotherServer(err error) bool {
	_, answer, found := strings.Cut(err.Error(), "failed to receive message: ")
	return found && (strings.HasPrefix(answer, "unknown message type") || strings.Contains(answer, "body must have length"))
}

// silent tells a server that was reached and said nothing until the attempt timed out.
func silent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	var network net.Error
	return errors.As(err, &network) && network.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

func serverRefusal(e *relay.SetupError, config *pgx.ConnConfig, pg *pgconn.PgError) {
	switch pg.Code {
	case codeInvalidPassword:
		e.Kind, e.Reason = relay.SetupPermission, fmt.Sprintf("user %q is not let in: wrong user or password", config.User)
		e.Fix = "check database.user and database.password, or what database.url has in their place"
		if config.Password == "" {
			e.Reason = fmt.Sprintf("user %q is not let in without a password, and none was given", config.User)
			e.Fix = "set POSTRIDER_DATABASE_PASSWORD"
		}
	case codeInvalidAuth:
		e.Kind, e.Reason = relay.SetupPermission, pg.Message
		e.Fix = "add the user to the server's pg_hba.conf, or correct the user in database.url"
	case codeNoDatabase:
		e.Kind, e.Reason, e.Fix = relay.SetupNotFound, pg.Message, "correct the database in database.url, or create it"
	case codeNotSupported: // default_transaction_isolation = serializable on a replica
		e.Kind, e.Reason = relay.SetupUsage, "the server is a read-only replica: "+pg.Message
		e.Fix = "connect to the primary, for example with target_session_attrs=read-write and all hosts in database.url"
	case codeTooManyConns:
		e.Reason, e.Fix = pg.Message, "raise max_connections, or close idle sessions; the relay needs up to 6 connections"
	case codeCannotConnectNow:
		e.Reason, e.Fix = pg.Message, "wait until the server has started"
	default:
		e.Reason, e.Fix = fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code), "see the server's log"
	}
}

func tlsReason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		if strings.HasPrefix(inner.Error(), "x509:") || strings.HasPrefix(inner.Error(), "remote error:") {
			return inner.Error()
		}
		err = inner
	}
}

// dialReason is the innermost text, which names address and cause and nothing of the URL.
func dialReason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Error()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	var c *pgconn.ConnectError
	if errors.As(err, &c) && c.Unwrap() != nil {
		return c.Unwrap().Error()
	}
	return err.Error()
}
