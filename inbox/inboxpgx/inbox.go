// Package inboxpgx runs a handler once per event and consumer group within a pgx transaction. It is
// package inbox for services that use pgx without database/sql.
//
// It owns the step from a pgx.Tx to the inbox's transaction and nothing else.
package inboxpgx

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// Inbox remembers for one consumer group which events it has applied. It holds no connection and is
// safe for use by many goroutines.
type Inbox struct{ inbox *inbox.Inbox }

// New returns the inbox of one consumer group. Wrong options do not panic: Err reports them, and so
// does every Once.
func New(group string, options inbox.Options) *Inbox {
	return &Inbox{inbox.New(outbox.Postgres, group, options)}
}

// Err reports what is wrong with the arguments given to New, nil when nothing is.
func (b *Inbox) Err() error { return b.inbox.Err() }

// Group returns the consumer group.
func (b *Inbox) Group() string { return b.inbox.Group() }

// Once notes the event within tx and calls handle when the group had not noted it before, as
// inbox.Inbox.Once does.
func (b *Inbox) Once(
	ctx context.Context, tx pgx.Tx, eventID string, handle func(ctx context.Context) error,
) (fresh bool, err error) {
	return b.inbox.Once(ctx, outboxpgx.Tx(ctx, tx), eventID, handle)
}
