package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlConfig reads a mysql:// or mariadb:// URL with the options that the relay takes: tls
// (preferred by default, true, skip-verify, false), tls_ca, tls_cert, tls_key, tls_server_name,
// socket and connect_timeout.
func mysqlConfig(raw string) (*mysql.Config, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, unusable("MySQL", "user, password, host and port")
	}
	options := u.Query()
	cfg := mysql.NewConfig()
	cfg.Logger = log.New(io.Discard, "", 0)
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.Net, cfg.Addr = "tcp", u.Host
	switch path := options.Get("socket"); {
	case path != "":
		cfg.Net, cfg.Addr = "unix", path
	case u.Port() == "":
		cfg.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if cfg.DBName == "" || cfg.User == "" {
		return nil, unusable("MySQL", "that it names a user and a database: mysql://user@host:3306/database")
	}
	cfg.Timeout = connectTimeout
	if text := options.Get("connect_timeout"); text != "" {
		if cfg.Timeout, err = time.ParseDuration(text); err != nil || cfg.Timeout <= 0 {
			return nil, unusable("MySQL", "connect_timeout, a duration such as 5s")
		}
	}
	return cfg, mysqlTLS(cfg, u.Hostname(), options)
}

func mysqlTLS(cfg *mysql.Config, host string, options url.Values) error {
	mode := options.Get("tls")
	ca, cert, key, name := options.Get("tls_ca"), options.Get("tls_cert"), options.Get("tls_key"), options.Get("tls_server_name")
	files := ca+cert+key+name != ""
	switch {
	case mode == "" && files:
		mode = "true"
	case mode == "":
		mode = "preferred"
	case mode == "false" && files, mode != "true" && mode != "false" && mode != "preferred" && mode != "skip-verify":
		return unusable("MySQL", "tls: preferred, true, skip-verify or false, the last without other tls options")
	}
	if !files {
		cfg.TLSConfig = mode
		return nil
	}
	if name == "" {
		name = host
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, InsecureSkipVerify: mode != "true"} //nolint:gosec // only where the operator says so
	if ca != "" {
		pem, err := os.ReadFile(ca)
		cfg.TLS.RootCAs = x509.NewCertPool()
		if err != nil || !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return unusable("MySQL", "tls_ca, which must name a readable PEM file with a certificate")
		}
	}
	if cert+key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return unusable("MySQL", "tls_cert and tls_key, which must name the PEM files of a certificate and its key")
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return nil
}
