package postgres

import (
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// parseURL reads database.url. Its errors never hold a part of it: what is wrong with a URL is often its
// password.
func parseURL(text string) (*pgx.ConnConfig, error) {
	isURL := strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://")
	if isURL && !unambiguous(text) {
		return nil, &relay.SetupError{
			Kind: relay.SetupUsage, Thing: "database.url",
			Reason: "is not a valid URL: characters of the user or password with a meaning in URLs must be percent-encoded",
			Fix:    "write % as %25, @ as %40, / as %2F, # as %23, ? as %3F, : as %3A, > as %3E and so on",
		}
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, &relay.SetupError{
			Kind: relay.SetupUsage, Thing: "database.url",
			Reason: "cannot be read as the address of a PostgreSQL server",
			Fix:    "write it as postgres://user:password@host:5432/database?sslmode=require, special characters percent-encoded",
		}
	}
	return config, nil
}

// unambiguous says that the URL parses, and that none of its parts looks like the rest of a password with
// a bare #, ? or / in it.
func unambiguous(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || u.RawFragment != "" || strings.HasSuffix(text, "#") {
		return false
	}
	if u.User == nil && (strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@")) {
		return false
	}
	_, err = url.ParseQuery(u.RawQuery)
	return err == nil
}
