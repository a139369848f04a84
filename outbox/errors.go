package outbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDuplicateEvent is what errors.Is finds in an error of Write when the table already holds an
// event with that id. On PostgreSQL the transaction is aborted by then and can only be rolled back;
// elsewhere only the statement failed.
var ErrDuplicateEvent = errors.New("event id is already in the outbox")

// DuplicateError names the event ids that the database refused as already present.
type DuplicateError struct {
	// EventIDs holds the id that the database named. Where it named none, it holds the ids of the
	// whole refused statement, one of which is the duplicate.
	EventIDs []string
	// Err is the driver's error, nil when the repetition was seen before the statement.
	Err error
}

// Error names at most five of the ids.
func (e *DuplicateError) Error() string {
	const shown = 5
	if len(e.EventIDs) == 1 {
		return fmt.Sprintf("event id %q is already in the outbox", e.EventIDs[0])
	}
	list := strings.Join(e.EventIDs[:min(shown, len(e.EventIDs))], ", ")
	if more := len(e.EventIDs) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return "an event id is already in the outbox: one of " + list
}

// Is reports whether target is ErrDuplicateEvent.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicateEvent }

// Unwrap returns the driver's error.
func (e *DuplicateError) Unwrap() error { return e.Err }

// ValidationError says why an event was refused before any statement was sent: the caller's
// transaction is as it was. Payloads and header values are never part of it.
type ValidationError struct {
	// Index is the event's place among the events of the call, from 0.
	Index int
	// EventID is the event's id, empty when it has none yet or the id itself is at fault.
	EventID string
	// Field is the event's field, such as "Payload" or `Headers["x-sig"]`.
	Field string
	// Column is the table's column that the field goes to, empty when it has none.
	Column string
	// Offset is the position in the field's value, in bytes from 0; -1 when the whole value is meant.
	Offset int
	// Reason says what is wrong.
	Reason string
	// Fix says what to do about it.
	Fix string
}

// Error reads: event 2 (id e-71): Payload, column payload, byte 10: U+0000 cannot be stored ...
func (e *ValidationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %d", e.Index)
	if e.EventID != "" {
		fmt.Fprintf(&b, " (id %s)", e.EventID)
	}
	fmt.Fprintf(&b, ": %s", e.Field)
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s", e.Column)
	}
	if e.Offset >= 0 {
		fmt.Fprintf(&b, ", byte %d", e.Offset)
	}
	fmt.Fprintf(&b, ": %s", e.Reason)
	if e.Fix != "" {
		fmt.Fprintf(&b, "; %s", e.Fix)
	}
	return b.String()
}
