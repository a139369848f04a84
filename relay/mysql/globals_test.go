//go:build unix

package mysql

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// Servers whose global settings differ: this changes them, so it needs servers that nobody else uses. They
// are named by variables of their own, or started for this test.
func TestOpen_servers_with_other_defaults(t *testing.T) {
	alone(t)
	for _, v := range []flavour{
		{"mysql", "POSTRIDER_TEST_MYSQL_ALONE", mysqlServer.dialect}, {"mariadb", "POSTRIDER_TEST_MARIADB_ALONE",
			mariadbServer.dialect},
	} {
		t.Run(v.name, func(t *testing.T) {
			v := v
			dsn, db := v.newDatabase(t, "")
			user := "pr_" + strings.ToLower(rand.Text())[:20]
			_, err := db.ExecContext(t.Context(), "CREATE USER "+user+"@'%' IDENTIFIED BY 'x'; GRANT ALL ON "+ident(databaseOf(t, dsn))+".* TO "+user+"@'%'")
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP USER "+user+"@'%'") })
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			u.User = url.UserPassword(user, "x") // root may write on a read-only server
			set := func(t *testing.T, name, value string) {
				t.Helper()
				var old string
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@GLOBAL."+name).Scan(&old))
				_, err := db.ExecContext(t.Context(), "SET GLOBAL "+name+" = "+value)
				require.NoError(t, err)
				t.Cleanup(func() {
					_, err := db.ExecContext(context.Background(), "SET GLOBAL "+name+" = "+quoteUnlessNumber(old))
					require.NoError(t, err)
				})
			}
			isolation := (&server{mariadb: v.name == "mariadb"}).isolationVariable()
			readOnly := strings.Replace(isolation, "isolation", "read_only", 1)

			t.Run("read_only", func(t *testing.T) {
				set(t, "read_only", "1")
				refused(t, u.String(), ownTable(), relay.SetupUsage, "read-only", "read_only")
			})
			t.Run("read-only transactions", func(t *testing.T) {
				set(t, readOnly, "1")
				refused(t, u.String(), ownTable(), relay.SetupUsage, "read-only")
			})
			t.Run("not strict", func(t *testing.T) {
				set(t, "sql_mode", "'NO_BACKSLASH_ESCAPES'")
				s := openStore(t, u.String(), ownTable())
				require.Contains(t, strings.Join(s.Notices(), "\n"), "not in STRICT mode")
				works(t, s, u.String(), v, `it's a \ "quoted" key`)
			})
			t.Run("SERIALIZABLE", func(t *testing.T) {
				set(t, isolation, "'SERIALIZABLE'")
				s := openStore(t, u.String(), ownTable())
				require.Contains(t, strings.Join(s.Notices(), "\n"), "SERIALIZABLE")
				works(t, s, u.String(), v, "serial")
			})
			t.Run("another time zone", func(t *testing.T) {
				set(t, "time_zone", "'-05:00'")
				works(t, openStore(t, u.String(), ownTable()), u.String(), v, "own table")
				k := kinds(v)[1]
				_, db := v.newDatabase(t, k.ddl)
				var name string
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&name))
				root, err := url.Parse(dsn)
				require.NoError(t, err)
				root.Path = "/" + name
				s := openStore(t, root.String(), k.table)
				_, err = db.ExecContext(t.Context(), insertOne(s.layout()), "e", "k")
				require.NoError(t, err)
				evs := fetch(t, s, relay.Fetch{})
				require.Len(t, evs, 1)
				require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
			})
			if v.name == "mysql" {
				t.Run("TLS required", func(t *testing.T) {
					set(t, "require_secure_transport", "1")
					u := *u
					u.RawQuery = "tls=false"
					refused(t, u.String(), ownTable(), relay.SetupUsage, "encrypted connections only")
					u.RawQuery = ""
					openStore(t, u.String(), ownTable())
				})
			}
		})
	}
}

// alone names servers of this checkout's own, starts them where that can be done, and removes them at the
// end. Runs of one checkout take turns.
func alone(t *testing.T) {
	t.Helper()
	if os.Getenv("POSTRIDER_TEST_MYSQL_ALONE") != "" && os.Getenv("POSTRIDER_TEST_MARIADB_ALONE") != "" {
		return
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Geteuid() != 0 {
		const why = "set POSTRIDER_TEST_MYSQL_ALONE and POSTRIDER_TEST_MARIADB_ALONE to servers whose global settings may be changed; dev/servers starts them as root on Debian only"
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	instance := fmt.Sprintf("globals-%x", sha256.Sum256([]byte(root)))[:16]
	turn, err := os.OpenFile(filepath.Join(os.TempDir(), "postrider-"+instance+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = turn.Close() })
	require.NoError(t, syscall.Flock(int(turn.Fd()), syscall.LOCK_EX))
	servers := func(command string, names ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(root, "dev", "servers"), append([]string{command}, names...)...)
		cmd.Env = append(os.Environ(), "POSTRIDER_DEV_INSTANCE="+instance)
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() { removeInstance(t, servers) })
	out, err := servers("up", "mysql", "mariadb")
	require.NoError(t, err, "%s", out)
	out, err = servers("env", "mysql", "mariadb")
	require.NoError(t, err, "%s", out)
	for _, m := range regexp.MustCompile(`export (\w+)='([^']*)'`).FindAllStringSubmatch(out, -1) {
		t.Setenv(m[1]+"_ALONE", m[2])
	}
}

// removeInstance stops the servers and gives their place and ports back.
func removeInstance(t *testing.T, servers func(string, ...string) (string, error)) {
	out, err := servers("status")
	if err == nil {
		_, err = servers("wipe")
	}
	if dir := regexp.MustCompile(`(?m)^instance \S+ in (\S+)$`).FindStringSubmatch(out); err == nil && dir != nil {
		err = os.RemoveAll(dir[1])
	}
	if err != nil {
		t.Logf("remove servers: %v\n%s", err, out)
	}
}

func databaseOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return strings.TrimPrefix(u.Path, "/")
}

func quoteUnlessNumber(s string) string {
	if s != "" && strings.Trim(s, "0123456789") == "" {
		return s
	}
	return quote(s)
}

// works takes one event through the store.
func works(t *testing.T, s *Store, dsn string, v flavour, key string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	db := v.pool(t, *u)
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (UUID(), 'o', ?, 't', '')`, key)
	require.NoError(t, err)
	evs := fetch(t, s, relay.Fetch{})
	require.Len(t, evs, 1)
	require.Equal(t, key, *evs[0].Key)
	require.WithinDuration(t, time.Now(), evs[0].CreatedAt, time.Minute)
	o := outcome(evs[0], relay.StateFailed)
	o.RetryAfter, o.LastError = 0, `it's a \ "quoted" error`
	settle(t, s, o)
	evs = fetch(t, s, relay.Fetch{Blocked: []relay.Blocked{{Key: key, Head: evs[0].Row}}})
	require.Len(t, evs, 1)
	row, _, err := s.Get(t.Context(), evs[0].ID)
	require.NoError(t, err)
	require.Equal(t, o.LastError, row.LastError)
	settle(t, s, outcome(evs[0], relay.StateSent))
}
