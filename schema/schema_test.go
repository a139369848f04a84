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

// TestIncomplete_EveryColumn: each column has a definition in the files, and what is advised names it.
func TestIncomplete_EveryColumn(t *testing.T) {
	t.Parallel()
	for _, d := range outbox.Dialects() {
		steps, err := stepsOf(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range (catalogue{dialect: d}).tables() {
			for _, column := range table.columns {
				definition := definitionOf(steps, table.name, column)
				if definition == "" || strings.Contains(definition, "--") || strings.Count(definition, "(") != strings.Count(definition, ")") {
					t.Errorf("%s: %s.%s is %q", d, table.name, column, definition)
				}
				if text := incomplete(d, steps, table.name, []string{column}).Error(); !strings.Contains(text, "lacks "+column+": run ALTER TABLE "+table.name) {
					t.Error(text)
				}
			}
		}
	}
	steps, _ := stepsOf(outbox.SQLite)
	for column, want := range map[string]string{
		"status":     "TEXT NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'SENDING', 'SENT', 'FAILED', 'DEAD'))",
		"topic":      "TEXT CHECK (length(topic) <= 249)",
		"created_at": "TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
	} {
		if got := definitionOf(steps, "outbox_events", column); got != want {
			t.Errorf("%s: %q", column, got)
		}
	}
	want := "table outbox_events lacks created_at: run ALTER TABLE outbox_events RENAME TO outbox_events_old; postrider schema apply, " +
		"then copy over the rows that matter, since none can get the column created_at by itself"
	if got := incomplete(outbox.SQLite, steps, "outbox_events", []string{"created_at"}).Error(); got != want {
		t.Error(got)
	}
}
