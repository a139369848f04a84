package outbox

import (
	"context"
	"errors"
	"fmt"
)

// Writer writes events to one outbox table. It holds no connection and no state, so one Writer
// serves a whole process and is safe for use by many goroutines.
type Writer struct {
	table table
	trace func(ctx context.Context) (traceparent, tracestate string)
	err   error
}

// New returns a Writer for a table of a database. Wrong options do not panic: Err reports them, all
// at once, and every Write returns them without touching the transaction.
func New(dialect Dialect, options Options) *Writer {
	options = options.WithDefaults(dialect)
	if err := options.check(dialect); err != nil {
		return &Writer{err: fmt.Errorf("configure outbox writer: %w", err)}
	}
	return &Writer{table: newTable(dialect, options), trace: options.TraceContext}
}

// Err reports what is wrong with the dialect or the options given to New, nil when nothing is. A
// service calls it once at start.
func (w *Writer) Err() error { return w.err }

// Write inserts the events into the outbox table within the caller's transaction, in the order
// given, by one INSERT. Only a set beyond the server's parameter limit or beyond 1 MiB is split into
// several. Without events it does nothing.
//
// Every event is checked before the first statement is sent: a *ValidationError leaves the
// transaction as it was. An event id that the table already has is an error in which errors.Is finds
// ErrDuplicateEvent; the same id twice in one call is seen before the statement. After any other
// error of the database, roll back: on PostgreSQL the transaction is aborted.
//
// Write never commits and never repeats anything. Whether an event is published is decided by the
// caller's COMMIT alone.
func (w *Writer) Write(ctx context.Context, tx Tx, events ...Event) error {
	if w.err != nil {
		return w.err
	}
	if len(events) == 0 {
		return nil
	}
	if tx == nil {
		return errors.New("write events: the transaction is nil")
	}
	rows, err := w.rows(ctx, events)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		s := w.table.statement(rows)
		if _, err := tx.ExecContext(ctx, s.Query, s.Args...); err != nil {
			return s.Err(err)
		}
		rows = rows[len(s.rows):]
	}
	return nil
}

// rows validates the events and turns them into what the statement needs.
func (w *Writer) rows(ctx context.Context, events []Event) ([]row, error) {
	var traceparent, tracestate string
	if w.trace != nil && w.table.has(headersField) {
		traceparent, tracestate = w.trace(ctx)
		traceparent, tracestate = traceText(traceparent), traceText(tracestate)
	}
	rows := make([]row, len(events))
	for i := range events {
		r, fault := w.table.row(&events[i], traceparent, tracestate)
		if fault != nil {
			fault.Index = i
			if fault.Field != "ID" {
				fault.EventID = r.id
			}
			return nil, fault
		}
		rows[i] = r
	}
	if id, twice := repeatedID(rows); twice {
		return nil, fmt.Errorf("write events: the same id twice in one call: %w", &DuplicateError{EventIDs: []string{id}})
	}
	return rows, nil
}

func repeatedID(rows []row) (string, bool) {
	if len(rows) == 1 {
		return "", false
	}
	seen := make(map[string]struct{}, len(rows))
	for i := range rows {
		if _, twice := seen[rows[i].id]; twice {
			return rows[i].id, true
		}
		seen[rows[i].id] = struct{}{}
	}
	return "", false
}
