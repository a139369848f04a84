package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/relay"
)

var (
	intTypes    = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
	textTypes   = []string{"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
	binaryTypes = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
	timeTypes   = []string{"datetime", "timestamp"}
)

func isBinary(dataType string) bool { return slices.Contains(binaryTypes, dataType) }

// checkMode refuses combinations that could lose track of an event.
func (l *layout) checkMode() error {
	if c, ok := l.catalog.column(l.cols.NextRetryAt); ok {
		l.nullNRA = c.nullable
	}
	if l.cols.Status == "" {
		if !l.delete {
			return usage("outbox.columns.status", "the table has no status column, so a sent row cannot be told from a new one",
				"set relay.after_send: delete, or add the column")
		}
		if l.claim == relay.ClaimRows {
			return usage("relay.claim", "rows needs a status column to write SENDING to", "use claim: lanes")
		}
		l.notices = append(l.notices, "the table has no status column: what a row cannot say of failed and dead events is remembered only while the relay runs")
		return nil
	}
	if l.cols.NextRetryAt == "" {
		return usage("outbox.columns.next_retry_at", "the table has a status but no time for the next attempt",
			"ALTER TABLE "+l.table+" ADD COLUMN next_retry_at DATETIME(6)")
	}
	if l.cols.RetryCount == "" {
		return usage("outbox.columns.retry_count", "the table has a status but no count of attempts",
			"ALTER TABLE "+l.table+" ADD COLUMN retry_count INT NOT NULL DEFAULT 0")
	}
	return nil
}

// checkTypes wants columns that can hold what the relay reads and writes.
func (l *layout) checkTypes() error {
	body := slices.Concat(textTypes, binaryTypes, []string{"json"})
	name := slices.Concat(intTypes, body, []string{"enum", "uuid", "decimal"})
	for _, want := range []struct {
		field, column string
		types         []string
		what          string
	}{
		{"payload", l.cols.Payload, body, "JSON, text or a blob"},
		{"headers", l.cols.Headers, body, "JSON, text or a blob"},
		{"message_key", l.cols.MessageKey, name, "text, a number or binary"},
		{"aggregate_id", l.cols.AggregateID, name, "text, a number or binary"},
		{"status", l.cols.Status, slices.Concat(intTypes, textTypes, []string{"enum"}), "text, ENUM or a number"},
		{"retry_count", l.cols.RetryCount, intTypes, "a number"},
		{"last_error", l.cols.LastError, textTypes, "text"},
		{"next_retry_at", l.cols.NextRetryAt, timeTypes, "DATETIME or TIMESTAMP"},
		{"created_at", l.cols.CreatedAt, timeTypes, "DATETIME or TIMESTAMP"},
		{"updated_at", l.cols.UpdatedAt, timeTypes, "DATETIME or TIMESTAMP"},
		{"sent_at", l.cols.SentAt, timeTypes, "DATETIME or TIMESTAMP"},
		{"kafka_topic", l.cols.KafkaTopic, textTypes, "text"},
		{"kafka_partition", l.cols.KafkaPartition, intTypes, "a number"},
		{"kafka_offset", l.cols.KafkaOffset, []string{"bigint"}, "BIGINT"},
	} {
		c, ok := l.catalog.column(want.column)
		if ok && !slices.Contains(want.types, c.dataType) {
			return usage(fmt.Sprintf("column %s of table %s", col(c.name), l.table),
				fmt.Sprintf("is %s and outbox.columns.%s needs %s", c.fullType, want.field, want.what),
				"map another column, or change its type")
		}
	}
	for _, name := range []string{l.cols.Payload, l.cols.Headers} {
		if c, _ := l.catalog.column(name); c.dataType == "json" {
			l.notices = append(l.notices, fmt.Sprintf(
				"column %q is JSON: the server rewrites what services store (order of names, spaces, numbers), and that text is what is sent", c.name))
		}
	}
	return nil
}

// checkIDs wants an id that grows with the order of writing and belongs to one row.
func (l *layout) checkIDs() error {
	thing := fmt.Sprintf("column %s of table %s", col(l.cols.ID), l.table)
	c, _ := l.catalog.column(l.cols.ID)
	if !slices.Contains(intTypes, c.dataType) {
		fix := "map an AUTO_INCREMENT column with outbox.columns.id"
		if l.cols.EventID == "" || l.cols.EventID == c.name {
			fix += ", and this one with outbox.columns.event_id"
		}
		return usage(thing, fmt.Sprintf("is %s, which does not tell in which order rows were written", c.fullType),
			fix+"; adding one rewrites the table and locks it meanwhile")
	}
	l.unsigned = strings.Contains(c.fullType, "unsigned")
	if !l.catalog.unique(l.cols.ID) {
		return usage(thing, "has no unique index of its own, so a mark could meet two rows or lock others",
			"ALTER TABLE "+l.table+" ADD UNIQUE ("+col(c.name)+")")
	}
	if l.cols.EventID == "" {
		l.notices = append(l.notices, "no event id column is mapped: the row's id is the event's id")
	} else if !l.catalog.unique(l.cols.EventID) {
		l.notices = append(l.notices, fmt.Sprintf("column %q has no unique index: nothing keeps a service from writing an event twice", l.cols.EventID))
	}
	return nil
}

// checkStates wants a status column that takes every word that would be written.
func (l *layout) checkStates(ctx context.Context, db *sql.DB) error {
	if l.cols.Status == "" {
		return nil
	}
	words := []struct{ state, word string }{{"new", l.states.New}, {"failed", l.states.Failed}, {"dead", l.states.Dead}}
	if !l.delete {
		words = append(words, struct{ state, word string }{"sent", l.states.Sent})
	}
	if l.claim == relay.ClaimRows {
		words = append(words, struct{ state, word string }{"sending", l.states.Sending})
	}
	c, _ := l.catalog.column(l.cols.Status)
	for _, w := range words {
		why := ""
		switch {
		case w.word == "":
			return usage("outbox.states."+w.state, "is empty", "set the word that the table uses")
		case c.dataType == "enum" && !slices.ContainsFunc(enumWords(c.fullType), func(e string) bool { return strings.EqualFold(e, w.word) }):
			why = "is " + c.fullType
		case slices.Contains(intTypes, c.dataType) && strings.Trim(w.word, "0123456789") != "":
			why = "is " + c.fullType
		case slices.Contains(textTypes, c.dataType) && int64(utf8.RuneCountInString(w.word)) > c.length:
			why = "is " + c.fullType
		default:
			why = l.refusedByCheck(ctx, db, w.word)
		}
		if why != "" {
			return usage(fmt.Sprintf("column %s of table %s", col(c.name), l.table),
				fmt.Sprintf("%s and does not take %q", why, w.word),
				"set outbox.states."+w.state+" to a word that the table knows, or extend the column")
		}
	}
	return nil
}

// refusedByCheck asks the server itself to evaluate the CHECKs for a word. A clause that speaks of
// other columns too is an error to it, and not judged here.
func (l *layout) refusedByCheck(ctx context.Context, db *sql.DB, word string) string {
	collation := "utf8mb4_bin"
	if c, _ := l.catalog.column(l.cols.Status); c.anyCase {
		collation = "utf8mb4_general_ci"
	}
	for _, clause := range l.catalog.checks {
		var ok sql.NullBool
		err := db.QueryRowContext(ctx, fmt.Sprintf("SELECT (%s) FROM (SELECT %s COLLATE %s AS %s) t", clause,
			quote(word), collation, col(l.cols.Status))).Scan(&ok)
		if err == nil && ok.Valid && !ok.Bool {
			return "has CHECK (" + clause + ")"
		}
	}
	return ""
}

// enumWords reads enum('A','B'), in which a quote is doubled.
func enumWords(fullType string) []string {
	list := fullType[strings.IndexByte(fullType, '(')+1:]
	var words []string
	for {
		open := strings.IndexByte(list, '\'')
		if open < 0 {
			return words
		}
		list = list[open+1:]
		var word strings.Builder
		for {
			end := strings.IndexByte(list, '\'')
			if end < 0 {
				return words
			}
			word.WriteString(list[:end])
			list = list[end+1:]
			if !strings.HasPrefix(list, "'") {
				break
			}
			word.WriteByte('\'')
			list = list[1:]
		}
		words = append(words, word.String())
	}
}

// checkRights runs the relay's statements on no row: the server checks rights, and whether it may be
// written at all, before it looks for rows.
func (l *layout) checkRights(ctx context.Context, db *sql.DB, s server) error {
	var sets []string
	for _, name := range l.written() {
		sets = append(sets, col(name)+" = "+col(name))
	}
	statements := map[string]string{}
	if len(sets) > 0 {
		statements["UPDATE"] = fmt.Sprintf("UPDATE %s SET %s WHERE 1 = 0", l.table, strings.Join(sets, ", "))
	}
	if l.delete {
		statements["DELETE"] = fmt.Sprintf("DELETE FROM %s WHERE 1 = 0", l.table)
	}
	for _, right := range []string{"UPDATE", "DELETE"} {
		if statements[right] == "" {
			continue
		}
		_, err := db.ExecContext(ctx, statements[right])
		switch number(err) {
		case errNoTableRight, errNoColumnRight:
			return l.catalog.right(s, fmt.Sprintf("user %s may not %s its rows", s.user, right), right, err)
		case errReadOnlyServer, errReadOnlyTx:
			return &relay.SetupError{Kind: relay.SetupUsage, Thing: "server", Reason: "is read-only: " + reason(err),
				Err: err,
				Fix: "point database.url at the primary, or make this server (or the user's transaction_read_only) writable"}
		}
		if err != nil {
			return fmt.Errorf("try to mark rows of %s: %w", l.table, err)
		}
	}
	return nil
}

// written lists the columns that marks write.
func (l *layout) written() []string {
	var names []string
	for _, name := range []string{
		l.cols.Status, l.cols.RetryCount, l.cols.NextRetryAt, l.cols.LastError, l.cols.UpdatedAt, l.cols.SentAt,
		l.cols.KafkaTopic, l.cols.KafkaPartition, l.cols.KafkaOffset,
	} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
