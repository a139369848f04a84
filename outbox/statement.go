package outbox

import (
	"context"
	"fmt"
)

// Statement is one INSERT into the outbox table that is yet to be sent.
type Statement struct {
	// Query is the statement's text, with the dialect's placeholders.
	Query string
	// Args are its arguments, in the order of the placeholders.
	Args []any

	table *table
	rows  []row
}

// Statements returns what Write would execute for the events, for code that sends statements in a way
// of its own: outboxpgx puts them into a batch. They are to be sent in the order given, all of them, in
// the transaction of the business data. Everyone else calls Write, which sees that this is so.
//
// The events are checked, and the options, as Write does it: after an error there are no statements.
// Without events there are none either.
func (w *Writer) Statements(ctx context.Context, events ...Event) ([]Statement, error) {
	if w.err != nil || len(events) == 0 {
		return nil, w.err
	}
	rows, err := w.rows(ctx, events)
	if err != nil {
		return nil, err
	}
	var statements []Statement
	for len(rows) > 0 {
		s := w.table.statement(rows)
		statements = append(statements, s)
		rows = rows[len(s.rows):]
	}
	return statements, nil
}

// Err returns what Write would return when the database answers the statement with err: an error in
// which errors.Is finds err, and ErrDuplicateEvent when err says that. It returns nil for nil.
func (s Statement) Err(err error) error {
	if err == nil {
		return nil
	}
	if dup := s.table.duplicate(err, s.rows); dup != nil {
		err = dup
	}
	return fmt.Errorf("insert into %s: %w", s.table.name, err)
}

// statement is the INSERT of the first of the rows, as many as go into one.
func (t *table) statement(rows []row) Statement {
	rows = rows[:t.fit(rows)]
	query, args := t.insert(rows)
	return Statement{Query: query, Args: args, table: t, rows: rows}
}
