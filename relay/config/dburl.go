package config

import (
	"net/url"
	"slices"
	"strings"
)

var databaseSchemes = []string{"postgres", "postgresql", "mysql", "mariadb", "sqlite"}

const encodeHint = "the user or password holds characters that must be percent-encoded in a URL; " +
	"encode them, or leave both out and set database.user and database.password, which take any characters"

// parseDatabaseURL checks a database URL. The reason never holds any part of the value, since a URL
// that cannot be read may have its password anywhere.
func parseDatabaseURL(raw string) (u *url.URL, reason string) {
	scheme, rest, found := strings.Cut(raw, ":")
	switch {
	case !found || strings.ContainsAny(scheme, "=/@ "):
		return nil, "is not a URL; write postgres://user@host:5432/name, mysql://, mariadb:// or sqlite:file.db"
	case !slices.Contains(databaseSchemes, scheme):
		return nil, "has a scheme that is not known; use postgres, mysql, mariadb or sqlite"
	case scheme == "sqlite":
		if strings.TrimPrefix(rest, "//") == "" {
			return nil, "names no file; write sqlite:file.db"
		}
		if strings.Contains(rest, ":memory:") {
			return nil, "is a database in memory, which nobody else can write to; write sqlite:file.db"
		}
		return &url.URL{Scheme: scheme, Opaque: rest}, ""
	case !strings.HasPrefix(rest, "//"):
		return nil, "lacks the slashes behind the scheme; write " + scheme + "://user@host/name"
	}
	u, err := url.Parse(raw)
	if err != nil && !strings.Contains(rest, "@") {
		return nil, "has a host or port that cannot be read; write " + scheme + "://user@host:port/name"
	}
	if err != nil {
		// What net/url says quotes the value. With an @ it is nearly always the password that broke it.
		return nil, encodeHint
	}
	// A # ? or / in the password ends the authority early, and what follows still holds the @.
	if u.Fragment != "" || (u.User == nil && strings.Contains(u.Path+u.RawQuery, "@")) {
		return nil, encodeHint
	}
	if u.Opaque != "" {
		return nil, "cannot be read; write " + scheme + "://user@host/name"
	}
	return u, ""
}

// withUser returns the URL with user and password replaced where they are given.
func withUser(u *url.URL, user, password string) string {
	if user == "" && u.User != nil {
		user = u.User.Username()
	}
	if old, has := u.User.Password(); password == "" && has {
		password = old
	}
	c := *u
	c.User = url.User(user)
	if password != "" {
		c.User = url.UserPassword(user, password)
	}
	return c.String()
}

// showDatabaseURL returns the URL for people: without password, and without the values of query
// parameters that may hold one.
func showDatabaseURL(raw string) string {
	u, reason := parseDatabaseURL(raw)
	if reason != "" {
		return masked
	}
	if u.Scheme == "sqlite" {
		return raw
	}
	c := *u
	if c.User != nil {
		c.User = url.User(c.User.Username())
	}
	params := strings.Split(c.RawQuery, "&")
	for i, param := range params {
		name, _, _ := strings.Cut(param, "=")
		if clear, err := url.QueryUnescape(name); err != nil || soundsSecret(clear) {
			params[i] = name + "=" + masked
		}
	}
	c.RawQuery = strings.Join(params, "&")
	return c.String()
}

// soundsSecret says whether a name promises a secret value.
func soundsSecret(name string) bool {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, ".location") || strings.HasSuffix(name, ".type") {
		return false
	}
	return slices.ContainsFunc([]string{"pass", "secret", "token", "jaas", "key", "credential", "assertion"},
		func(word string) bool { return strings.Contains(name, word) })
}
