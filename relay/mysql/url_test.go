package mysql

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// secret has every character that trips URL parsers.
const secret = "p#G>P@/%7x:"

func TestCase_F01_password_with_special_characters(t *testing.T) {
	t.Parallel()
	u := url.URL{Scheme: "mysql", User: url.UserPassword("app", secret), Host: "db.example:3307", Path: "/shop"}
	c, err := parseURL(u.String())
	require.NoError(t, err)
	require.Equal(t, secret, c.Passwd)
	require.Equal(t, "app", c.User)
	require.Equal(t, "db.example:3307", c.Addr)
	require.Equal(t, "shop", c.DBName)
}

func TestCase_F01_errors_never_show_the_password(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"mysql://app:" + secret + "@db.example:3307/shop",
		"mysql://app:hunter2%zz@db.example/shop",
		"mysql://app:hunter2@db.example:port/shop",
		"mysql://app:hunter2@db.example/",
		"mysql://app:hunter2@db.example/a/b",
		"mysql://app:hunter2@/shop",
		"mysql://:hunter2@db.example/shop",
		"mysql://app:hunter2@db.example/shop?colour=red",
		"mysql://app:hunter2@db.example/shop?tls=maybe",
		"mysql://app:hunter2@db.example/shop?tls=false&tls_ca=/x",
		"mysql://app:hunter2@db.example/shop?tls_ca=/nowhere.pem",
		"mysql://app:hunter2@db.example/shop?connect_timeout=soon",
		"postgres://app:hunter2@db.example/shop",
		"app:hunter2@tcp(db.example:3306)/shop",
		"",
	} {
		_, err := parseURL(raw)
		e := relay.AsSetup(err)
		require.NotNil(t, e, "%q was taken", raw)
		require.Equal(t, relay.SetupUsage, e.Kind)
		require.NotEmpty(t, e.Fix)
		for text := err; text != nil; {
			require.NotContains(t, text.Error(), "hunter2")
			require.NotContains(t, text.Error(), "p#G")
			require.NotContains(t, text.Error(), "G>P")
			next, ok := text.(interface{ Unwrap() error })
			if !ok {
				break
			}
			text = next.Unwrap()
		}
	}
	_, err := parseURL("mysql://app:" + secret + "@db.example:3307/shop")
	require.ErrorContains(t, err, "percent-encoded")
}

func TestParseURL_options(t *testing.T) {
	t.Parallel()
	c, err := parseURL("mariadb://app@db.example/shop?connect_timeout=3s&tls=skip-verify")
	require.NoError(t, err)
	require.Equal(t, "db.example:3306", c.Addr)
	require.Equal(t, 3*time.Second, c.Timeout)
	require.Equal(t, "skip-verify", c.TLSConfig)

	c, err = parseURL("mysql://app@localhost/shop?socket=/run/mysqld/mysqld.sock")
	require.NoError(t, err)
	require.Equal(t, "unix", c.Net)
	require.Equal(t, "/run/mysqld/mysqld.sock", c.Addr)
	require.Equal(t, "preferred", c.TLSConfig)

	c, err = parseURL("mysql://app@[::1]:3307/shop?tls_server_name=db.internal")
	require.NoError(t, err)
	require.Equal(t, "[::1]:3307", c.Addr)
	require.Equal(t, "db.internal", c.TLS.ServerName)
	require.False(t, c.TLS.InsecureSkipVerify)
}

func FuzzParseURL(f *testing.F) {
	f.Add("mysql://a:b@c:1/d?tls=true")
	f.Add("mariadb://%zz@/")
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := parseURL(raw)
		if err != nil {
			require.NotNil(t, relay.AsSetup(err))
			return
		}
		require.NotEmpty(t, c.DBName)
		require.NotEmpty(t, c.User)
	})
}

func TestQuote(t *testing.T) {
	onBoth(t, func(t *testing.T, v flavour) {
		_, db := v.newDatabase(t, "")
		for _, s := range []string{"", "a", "it's", `back\slash`, `'; DROP TABLE x; --`, "nul\x00", "键😀", "a\nb\"c"} {
			var got string
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+quote(s)).Scan(&got))
			require.Equal(t, s, got)
		}
	})
}

func TestEnumWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"A", "it's", "c,d"}, enumWords("enum('A','it''s','c,d')"))
	require.Empty(t, enumWords("enum("))
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][3]int{
		"9.7.4-2": {9, 7, 4}, "8.0.16": {8, 0, 16}, "10.11.19-MariaDB-0+deb12u1": {10, 11,
			19}, "5.5.5-10.6.1-MariaDB": {10, 6, 1},
	} {
		major, minor, patch := parseVersion(text)
		require.Equal(t, want, [3]int{major, minor, patch}, text)
	}
	require.Error(t, (&server{version: "8.0.15"}).checkVersion())
	require.Error(t, (&server{version: "10.5.9-MariaDB", mariadb: true}).checkVersion())
	require.NoError(t, (&server{version: "10.6.0-MariaDB", mariadb: true}).checkVersion())
}
