package outbox

import (
	"reflect"
	"strings"
	"testing"
)

func TestSplitTable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"outbox_events":           {"outbox_events"},
		"app.outbox_events":       {"app", "outbox_events"},
		"`cap.published`":         {"cap.published"},
		`"cap"."published"`:       {"cap", "published"},
		"OUTBOX-ORDER":            {"OUTBOX-ORDER"},
		"\"a\"\"b\".`c``d`":       {`a"b`, "c`d"},
		`general."Out.Box"`:       {"general", "Out.Box"},
		`Sales.Outbox; DROP me`:   {"Sales", "Outbox; DROP me"}, // quoted later, so it is one name
		"":                        nil,
		"a.":                      nil,
		".a":                      nil,
		"a..b":                    nil,
		"a.b.c":                   nil,
		`"open`:                   nil,
		`""`:                      nil,
		`"a"b`:                    nil,
		"`a`.":                    nil,
		`"schema"."table"."more"`: nil,
	} {
		got, err := SplitTable(name)
		if (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) && want != nil {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "table name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDialect_QuoteTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect    Dialect
		name, want string
	}{
		{Postgres, `Sales."Out""Box"`, `"Sales"."Out""Box"`},
		{SQLite, `Outbox"; DROP TABLE x`, `"Outbox""; DROP TABLE x"`},
		{MySQL, "`cap.published`", "`cap.published`"},
		{MariaDB, "app.`a``b`", "`app`.`a``b`"},
	} {
		if got, err := c.dialect.QuoteTable(c.name); err != nil || got != c.want {
			t.Errorf("%s %s: %s, %v", c.dialect, c.name, got, err)
		}
	}
}

func TestParseDialect(t *testing.T) {
	t.Parallel()
	for _, d := range Dialects() {
		if got, err := ParseDialect(strings.ToUpper(string(d))); err != nil || got != d {
			t.Errorf("%s: %s, %v", d, got, err)
		}
	}
	if _, err := ParseDialect("oracle"); err == nil || !strings.Contains(err.Error(), "mariadb") {
		t.Error(err)
	}
}

func FuzzSplitTable(f *testing.F) {
	for _, seed := range []string{"a.b", `"a"."b"`, "`a``b`", `"`, "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parts, err := SplitTable(name)
		if err != nil {
			return
		}
		for _, d := range []Dialect{Postgres, MySQL} {
			quoted, err := d.QuoteTable(name)
			if err != nil {
				t.Fatal(err)
			}
			again, err := SplitTable(quoted)
			if err != nil || !reflect.DeepEqual(again, parts) {
				t.Fatalf("%q quotes as %q, which reads as %q (%v), not %q", name, quoted, again, err, parts)
			}
		}
	})
}
