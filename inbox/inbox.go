package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/outbox"
)

// ErrEventID is what errors.Is finds when an event id cannot be recorded at all: empty, too long
// for the column, or not text. The transaction is as it was. Repeating the call cannot help.
var ErrEventID = errors.New("event id cannot be recorded")

// ErrForeignGroup is what errors.Is finds when another group has taken the event in a table whose
// key is the event id alone (Options.EventIDAlone).
var ErrForeignGroup = errors.New("event was taken by another consumer group")

// ErrNoUniqueKey is what errors.Is finds when the table's unique key is not group and event id, so
// that the database would not notice a repetition.
var ErrNoUniqueKey = errors.New("inbox table has no unique key over consumer group and event id")

// Inbox remembers for one consumer group which events it has applied. It holds no connection and is
// safe for use by many goroutines.
type Inbox struct {
	table    table
	group    string
	maxID    int
	err      error
	insert   string
	checkOwn string // finds the group's own row, "" where the key holds the group
}

// New returns the inbox of one consumer group. Wrong options do not panic: Err reports them, all at
// once, and every Once returns them without touching the transaction.
func New(dialect outbox.Dialect, group string, options Options) *Inbox {
	options = options.withDefaults()
	if err := options.check(dialect, group); err != nil {
		return &Inbox{err: fmt.Errorf("configure inbox: %w", err)}
	}
	b := &Inbox{table: newTable(dialect, options), group: group, maxID: options.MaxEventIDLength}
	b.insert = b.table.insert()
	if options.EventIDAlone {
		b.checkOwn = b.table.selectOwn()
	}
	return b
}

// Err reports what is wrong with the arguments given to New, nil when nothing is.
func (b *Inbox) Err() error { return b.err }

// Group returns the consumer group.
func (b *Inbox) Group() string { return b.group }

// Once notes the event within tx and calls handle when the group had not noted it before; fresh
// tells. A duplicate is no error, handle is not called, and the transaction stays usable on every
// database. While another transaction that notes the same event is open, Once waits for its end.
//
// After an error, handle's included, the caller rolls back (to a savepoint set before Once, or
// altogether): the note must not commit without the effect. Errors of handle are returned as they
// are. An open conflict may also surface as the database's own retriable error: a serialisation
// failure on PostgreSQL above READ COMMITTED, a deadlock on MySQL.
func (b *Inbox) Once(
	ctx context.Context, tx outbox.Tx, eventID string, handle func(ctx context.Context) error,
) (fresh bool, err error) {
	if b.err != nil {
		return false, b.err
	}
	if err := checkText(eventID, b.maxID); err != nil {
		return false, fmt.Errorf("%w: it %w", ErrEventID, err)
	}
	fresh, err = b.take(ctx, tx, eventID)
	if err != nil || !fresh {
		return false, err
	}
	return true, handle(ctx)
}

// take inserts the note and reports whether there was none.
func (b *Inbox) take(ctx context.Context, tx outbox.Tx, eventID string) (bool, error) {
	result, err := tx.ExecContext(ctx, b.insert, b.group, eventID)
	switch {
	case err == nil:
	case b.table.isDuplicate(err, b.group, eventID):
		return false, nil
	case b.table.lacksKey(err):
		return false, b.noKey(err)
	default:
		return false, fmt.Errorf("note event in %s: %w", b.table.name, err)
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("note event in %s: read rows affected: %w", b.table.name, err)
	}
	if rows == 0 && b.checkOwn != "" {
		return false, b.ensureOwn(ctx, tx, eventID)
	}
	return rows > 0, nil
}

// ensureOwn tells a repetition from an event that another group took.
func (b *Inbox) ensureOwn(ctx context.Context, tx outbox.Tx, eventID string) error {
	result, err := tx.ExecContext(ctx, b.checkOwn, b.group, eventID)
	if err != nil {
		return fmt.Errorf("look up event in %s: %w", b.table.name, err)
	}
	if rows, err := result.RowsAffected(); err != nil || rows > 0 {
		return err
	}
	return fmt.Errorf("%w: the key of %s is %s alone, so it serves one group; make it (%s, %s)",
		ErrForeignGroup, b.table.name, b.table.eventID, b.table.group, b.table.eventID)
}

// checkText returns an error that continues "it ...".
func checkText(s string, max int) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return errors.New("is not UTF-8 text")
	case len(s) > max && utf8.RuneCountInString(s) > max:
		return fmt.Errorf("has %d characters and the column takes %d", utf8.RuneCountInString(s), max)
	}
	return nil
}
