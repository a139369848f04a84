// Package schema owns the product's tables: plain numbered SQL per database, embedded, printed for
// people with their own migration tool, or applied. It refuses to know how the tables are written
// or relayed, and it imports no driver.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
)

//go:embed postgres/*.sql mysql/*.sql mariadb/*.sql sqlite/*.sql
var files embed.FS

// tables lists what a complete installation has, for Status. The columns' types are the SQL's matter.
var tables = []table{
	{name: "outbox_events", columns: []string{
		"id", "event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "message_key", "payload",
		"headers", "status", "retry_count", "next_retry_at", "last_error", "created_at", "updated_at", "sent_at",
		"kafka_topic", "kafka_partition", "kafka_offset",
	}},
	{name: "outbox_cursor", columns: []string{"name", "low_id", "updated_at"}, only: outbox.Postgres},
	{name: "inbox_events", columns: []string{"consumer_group", "event_id", "processed_at"}},
	{name: versionTable, columns: []string{"version", "applied_at"}},
}

const versionTable = "postrider_schema"

type table struct {
	name    string
	columns []string
	only    outbox.Dialect // "": on every database
}

// step is one numbered file. Running it twice changes nothing, and its last statement notes its
// version, so that files run by another tool are known too.
type step struct {
	version int
	name    string // 0001_outbox
	text    string
}

// stepsOf returns the files of a dialect in ascending order.
func stepsOf(d outbox.Dialect) ([]step, error) {
	if _, err := outbox.ParseDialect(string(d)); err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, string(d)+"/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]step, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimSuffix(path.Base(name), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("schema file %s: want number %04d", name, i+1)
		}
		steps[i] = step{version, name, string(text)}
	}
	return steps, nil
}

// statements splits a step into what a driver takes at once. Only a semicolon at the end of a line
// ends a statement, and lines of comment alone are left out.
func (s step) statements() []string {
	var all []string
	var b strings.Builder
	for line := range strings.Lines(s.text) {
		if strings.HasPrefix(strings.TrimSpace(line), "--") || strings.TrimSpace(line) == "" {
			continue
		}
		b.WriteString(line)
		if strings.HasSuffix(strings.TrimSpace(line), ";") {
			all = append(all, strings.TrimSuffix(strings.TrimSpace(b.String()), ";"))
			b.Reset()
		}
	}
	return all
}

// Print returns the SQL of every version in order, ready for the database's own client or another
// migration tool. An unknown dialect gives an empty text.
func Print(d outbox.Dialect) string {
	steps, err := stepsOf(d)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for i, s := range steps {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.text)
	}
	return b.String()
}

// Latest returns the newest version that this program knows, 0 for an unknown dialect.
func Latest(d outbox.Dialect) int {
	steps, _ := stepsOf(d)
	return len(steps)
}
