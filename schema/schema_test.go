package schema

import (
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

func TestPrint_EveryDialect(t *testing.T) {
	t.Parallel()
	for _, d := range outbox.Dialects() {
		text := Print(d)
		for _, table := range (catalogue{dialect: d}).tables() {
			if !strings.Contains(text, "CREATE TABLE IF NOT EXISTS "+table.name+" (") {
				t.Errorf("%s lacks %s", d, table.name)
			}
			for _, column := range table.columns {
				if !regexp.MustCompile(`(?m)^    ` + column + `\s`).MatchString(text) {
					t.Errorf("%s lacks %s.%s", d, table.name, column)
				}
			}
		}
		if !strings.Contains(text, "INTO postrider_schema (version) VALUES (1)") {
			t.Errorf("%s notes no version", d)
		}
		if Latest(d) != 1 {
			t.Errorf("%s: latest %d", d, Latest(d))
		}
	}
	if Print("oracle") != "" || Latest("oracle") != 0 {
		t.Error("an unknown dialect has SQL")
	}
}

func TestStep_Statements(t *testing.T) {
	t.Parallel()
	s := step{text: "-- a comment; with a semicolon;\nCREATE TABLE t (\n    -- one;\n    a TEXT DEFAULT ';' -- two; three\n);\n\nINSERT INTO t VALUES ('x');\n"}
	got := s.statements()
	if len(got) != 2 || !strings.HasPrefix(got[0], "CREATE TABLE t (\n    a TEXT DEFAULT ';'") || got[1] != "INSERT INTO t VALUES ('x')" {
		t.Fatalf("%q", got)
	}
	for _, d := range outbox.Dialects() {
		steps, err := stepsOf(d)
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for _, s := range steps {
			for _, statement := range s.statements() {
				whole++
				if strings.Count(statement, "(") != strings.Count(statement, ")") {
					t.Errorf("%s: half a statement: %s", d, statement)
				}
			}
		}
		if whole < 4 {
			t.Errorf("%s: %d statements", d, whole)
		}
	}
}

func TestPermissionError_Error(t *testing.T) {
	t.Parallel()
	err := catalogue{dialect: outbox.Postgres}.lacks("CREATE", "CREATE", `schema "public"`, "App", nil)
	want := `user App lacks CREATE on schema "public": let an administrator run: GRANT CREATE ON schema "public" TO "App"`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}
