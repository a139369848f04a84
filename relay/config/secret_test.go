package config_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/config"
)

const hidden = "h1dd3n"

// prints shows a value in every way that a log or an error could.
func prints(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%T", "%10v", "%#q", "% x"} {
		fmt.Fprintf(&b, verb+"\n", v)
	}
	fmt.Fprintln(&b, v)
	for _, h := range []slog.Handler{slog.NewJSONHandler(&b, nil), slog.NewTextHandler(&b, nil)} {
		slog.New(h).Info("x", "v", v, "group", slog.GroupValue(slog.Any("v", v)), "in", struct{ V any }{v})
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	b.Write(text)
	text, err = yaml.Marshal(v)
	require.NoError(t, err)
	b.Write(text)
	if text, err = xml.Marshal(v); err == nil {
		b.Write(text)
	}
	fmt.Fprintln(&b, errors.Join(fmt.Errorf("wrapped: %v", v)))
	return b.String()
}

func TestSecret_CannotBePrinted(t *testing.T) {
	t.Parallel()
	s := config.NewSecret(hidden)
	type unexported struct{ s config.Secret }
	c := config.Default()
	c.Database.Password = s
	c.Kafka = config.Properties{"sasl.password": s}
	for _, v := range []any{
		s, &s, []config.Secret{s}, map[string]config.Secret{"k": s}, struct{ S config.Secret }{s},
		unexported{s}, &unexported{s}, c, &c, c.Kafka, []any{s},
	} {
		out := prints(t, v)
		for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), fmt.Sprintf("%X", hidden), fmt.Sprintf("% x", hidden), fmt.Sprint([]byte(hidden))} {
			require.NotContains(t, out, form, "%T", v)
		}
	}
	require.Equal(t, "******** ******** ******** ********", fmt.Sprintf("%v %d %x %q", s, s, s, s))
	require.Equal(t, "********", s.String())
	require.Equal(t, `config.Secret("********")`, s.GoString())
	require.Equal(t, hidden, s.Reveal())
	require.Empty(t, config.NewSecret("").String(), "nothing is not a secret")
	require.True(t, config.Secret{}.Empty())
}

// passwords that have broken connection strings, and those that reach further.
var passwords = []string{
	`p#G>P@/%7x:`, `p@ss`, `a:b`, `a/b`, `a?b`, `a#b`, `100%`, `%zz`, `sp ace`, `"quoted"`, `'single'`, `back\slash`,
	`[brackets]`, `{braces}`, `$(sh)`, `${HOME}`, `&and=`, `Ünïcödé`, `日本`, "new\nline", "tab\t", `;semi`, `-`, `~`, `null`, `0123`, `*`,
}

// TestCase_F01_SpecialCharacters: a password of any characters works as a field of its own, from
// file, variable, secret file and flag, and in a URL that encodes it.
func TestCase_F01_SpecialCharacters(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql", "mariadb"} {
		for _, password := range passwords {
			quoted, err := json.Marshal(password) // a JSON string is YAML
			require.NoError(t, err)
			base := scheme + "://app@db.internal:5432/shop?tls=true"
			encoded := (&url.URL{Scheme: scheme, User: url.UserPassword("app", password), Host: "db.internal:5432", Path: "/shop", RawQuery: "tls=true"}).String()
			for name, in := range map[string]struct {
				yaml string
				o    config.Options
			}{
				"file":         {yaml: "database:\n  url: " + base + "\n  password: " + string(quoted) + "\n"},
				"variable":     {yaml: "database: {url: '" + base + "'}\n", o: config.Options{Environ: []string{"POSTRIDER_DATABASE_PASSWORD=" + password}}},
				"secret file":  {yaml: "database: {url: '" + base + "'}\n", o: config.Options{Environ: []string{"POSTRIDER_DATABASE_PASSWORD_FILE=" + secretFile(t, password+"\n")}}},
				"flag":         {o: config.Options{Flags: []config.Flag{{Name: "--database-url", Key: "database.url", Value: base}, {Name: "--set database.password", Key: "database.password", Value: password}}}},
				"user too":     {o: config.Options{Environ: []string{"POSTRIDER_DATABASE_URL=" + strings.Replace(base, "app@", "", 1), "POSTRIDER_DATABASE_USER=app", "POSTRIDER_DATABASE_PASSWORD=" + password}}},
				"other in URL": {o: config.Options{Environ: []string{"POSTRIDER_DATABASE_URL=" + strings.Replace(base, "app@", "app:old@", 1), "POSTRIDER_DATABASE_PASSWORD=" + password}}},
				"encoded URL":  {o: config.Options{Environ: []string{"POSTRIDER_DATABASE_URL=" + encoded}}},
			} {
				l, problems := load(t, in.yaml, in.o)
				require.Empty(t, problems, "%s %q", name, password)
				u, err := url.Parse(l.DatabaseURL())
				require.NoError(t, err)
				got, _ := u.User.Password()
				require.Equal(t, password, got, name)
				require.Equal(t, "app", u.User.Username(), name)
				require.Equal(t, "db.internal:5432", u.Host, name)
				require.Equal(t, "/shop", u.Path, name)
				require.Equal(t, "tls=true", u.RawQuery, name)
				if len(password) > 3 {
					shown := l.YAML(true) + fmt.Sprint(l.Entries(), l.JSON(), l)
					require.NotContains(t, shown, password, name)
					require.NotContains(t, shown, url.UserPassword("", password).String()[1:], name)
				}
			}
		}
	}
}

// TestCase_F01_BrokenURL: a URL that cannot be read is reported without any part of it.
func TestCase_F01_BrokenURL(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"postgres://app:S3cr3t#G>P@/%7x:@db/shop", "postgres://app:S3cr3t/x@db/shop", "postgres://app:S3cr3t?x@db/shop",
		"postgres://app:1234#S3cr3t@db/shop", "mysql://app:S3cr3t%zz@db/shop", "mariadb://app:S3cr3t[@db/shop",
		"postgres://app:S3cr3t@db:54x32/shop", "postgres://app:S3cr3t ^@db/shop", "postgres://app:1?S3cr3t@db/shop",
		"mysql://app:S3cr3t\x7f@db/shop",
	} {
		for name, o := range map[string]config.Options{
			"variable":    {Environ: []string{"POSTRIDER_DATABASE_URL=" + raw}},
			"secret file": {Environ: []string{"POSTRIDER_DATABASE_URL_FILE=" + secretFile(t, raw)}},
			"flag":        {Flags: []config.Flag{{Name: "--database-url", Key: "database.url", Value: raw}}},
		} {
			_, got := load(t, "", o)
			require.Contains(t, got, "database.url: the user or password holds characters that must be percent-encoded in a URL", "%s %s", name, raw)
			require.Contains(t, got, "set database.user and database.password", name)
			require.NotContains(t, got, "S3cr3t", name)
			require.NotContains(t, got, "app", name)
			require.NotContains(t, got, "shop", name)
		}
	}
	// Other forms of connection strings, and the secret in the wrong place.
	for _, o := range []config.Options{
		{Environ: []string{"POSTRIDER_DATABASE_URL=host=db user=app password=S3cr3t"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL=app:S3cr3t@tcp(db:3306)/shop"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL=S3cr3t"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL=jdbc:postgresql://db/shop?password=S3cr3t"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL=postgres:S3cr3t"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL=postgres://db:S3cr3t/shop"}},
		{Environ: []string{"POSTRIDER_DATABASE_URL_FILE=postgres://app:S3cr3t@db/shop"}},
		{Environ: []string{"POSTRIDER_DATABASE=postgres://app:S3cr3t@db/shop"}},
		{Environ: []string{"POSTRIDER_KAFKA=sasl.password=S3cr3t"}},
		{Environ: []string{"POSTRIDER_LOG_LEVEL=postgres://app:S3cr3t@db/shop"}},
		{Flags: []config.Flag{{Name: "--set x", Key: "postgres://app:S3cr3t@db/shop", Value: "x"}}},
	} {
		_, got := load(t, "", o)
		require.NotEmpty(t, got)
		require.NotContains(t, got, "S3cr3t")
	}
	for _, text := range []string{
		"database:\n  postgres://app:S3cr3t@db/shop\n", "database: {'postgres://app:S3cr3t@db/shop': x}\n",
		"database:\n  password: 'S3cr3t\n", "database: {password: S3cr3t}}\n", "database: {password: [S3cr3t]}\n",
		"database: {password: {S3cr3t/: x}}\n", "database:\n  password: @S3cr3t\n",
		"database:\n  password: S3cr3t: x\n", "kafka:\n  sasl.password: S3cr3t\n foo\n", "kafka:\n  sasl.password: {a: S3cr3t}\n",
		"database:\n  url: postgres://u:S3cr3t@h\n  password: x\n  password: S3cr3t\n\tx: y\n",
	} {
		_, got := load(t, text, config.Options{})
		require.NotEmpty(t, got, text)
		require.NotContains(t, got, "S3cr3t", text)
	}
}

func TestLoaded_ShowsURLWithoutPassword(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"postgres://app:h1dd3n@db:5432/shop?sslmode=require":                 "postgres://app@db:5432/shop?sslmode=require",
		"postgres://db/shop?user=app&password=h1dd3n&a=b":                    "postgres://db/shop?user=app&password=********&a=b",
		"postgres://db/shop?p%61ssword=h1dd3n":                               "postgres://db/shop?p%61ssword=********",
		"postgres://db/shop?%zz=h1dd3n":                                      "postgres://db/shop?%zz=********",
		"mysql://db/shop":                                                    "mysql://db/shop",
		"sqlite:/var/lib/a.db?busy_timeout=1s":                               "sqlite:/var/lib/a.db?busy_timeout=1s",
		"postgres://app:h1dd3n@a:1,b:2/shop?target_session_attrs=read-write": "postgres://app@a:1,b:2/shop?target_session_attrs=read-write",
	} {
		l, problems := load(t, "", config.Options{Environ: []string{"POSTRIDER_DATABASE_URL=" + raw}})
		require.Empty(t, problems, raw)
		require.Equal(t, raw, l.DatabaseURL())
		require.Equal(t, want, l.Entries()[0].Value)
		require.Contains(t, l.YAML(false), want)
	}
}

// TestLoad_PasswordOfTheStrongerPlace: user and password replace those of the URL, unless the URL with its
// password comes from a stronger place.
func TestLoad_PasswordOfTheStrongerPlace(t *testing.T) {
	t.Parallel()
	flag := func(url string) []config.Flag {
		return []config.Flag{{Name: "--database-url", Key: "database.url", Value: url}}
	}
	variable := []string{"POSTRIDER_DATABASE_PASSWORD=frombox"}
	for want, o := range map[string]config.Options{
		"postgres://app:typed@db/shop":    {Flags: flag("postgres://app:typed@db/shop"), Environ: append(variable, "POSTRIDER_DATABASE_USER=other")},
		"postgres://app:frombox@db/shop":  {Flags: flag("postgres://app@db/shop"), Environ: variable},
		"postgres://app2:frombox@db/shop": {Environ: append(variable, "POSTRIDER_DATABASE_URL=postgres://app2:weaker@db/shop")},
	} {
		l, problems := load(t, "", o)
		require.Empty(t, problems)
		require.Equal(t, want, l.DatabaseURL())
		if strings.Contains(want, "typed") {
			require.Equal(t, []string{"POSTRIDER_DATABASE_PASSWORD: passed over, since --database-url holds a password"}, l.Notices)
		}
	}
	l, problems := load(t, "database: {url: 'postgres://app:weaker@db/shop'}\n", config.Options{Environ: variable})
	require.Empty(t, problems)
	require.Equal(t, "postgres://app:frombox@db/shop", l.DatabaseURL())
}
