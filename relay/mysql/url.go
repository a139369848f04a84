package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/relay"
)

const urlForm = "use mysql://user:password@host:3306/database or mariadb://…, with percent-encoding for special characters in the password (# is %23, @ is %40, / is %2F, % is %25)"

// parseURL reads database.url into the driver's configuration. Its errors never show the URL, which
// holds the password.
//
// Options: tls (preferred, the default; true, skip-verify, false), tls_ca, tls_cert, tls_key (files),
// tls_server_name, socket (a Unix socket's path instead of a host), connect_timeout (defaults to 5s).
func parseURL(raw string) (*driver.Config, error) {
	u, err := url.Parse(raw)
	bad := func(reason string) error { return usage("database.url", reason, urlForm) }
	switch {
	case err != nil:
		return nil, bad("is not a URL: a name or password may hold characters that must be percent-encoded")
	case u.Scheme != "mysql" && u.Scheme != "mariadb":
		return nil, bad("does not begin with mysql:// or mariadb://")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, bad("contains a bare #: the password contains characters that must be percent-encoded")
	case u.User == nil || u.User.Username() == "":
		return nil, bad("names no user")
	}
	database := strings.TrimPrefix(u.Path, "/")
	if database == "" || strings.Contains(database, "/") {
		return nil, bad("does not end in one database name")
	}
	c := driver.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.DBName = database
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" {
		c.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	c.Timeout = 5 * time.Second
	c.Logger = &driver.NopLogger{} // what goes wrong is in the errors
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("has options that are not percent-encoded text")
	}
	if err := setOptions(c, values); err != nil {
		return nil, err
	}
	if c.Net == "tcp" && u.Hostname() == "" {
		return nil, bad("names no host")
	}
	return c, nil
}

var urlOptions = []string{"tls", "tls_ca", "tls_cert", "tls_key", "tls_server_name", "socket", "connect_timeout"}

func setOptions(c *driver.Config, values url.Values) error {
	for name := range values {
		if !slices.Contains(urlOptions, name) {
			return usage("database.url", fmt.Sprintf("option %q is not known", name), "use "+strings.Join(urlOptions, ", "))
		}
	}
	if path := values.Get("socket"); path != "" {
		c.Net, c.Addr = "unix", path
	}
	if text := values.Get("connect_timeout"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > 10*time.Minute {
			return usage("database.url", fmt.Sprintf("connect_timeout=%q is not a duration up to 10m", text),
				"write it like connect_timeout=5s")
		}
		c.Timeout = d
	}
	return setTLS(c, values)
}

// setTLS follows the servers' own clients: encrypted where the server can, unless told otherwise.
func setTLS(c *driver.Config, values url.Values) error {
	mode := values.Get("tls")
	files := values.Get("tls_ca") + values.Get("tls_cert") + values.Get("tls_key") + values.Get("tls_server_name")
	if mode == "" {
		mode = "preferred"
		if files != "" {
			mode = "true"
		}
	}
	switch mode {
	case "true", "skip-verify", "preferred", "false":
	default:
		return usage("database.url", fmt.Sprintf("tls=%q is not known", mode),
			"use tls=preferred, true, skip-verify or false")
	}
	if files == "" {
		c.TLSConfig = mode
		return nil
	}
	host, _, _ := net.SplitHostPort(c.Addr)
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: mode != "true"} //nolint:gosec // only where the operator says so
	if name := values.Get("tls_server_name"); name != "" {
		t.ServerName = name
	}
	if path := values.Get("tls_ca"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return usage("database.url", fmt.Sprintf("tls_ca: %v", err), "name a readable PEM file")
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return usage("database.url", fmt.Sprintf("tls_ca: %s holds no certificate", path),
				"name a PEM file of the authority")
		}
	}
	if cert, key := values.Get("tls_cert"), values.Get("tls_key"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return usage("database.url", fmt.Sprintf("tls_cert and tls_key: %v", err),
				"name a certificate and its key as PEM files")
		}
		t.Certificates = []tls.Certificate{pair}
	}
	if mode == "false" {
		return usage("database.url", "tls=false contradicts the other tls options", "leave out one of them")
	}
	c.TLS = t
	return nil
}

// usage is a set-up error about what the configuration or the table says.
func usage(thing, reason, fix string) *relay.SetupError {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: thing, Reason: reason, Fix: fix}
}
