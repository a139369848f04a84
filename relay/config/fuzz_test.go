package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/relay/config"
)

// canary stands for a secret. It holds a character that no key has, so that it cannot pass for one.
const canary = "c4n4ry+S3cr3t/x"

// FuzzLoad: whatever stands in file, variables and flags, loading ends, does not panic, and neither
// its problems nor what is printed of its result hold the secret.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"full.yaml", "init.postrider.yaml", "init.article-mysql.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "POSTRIDER_RELAY_BATCH", "5", "relay.batch", "6")
	}
	f.Add("database: {url: 'postgres://a:SECRET@h/db', password: SECRET}\nkafka: {sasl.password: SECRET}\n", "POSTRIDER_KAFKA", "{a.b: SECRET}", "kafka.x", "SECRET")
	f.Add("database:\n  url: postgres://a:SECRET#@h/db\n", "POSTRIDER_DATABASE_URL", "mysql://u:SECRET@[::1/x", "database.password", "SECRET")
	f.Add("a: &a [*a, *b, {<<: *a}]\n? x\n: !!str y\n--- \n|\n", "POSTRIDER_ROUTES", "- {topic: ${x}}", "routes", "[{match: {}}, ~]")
	f.Add("outbox: {columns: {id: 'a|b?'}, states: {new: ~}}", "POSTRIDER_PORT", "tcp://", "outbox.columns", "{id: -}")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, name, value, key, set string) {
		fill := func(s string) string { return strings.ReplaceAll(s, "SECRET", canary) }
		o := config.Options{
			File:    "-",
			Stdin:   strings.NewReader(fill(text)),
			Environ: []string{name + "=" + fill(value), "POSTRIDER_DATABASE_URL_FILE=" + filepath.Join(dir, "none")},
			Flags:   []config.Flag{{Name: "--set x", Key: key, Value: fill(set)}},
			Require: []string{"database.url", "kafka.bootstrap.servers"},
		}
		for range 2 { // the second time without the file that is always missing, so that it can load
			l, err := config.Load(o)
			shown := ""
			switch {
			case err != nil:
				shown = fmt.Sprintf("%v %+v", err, err)
			default:
				shown = l.YAML(true) + fmt.Sprintf("%v %+v", l.Entries(), l.JSON())
			}
			if strings.Contains(shown, canary) && !plainPlace(fill(text), fill(value), fill(set)) {
				t.Fatalf("the secret is shown:\n%s", shown)
			}
			o.Environ, o.Stdin = o.Environ[:1], strings.NewReader(fill(text))
		}
	})
}

// plainPlace says whether the fuzzer moved the secret to where no secret belongs, such as a topic: a
// printed configuration shows those.
func plainPlace(texts ...string) bool {
	for _, text := range texts {
		at := strings.Index(text, canary)
		if at < 0 {
			continue
		}
		before := text[:at]
		line := before[strings.LastIndexAny(before, "\n,{")+1:]
		if !strings.Contains(line, "password") && !strings.Contains(line, "url:") {
			return true
		}
	}
	return false
}
