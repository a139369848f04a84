package inbox

import (
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/outbox"
)

// Columns gives the table's own names. Empty means the product's own name.
type Columns struct {
	ConsumerGroup string // consumer_group
	EventID       string // event_id
}

// Options describe the inbox table. The zero value is the product's own table, inbox_events.
// ArticlePostgres and ArticleMySQL return the options of known tables.
type Options struct {
	// Table is the table's name, read as outbox.Dialect.QuoteTable does. Defaults to inbox_events.
	Table string

	// Columns maps what is filled to the table's columns.
	Columns Columns

	// Set fills further columns with SQL expressions, which the database evaluates:
	// {"consumed_at": "NOW()"}. Column names are quoted, expressions are pasted as they are: never
	// build one from input. Nil: no further columns.
	Set map[string]string

	// MaxEventIDLength is the id column's limit in characters. A longer id is refused, since a
	// database that cuts it would take two events for one. Defaults to 255.
	MaxEventIDLength int

	// MaxGroupLength is the group column's limit in characters. Defaults to 255.
	MaxGroupLength int

	// EventIDAlone says that the table's unique key is the event id without the group, as in the
	// table of ArticlePostgres. Such a table serves one group only: Once notices an event that another
	// group took and returns ErrForeignGroup instead of hiding it. PostgreSQL only. Defaults to false:
	// the key is group and event id, in any order.
	EventIDAlone bool
}

// ArticlePostgres returns the options for the processed_events table that many PostgreSQL services
// copied from one another. Its primary key is event_id alone, so it serves one consumer group.
func ArticlePostgres() Options {
	return Options{Table: "processed_events", MaxEventIDLength: 64, MaxGroupLength: 128, EventIDAlone: true}
}

// ArticleMySQL returns the options for the consumed_event table of many MySQL services, which is
// unique over event_id and consumer_name. The database's clock fills consumed_at.
func ArticleMySQL() Options {
	return Options{
		Table:            "consumed_event",
		Columns:          Columns{ConsumerGroup: "consumer_name"},
		Set:              map[string]string{"consumed_at": "NOW()"},
		MaxEventIDLength: 64, MaxGroupLength: 128,
	}
}

func (o Options) withDefaults() Options {
	if o.Table == "" {
		o.Table = "inbox_events"
	}
	if o.Columns.ConsumerGroup == "" {
		o.Columns.ConsumerGroup = "consumer_group"
	}
	if o.Columns.EventID == "" {
		o.Columns.EventID = "event_id"
	}
	if o.MaxEventIDLength == 0 {
		o.MaxEventIDLength = 255
	}
	if o.MaxGroupLength == 0 {
		o.MaxGroupLength = 255
	}
	return o
}

// check reports everything that is wrong with options whose defaults are filled in.
func (o Options) check(d outbox.Dialect, group string) error {
	var errs []error
	if !slices.Contains(outbox.Dialects(), d) {
		_, err := outbox.ParseDialect(string(d))
		errs = append(errs, err)
	}
	if err := checkText(group, o.MaxGroupLength); err != nil {
		errs = append(errs, fmt.Errorf("consumer group %w", err))
	}
	if _, err := outbox.SplitTable(o.Table); err != nil {
		errs = append(errs, fmt.Errorf("Options.Table: %w", err))
	}
	if o.EventIDAlone && d != outbox.Postgres {
		errs = append(errs, errors.New("Options.EventIDAlone: only PostgreSQL tells whose an event is; make group and event id the key"))
	}
	if o.Columns.ConsumerGroup == o.Columns.EventID {
		errs = append(errs, fmt.Errorf("Options.Columns: %q is both group and event id", o.Columns.EventID))
	}
	for _, column := range []string{o.Columns.ConsumerGroup, o.Columns.EventID} {
		if _, twice := o.Set[column]; twice {
			errs = append(errs, fmt.Errorf("Options.Set: column %q is filled already", column))
		}
	}
	return errors.Join(errs...)
}
