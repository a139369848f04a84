package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/schema"
)

// servers are the databases that schema works on, by the variable that names them.
var servers = map[string]outbox.Dialect{
	"POSTRIDER_TEST_POSTGRES":        outbox.Postgres,
	"POSTRIDER_TEST_POSTGRES_NEWEST": outbox.Postgres,
	"POSTRIDER_TEST_MYSQL":           outbox.MySQL,
	"POSTRIDER_TEST_MARIADB":         outbox.MariaDB,
}

// testServer returns the URL in variable, or ends the test.
func testServer(t *testing.T, variable string) string {
	t.Helper()
	raw := os.Getenv(variable)
	switch {
	case raw != "":
	case os.Getenv("CI") == "true":
		t.Fatalf("set %s (dev/servers up)", variable)
	default:
		t.Skipf("set %s (dev/servers up)", variable)
	}
	return raw
}

// ownPlace makes a schema (PostgreSQL) or database (MySQL) for the test and returns its URL.
func ownPlace(t *testing.T, raw string, d outbox.Dialect) string {
	t.Helper()
	db, err := app.OpenDatabase(t.Context(), raw, app.ExistingFile)
	require.NoError(t, err)
	name := "cmd_" + strings.ToLower(rand.Text()[:12])
	create, drop := "CREATE DATABASE "+name, "DROP DATABASE "+name
	u, err := url.Parse(raw)
	require.NoError(t, err)
	if d == outbox.Postgres {
		create, drop = "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE"
		q := u.Query()
		q.Set("search_path", name)
		u.RawQuery = q.Encode()
	} else {
		u.Path = "/" + name
	}
	execute(t, db, create)
	t.Cleanup(func() {
		execute(t, db, drop)
		require.NoError(t, db.Close())
	})
	return u.String()
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), statement)
	require.NoError(t, err)
}

// postrider runs a command line in this process.
func postrider(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestSchema_OnServers(t *testing.T) {
	t.Parallel()
	for variable, d := range servers {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			place := ownPlace(t, testServer(t, variable), d)

			code, out, errOut := postrider(t, "schema", "status", "--database-url", place, "-o", "json")
			require.Equal(t, exitFindings, code, errOut)
			require.Contains(t, out, `"installed": 0`)
			require.Contains(t, errOut, "next: postrider schema apply")

			code, out, errOut = postrider(t, "schema", "apply", "--database-url", place)
			require.Equal(t, exitDone, code, errOut)
			require.Contains(t, out, "applied")

			code, out, errOut = postrider(t, "schema", "apply", "--database-url", place, "-o", "json", "--timeout", "1m")
			require.Equal(t, exitDone, code, errOut)
			require.Contains(t, out, `"applied": []`)
			require.Contains(t, errOut, "the tables are up to date")

			code, out, errOut = postrider(t, "schema", "status", "--database-url", place)
			require.Equal(t, exitDone, code, errOut)
			require.NotContains(t, out, "missing")

			db, err := app.OpenDatabase(t.Context(), place, app.ExistingFile)
			require.NoError(t, err)
			defer db.Close()
			execute(t, db, "DROP TABLE outbox_events")
			code, out, errOut = postrider(t, "schema", "apply", "--database-url", place)
			require.Equal(t, exitDone, code, errOut)
			require.Contains(t, out, "applied", "what status says is missing, apply makes")
			execute(t, db, "ALTER TABLE outbox_events DROP COLUMN kafka_offset")
			code, _, errOut = postrider(t, "schema", "apply", "--database-url", place)
			require.Equal(t, exitConflict, code, errOut)
			require.Contains(t, errOut, "schema: table outbox_events lacks kafka_offset: run ALTER TABLE outbox_events ADD COLUMN kafka_offset BIGINT\n")
		})
	}
}

// TestCase_F01_WrongPassword: a server that refuses the password says so without the password,
// whatever characters it has.
func TestCase_F01_WrongPassword(t *testing.T) {
	t.Parallel()
	for variable := range servers {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(testServer(t, variable))
			require.NoError(t, err)
			const password = `wr0ng#G>P@/%7x:`
			u.User = url.UserPassword("nobody_"+strings.ToLower(rand.Text()[:8]), password)
			code, out, errOut := postrider(t, "schema", "status", "--database-url", u.String())
			require.Equal(t, exitPermission, code, errOut)
			require.Contains(t, errOut, fmt.Sprintf("%s: user %q is not let in: wrong user or password; check database.user", u.Host, u.User.Username()))
			require.Equal(t, 1, strings.Count(errOut, "\n"), errOut)
			for _, form := range []string{password, url.UserPassword("", password).String()[1:], "wr0ng"} {
				require.NotContains(t, out+errOut, form)
			}

			u.Path = "/no_such_database"
			u.User = mustParse(t, testServer(t, variable)).User
			code, _, errOut = postrider(t, "schema", "status", "--database-url", u.String())
			require.Equal(t, exitNotFound, code, errOut)
			require.Contains(t, errOut, `"no_such_database"`)
			require.Contains(t, errOut, u.Host)
		})
	}
}

// TestSchema_WrongPort: schema says of a port of another server, and of a password that is wrong or was not given,
// what run and status say, within the time that they take.
func TestSchema_WrongPort(t *testing.T) {
	t.Parallel()
	host := func(variable string) string { return mustParse(t, testServer(t, variable)).Host }
	pg, my := host("POSTRIDER_TEST_POSTGRES"), host("POSTRIDER_TEST_MYSQL")
	kafka := testServer(t, "POSTRIDER_TEST_KAFKA")
	const password = "hunter2"
	for place, want := range map[string]string{
		"mysql://app:hunter2@" + pg + "/x?connect_timeout=1s":      "server " + pg + ": PostgreSQL answers there, not MySQL; correct host and port in database.url, or write it as postgres://…",
		"mysql://app:hunter2@" + kafka + "/x?connect_timeout=1s":   "server " + kafka + ": takes the connection, but does not greet as MySQL does; check that host and port",
		"postgres://app:hunter2@" + my + "/x":                      "PostgreSQL at " + my + ": another kind of server answers there, not PostgreSQL; correct host and port",
		"postgres://app:hunter2@" + kafka + "/x?connect_timeout=1": "PostgreSQL at " + kafka + ": takes the connection, but does not answer as PostgreSQL does; check that host and port",
		"postgres://nobody@" + pg + "/x?passfile=/nonexistent":     `user "nobody" is not let in without a password, and none was given; set POSTRIDER_DATABASE_PASSWORD`,
		"mysql://nobody@" + my + "/x":                              `user "nobody" is not let in without a password, and none was given; set POSTRIDER_DATABASE_PASSWORD`,
		"postgres://nobody:hunter2@" + pg + "/x":                   `user "nobody" is not let in: wrong user or password; check database.user and database.password`,
		"mysql://nobody:hunter2@" + my + "/x":                      `user "nobody" is not let in: wrong user or password; check database.user and database.password`,
	} {
		for _, verb := range [][]string{{"schema", "apply"}, {"status"}} {
			t.Run(place+" "+verb[0], func(t *testing.T) {
				t.Parallel()
				code, _, errOut := postrider(t, append(verb, "--timeout", "30s", "--database-url", place)...)
				require.Contains(t, []int{exitUsage, exitUnreachable, exitPermission}, code, errOut)
				require.Contains(t, errOut, want)
				require.Equal(t, 1, strings.Count(errOut, "\n"), errOut)
				require.NotContains(t, errOut, password)
			})
		}
	}
}

// TestSchema_NoServer: who is not reached, and why, is named.
func TestSchema_NoServer(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := ln.Addr().String()
	require.NoError(t, ln.Close())
	for scheme, kind := range map[string]string{"postgres": "PostgreSQL at", "mysql": "server", "mariadb": "server"} {
		code, _, errOut := postrider(t, "schema", "apply", "--database-url", scheme+"://app:hunter2@"+closed+"/shop")
		require.Equal(t, exitUnreachable, code, errOut)
		require.Regexp(t, "^postrider: "+kind+" "+closed+": does not answer: .*connection refused; [^\n]*host and port in database.url[^\n]*\n$", errOut)
	}
}

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u
}

// TestSchema_Timeout holds that --timeout ends a wait for a server that says nothing, and is named as
// the reason.
func TestSchema_Timeout(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for _, scheme := range []string{"postgres", "mysql", "mariadb"} {
		code, _, errOut := postrider(t, "schema", "apply", "--timeout", "100ms",
			"--database-url", scheme+"://app@"+silent.Addr().String()+"/shop")
		require.Equal(t, exitFailed, code, errOut)
		require.Equal(t, "postrider: --timeout: not done within 100ms; give it longer or look at what it waits for\n", errOut)
	}
}

func TestSchemaError_ExitCodes(t *testing.T) {
	t.Parallel()
	for code, err := range map[int]error{
		exitPermission: fmt.Errorf("apply: %w", &schema.PermissionError{User: "app", Right: "CREATE", On: "schema public", Fix: "GRANT CREATE ON SCHEMA public TO app"}),
		exitConflict:   fmt.Errorf("apply: %w", &schema.ConflictError{Table: "outbox_events", Missing: []string{"payload"}}),
		exitFailed:     errors.New("something else\nin two lines"),
	} {
		var out bytes.Buffer
		require.Equal(t, code, report(&out, schemaError(err)))
		require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	}
}

// TestStatus_NeedsToReadOnly: a monitoring user with SELECT sees everything; a relay without the cursor's table
// says so once, with the GRANT.
func TestStatus_NeedsToReadOnly(t *testing.T) {
	t.Parallel()
	for variable, d := range servers {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			place := ownPlace(t, testServer(t, variable), d)
			code, _, errOut := postrider(t, "schema", "apply", "--database-url", place)
			require.Zero(t, code, errOut)
			db, err := app.OpenDatabase(t.Context(), place, app.ExistingFile)
			require.NoError(t, err)
			defer db.Close()
			user := "look_" + strings.ToLower(rand.Text()[:12])
			u := mustParse(t, place)
			statements, drop := []string{"CREATE USER " + user + " IDENTIFIED BY 'p'", "GRANT SELECT ON " + u.Path[1:] + ".* TO " + user}, "DROP USER "+user
			if d == outbox.Postgres {
				space := u.Query().Get("search_path")
				statements = []string{"CREATE ROLE " + user + " LOGIN PASSWORD 'p'", "GRANT USAGE ON SCHEMA " + space + " TO " + user,
					"GRANT SELECT ON ALL TABLES IN SCHEMA " + space + " TO " + user}
				drop = "DROP OWNED BY " + user + "; DROP ROLE " + user
			}
			for _, s := range statements {
				execute(t, db, s)
			}
			defer execute(t, db, drop)
			u.User = url.UserPassword(user, "p")
			for _, verb := range [][]string{{"status"}, {"events", "list"}} {
				code, _, errOut = postrider(t, append(verb, "--database-url", u.String(), "--set", "http.listen=127.0.0.1:1")...)
				require.Zero(t, code, errOut)
			}
			run := []string{"run", "--until-drained", "--timeout", "30s", "--database-url", u.String(), "--set", "http.listen=127.0.0.1:0",
				"--bootstrap-servers", testServer(t, "POSTRIDER_TEST_KAFKA"), "--set", "relay.claim=single"}
			code, _, errOut = postrider(t, run...)
			require.Equal(t, exitPermission, code, "a relay writes: %s", errOut)
			if d != outbox.Postgres {
				return
			}
			execute(t, db, "GRANT UPDATE ON outbox_events TO "+user)
			code, _, errOut = postrider(t, run...)
			require.Zero(t, code, errOut)
			require.Regexp(t, `"WARN","msg":"about the table","relay":"[^"]*","warning":"user \\"`+user+`\\" may not read and write outbox_cursor, .*GRANT SELECT, INSERT, UPDATE ON .*outbox_cursor`, errOut)
		})
	}
}
