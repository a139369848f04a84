package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones of time columns, also where the system has none

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/relay"
)

// server is what the relay needs to know about the other side.
type server struct {
	mariadb  bool
	version  string
	database string
	user     string // CURRENT_USER(), quoted for GRANT
	notices  []string
}

// strictMode is the sql_mode of the relay's sessions, whatever the server's is: a value that does not
// fit is an error and never cut, \ and quotes mean what they usually mean, and times round down as
// MariaDB does by default.
const strictMode = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

// probe looks at the server with a plain session.
func probe(ctx context.Context, c *driver.Config) (server, error) {
	var s server
	connector, err := driver.NewConnector(c)
	if err != nil {
		return s, fmt.Errorf("configure the driver: %w", err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	db.SetMaxOpenConns(1)
	var mode, format string
	var user string
	var binlog bool
	greet, cancel := greeting(ctx, c)
	defer cancel()
	err = db.QueryRowContext(greet, "SELECT VERSION(), DATABASE(), CURRENT_USER(), @@GLOBAL.sql_mode, @@GLOBAL.log_bin, @@SESSION.binlog_format").
		Scan(&s.version, &s.database, &user, &mode, &binlog, &format)
	if err != nil {
		return s, unreached(ctx, fmt.Errorf("look at the server: %w", err), c)
	}
	s.mariadb = strings.Contains(s.version, "MariaDB")
	s.user = grantee(user)
	if err := s.checkVersion(); err != nil {
		return s, err
	}
	if binlog && format == "STATEMENT" {
		return s, usage("server", "writes its binary log in STATEMENT format, in which READ COMMITTED sessions cannot write", "SET GLOBAL binlog_format = 'ROW'")
	}
	var isolation string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL."+s.isolationVariable()).Scan(&isolation); err != nil {
		return s, fmt.Errorf("look at the server: %w", err)
	}
	s.note(mode, isolation)
	s.noteCluster(ctx, db)
	return s, nil
}

// note tells of defaults that do not touch the relay, but those who write events.
func (s *server) note(mode, isolation string) {
	if !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "STRICT_TRANS_TABLES") {
		s.notices = append(s.notices, "the server is not in STRICT mode: it may cut what services write without an error; the relay's own sessions are strict")
	}
	if isolation == "SERIALIZABLE" {
		s.notices = append(s.notices, "the server's default isolation is SERIALIZABLE; the relay's own sessions are READ COMMITTED")
	}
}

func (s *server) isolationVariable() string {
	if s.mariadb {
		return "tx_isolation"
	}
	return "transaction_isolation"
}

// checkVersion: SKIP LOCKED, JSON_TABLE and CHECK came with MySQL 8.0.16 and MariaDB 10.6.
func (s *server) checkVersion() error {
	major, minor, patch := parseVersion(s.version)
	number := major*10000 + minor*100 + patch
	if s.mariadb && number < 100600 || !s.mariadb && number < 80016 {
		return usage("server", "version "+s.version+" is too old", "use MySQL 8.0.16 or MariaDB 10.6, or later")
	}
	return nil
}

func parseVersion(v string) (major, minor, patch int) {
	v = strings.TrimPrefix(v, "5.5.5-") // how MariaDB greets old clients
	parts := strings.FieldsFunc(v, func(r rune) bool { return r < '0' || r > '9' })
	for i, p := range []*int{&major, &minor, &patch} {
		if i < len(parts) {
			*p, _ = strconv.Atoi(parts[i])
		}
	}
	return major, minor, patch
}

// noteCluster warns where GET_LOCK holds on one node only. A server without the variable is no cluster.
func (s *server) noteCluster(ctx context.Context, db *sql.DB) {
	var name, value string
	if err := db.QueryRowContext(ctx, "SHOW VARIABLES LIKE 'wsrep_on'").Scan(&name, &value); err == nil && value == "ON" {
		s.notices = append(s.notices, "the server is a Galera node: the owner's lock holds on this node only, so point all relays at one node")
	}
}

// quietFor is how long a session may say nothing. The server ends it then, and its transaction: a relay that stands
// still inside a mark, or whose machine vanished, would keep the rows locked for hours otherwise, and whoever takes
// its lanes over has to mark them. It is less than the shortest session of a consumer group.
const quietFor = 5 * time.Second

// configure prepares the sessions of the relay's pool.
func (s *server) configure(c *driver.Config, o relay.StoreOptions, timeout time.Duration) {
	c.InterpolateParams = true // one round trip a statement, and results as text
	c.ClientFoundRows = true   // a mark that changes nothing counts as found
	c.ParseTime = false        // the driver must not put times into a zone of its own
	c.ReadTimeout = timeout + 5*time.Second
	c.WriteTimeout = timeout + 5*time.Second
	c.ConnectionAttributes = "program_name:postrider " + attribute(o.Relay)
	c.Params = map[string]string{
		"sql_mode":                 "'" + strictMode + "'",
		"innodb_lock_wait_timeout": "5",
		"wait_timeout":             strconv.Itoa(int(quietFor.Seconds())),
		s.isolationVariable():      "'READ-COMMITTED'",
		"autocommit":               "1",
	}
	if s.mariadb {
		c.Params["in_predicate_conversion_threshold"] = "0" // long lists are searched, not made into tables
		c.Params["max_statement_time"] = strconv.FormatFloat(timeout.Seconds(), 'f', 3, 64)
	} else {
		c.Params["max_execution_time"] = strconv.FormatInt(timeout.Milliseconds(), 10)
		c.Params["sql_mode"] = "'" + strictMode + ",TIME_TRUNCATE_FRACTIONAL'"
	}
}

// attribute keeps what the driver's list syntax allows.
func attribute(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ',' || r == ':' || r < ' ' {
			return '-'
		}
		return r
	}, s)
}

// zone sets the sessions' time zone to that of the table's naive columns. Servers often lack the table
// of zone names; a zone that keeps one offset all year is set as that.
func (s *server) zone(ctx context.Context, c *driver.Config, t relay.Table) error {
	name := t.TimeZone
	if t.Own || strings.EqualFold(name, "UTC") || strings.EqualFold(name, "Etc/UTC") {
		c.Params["time_zone"] = "'+00:00'"
		return nil
	}
	if name == "" {
		return nil // the server's default, which is what the service's NOW() used
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return usage("outbox.time_zone", fmt.Sprintf("%q is not a zone", name),
			"use a name like Asia/Shanghai, or leave it empty for the server's own")
	}
	connector, err := driver.NewConnector(c)
	if err != nil {
		return fmt.Errorf("configure the driver: %w", err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	_, err = db.ExecContext(ctx, "SET time_zone = "+quote(name))
	if err == nil {
		c.Params["time_zone"] = quote(name)
		return nil
	}
	var e *driver.MySQLError
	if !errors.As(err, &e) || e.Number != errUnknownZone {
		return fmt.Errorf("set the time zone: %w", err)
	}
	offset, fixed := fixedOffset(loc)
	if !fixed {
		return usage("outbox.time_zone", fmt.Sprintf("the server does not know %q, and its offset changes over the year", name),
			"load the zones: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql")
	}
	c.Params["time_zone"] = "'" + offset + "'"
	return nil
}

// fixedOffset gives a zone's offset if it is the same all through last year, this one and the next two.
func fixedOffset(loc *time.Location) (string, bool) {
	year := time.Now().Year()
	first := time.Date(year-1, 1, 1, 0, 0, 0, 0, loc)
	_, seconds := first.Zone()
	for day := first; day.Year() < year+3; day = day.AddDate(0, 0, 7) {
		if _, s := day.Zone(); s != seconds {
			return "", false
		}
	}
	return first.Format("-07:00"), true
}

// grantee writes user@host for a GRANT statement.
func grantee(user string) string {
	i := strings.LastIndexByte(user, '@')
	if i < 0 {
		return quote(user)
	}
	return quote(user[:i]) + "@" + quote(user[i+1:])
}

// quote writes a text literal; sessions have backslash escapes on.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`).Replace(s) + "'"
}
