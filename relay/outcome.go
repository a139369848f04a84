package relay

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Class says whose trouble a failure is, and so what it may cost.
type Class string

// The classes of failures.
const (
	// ClassRetriable is a verdict on this record that may change: it costs the event an attempt.
	ClassRetriable Class = "retriable"
	// ClassPermanent is a verdict on this record that cannot change: the event is DEAD at once.
	ClassPermanent Class = "permanent"
	// ClassUnavailable is trouble of the cluster, the network or one destination. It costs no event
	// an attempt, however long it lasts.
	ClassUnavailable Class = "unavailable"
	// ClassRelay is trouble of this relay's own set-up (authentication, permission on the cluster,
	// protocol version). It costs no attempt either, but will not pass without a person.
	ClassRelay Class = "relay"
	// ClassHeld marks a record that the sink did not send because an earlier record of its key was
	// refused. The event goes back unsent, nothing is counted.
	ClassHeld Class = "held"
	// ClassFenced marks a record whose lane went to another relay before it was committed. That relay
	// sends the event: nothing is counted, written or waited for.
	ClassFenced Class = "fenced"
)

// Failure is a sink's account of a record that was not acknowledged. Its text never holds payload,
// key or header values.
type Failure struct {
	Class Class
	Code  string        // the Kafka error name, e.g. MESSAGE_TOO_LARGE, or a name of our own for local checks
	Text  string        // one sentence of facts: topic, sizes, limits
	Hint  string        // the next step for a person; may be empty
	Grace time.Duration // for ClassPermanent: give up only after the event has failed this way for so long; 0 at once
}

// Error is the form kept in last_error and in logs.
func (f *Failure) Error() string {
	s := fmt.Sprintf("[%s] %s: %s", f.Class, f.Code, f.Text)
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

// Result is what became of one record: a receipt, or a failure.
type Result struct {
	Receipt Receipt
	Failure *Failure // nil: acknowledged by all in-sync replicas
	// Marked, when set (only for records with a Row), is called once when the table shows the outcome, or when it never will because the
	// row had changed. Until then the sink keeps its own note that the event was sent.
	Marked func()
}

// Outcome is what the Store writes to one row. State is StateSent, StateFailed, StateDead, or
// StateNew for an event that goes back unsent (attempts unchanged).
type Outcome struct {
	Row     RowID
	EventID string
	Claim   string // as read; the mark applies only while the row still carries it
	From    State  // the state as read; the mark applies only while the row is still in it
	State   State

	Receipt    Receipt       // StateSent
	Attempt    bool          // StateFailed, StateDead: add one to retry_count
	RetryAfter time.Duration // StateFailed: next_retry_at = database clock + this
	LastError  string        // StateFailed, StateDead
}

// Sink brings records to Kafka.
type Sink interface {
	// Write hands records over in order and calls report exactly once for each, from any goroutine,
	// possibly after Write has returned. It returns when all are reported, or earlier once what is left
	// has waited longer than the sink's patience (a destination that does not answer must not hold up
	// the others): the rest is reported when its fate is known, never guessed.
	//
	// The memory of a record is the caller's again once it is reported: the sink does not look at recs[i] after
	// report(i, …).
	//
	// Records of one key reach their partition in the order given. When a record is refused, later
	// records of its key that were already handed over are not written: they are reported as ClassHeld.
	// Records for a partition that still owes an answer from an earlier Write are reported at once as
	// ClassUnavailable. Whether it owes one is asked once a Write: were it to answer between two records
	// of a key, the second would be written without the first.
	//
	// When ctx ends, Write returns; records whose fate is unknown stay unreported until Close.
	Write(ctx context.Context, recs []Record, report func(i int, r Result))
	// Close waits for outstanding answers until ctx ends, then drops what is left: after it has
	// returned, report is not called again and nothing more is written to Kafka.
	Close(ctx context.Context) error
}

// SetupKind sorts set-up errors by the exit code they lead to.
type SetupKind int

// The kinds of set-up errors, each with its exit code.
const (
	SetupUsage       SetupKind = 2 // configuration or table cannot work as told
	SetupNotFound    SetupKind = 4 // a named thing does not exist
	SetupConflict    SetupKind = 5 // something else is in the way
	SetupUnreachable SetupKind = 6 // a server does not answer: worth waiting for
	SetupPermission  SetupKind = 7 // a right is missing
)

// SetupError is a problem that a person must solve: the thing, why it cannot work, and the next step.
type SetupError struct {
	Kind   SetupKind
	Thing  string // "table \"public\".\"outbox_events\"", "kafka.bootstrap.servers", …
	Reason string
	Fix    string // a statement or an action
	Err    error  // the driver's error, redacted; may be nil
}

// Error is one line: thing, reason, next step.
func (e *SetupError) Error() string {
	s := e.Thing + ": " + e.Reason
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Unwrap gives the driver's error.
func (e *SetupError) Unwrap() error { return e.Err }

// AsSetup returns the SetupError in err's chain, or nil.
func AsSetup(err error) *SetupError {
	var s *SetupError
	if errors.As(err, &s) {
		return s
	}
	return nil
}
