package schema

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postrider/postrider/outbox"
)

// incomplete builds the error with the statements that add the columns again as the files define them.
// Where a row cannot get such a column afterwards, the way out is a new table beside the old one.
func incomplete(d outbox.Dialect, steps []step, table string, missing []string) *IncompleteError {
	e := &IncompleteError{Table: table, Missing: missing}
	var indexes []string
	for _, column := range missing {
		definition := definitionOf(steps, table, column)
		if !addable(d, definition) {
			e.Fix = []string{fmt.Sprintf("ALTER TABLE %s RENAME TO %s_old", table, table),
				"postrider schema apply, then copy over the rows that matter, since none can get the column " + column + " by itself"}
			return e
		}
		e.Fix = append(e.Fix, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s", table, column, definition))
		indexes = append(indexes, indexesOf(steps, table, column)...)
	}
	e.Fix = append(e.Fix, indexes...)
	return e
}

// definitionOf returns type and constraints of a column as the files have them, on one line.
func definitionOf(steps []step, table, column string) string {
	start := regexp.MustCompile(`^    ` + column + `\s+(.*)`)
	for _, statement := range statementsWith(steps, "CREATE TABLE IF NOT EXISTS "+table+" (") {
		definition := ""
		for line := range strings.Lines(statement) {
			line, _, _ = strings.Cut(line, " --")
			line = strings.TrimRight(line, " \n")
			found := start.FindStringSubmatch(line)
			switch {
			case definition != "" && strings.HasPrefix(line, ")"):
				return definition
			case definition != "":
				definition += " " + strings.TrimSpace(line)
			case found != nil:
				definition = found[1]
			}
			if whole, ended := strings.CutSuffix(definition, ","); ended {
				return strings.TrimSpace(whole)
			}
		}
	}
	return ""
}

// addable says whether a table with rows takes the column.
func addable(d outbox.Dialect, definition string) bool {
	_, byDefault, hasDefault := strings.Cut(definition, "DEFAULT ")
	switch {
	case definition == "", strings.Contains(definition, "PRIMARY KEY"), strings.Contains(definition, "AUTO_INCREMENT"):
		return false
	case d == outbox.SQLite && strings.HasPrefix(byDefault, "("):
		return false // SQLite wants a constant there
	default:
		return hasDefault || !strings.Contains(definition, "NOT NULL")
	}
}

// indexesOf returns the statements of the indexes that were lost with a column.
func indexesOf(steps []step, table, column string) (indexes []string) {
	for _, statement := range statementsWith(steps, "CREATE INDEX IF NOT EXISTS ") {
		line := strings.Join(strings.Fields(statement), " ")
		if strings.Contains(line, " ON "+table+" ") && strings.Contains(line, column) {
			indexes = append(indexes, line)
		}
	}
	return indexes
}

func statementsWith(steps []step, beginning string) (all []string) {
	for _, s := range steps {
		for _, statement := range s.statements() {
			if strings.HasPrefix(statement, beginning) {
				all = append(all, statement)
			}
		}
	}
	return all
}
