package relay

import (
	"context"
	"time"
)

// Count is a bounded count: Exact is false when counting stopped at the bound.
type Count struct {
	Value int64 `json:"value"`
	Exact bool  `json:"exact"`
}

// Counts is the state of a table at one moment. Counting a big table is how consoles die, so every
// count is bounded.
type Counts struct {
	New, Sending, Failed Count
	// Dead counts the events that wait for a person: not those that one has discarded.
	Dead Count
	// OldestPendingAge is the age, by the database clock, of the oldest event that is neither SENT nor DEAD.
	OldestPendingAge time.Duration
	// BlockedKeys counts keys with a FAILED or blocking DEAD row.
	BlockedKeys Count
}

// Filter selects events. Zero fields do not filter.
type Filter struct {
	States        []State // StateDead are those that wait for a person, StateDiscarded the others
	EventIDs      []string
	Type          string
	AggregateType string
	Key           string
	Topic         string
	Since         time.Duration // created within this long before the database's now
	Error         string        // substring of last_error
	Limit         int           // defaults to 50
	After         RowID         // keyset: rows after this one, in ascending order
}

// EventRow is one row for people: every column but the payload, unless asked for.
type EventRow struct {
	Event
	Status      string // the table's own word
	NextRetryAt time.Time
	LastError   string
	UpdatedAt   time.Time
	SentAt      time.Time
	Receipt     *Receipt
	Discarded   bool
}

// Admin is what operators do to a table: look, retry, discard. Each store implements it.
type Admin interface {
	// Counts counts with each count bounded by bound.
	Counts(ctx context.Context, bound int) (Counts, error)
	// List returns matching rows in ascending row order without payloads.
	List(ctx context.Context, f Filter) ([]EventRow, error)
	// Get returns one row by event id with its payload; found is false when there is none.
	Get(ctx context.Context, eventID string) (row EventRow, found bool, err error)
	// Retry makes FAILED and DEAD rows of the filter due now: FAILED with next_retry_at = now and
	// retry_count 0. Rows in other states are not touched: skipped counts them. A discarded row comes back
	// only when EventIDs names it. dryRun changes nothing.
	Retry(ctx context.Context, f Filter, dryRun bool) (done, skipped int64, err error)
	// Discard gives up DEAD rows: they stay DEAD with "discarded: reason" before their last error and no
	// longer block their key. A table without a last_error column loses the row instead.
	Discard(ctx context.Context, f Filter, reason string, dryRun bool) (done, skipped int64, err error)
	// KeepsDiscarded says whether Discard keeps rows: whether the table has a last_error column.
	KeepsDiscarded() bool
}
