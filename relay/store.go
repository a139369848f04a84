package relay

import (
	"context"
	"time"
)

// Fetch is one request of the Poller to a Store.
type Fetch struct {
	// Limit bounds the events returned; at least 1.
	Limit int
	// MaxBytes bounds their Size in sum. One event larger than the bound still comes, alone.
	MaxBytes int64
	// Busy lists rows that were returned before and are not settled yet: they must not come again.
	Busy []RowID
	// Blocked lists the keys whose gates are closed. Rows of these keys must not come, except the row
	// named as Head once it is due (a FAILED row whose time has come).
	Blocked []Blocked
	// Reopened lists the gates that have opened since the last Fetch. Rows of these keys from Head on
	// (inclusive) that are still NEW were passed over or handed back: they are due again, oldest
	// first, before any later row of the key.
	Reopened []Blocked
	// HeadsOnly asks for due rows named as a Head only: so many keys are blocked that new events must
	// wait. Reopened is empty then.
	HeadsOnly bool
}

// Blocked is one closed gate.
type Blocked struct {
	Key  string
	Head RowID // the row in doubt: the oldest of its key that is not settled
}

// Fetched is a Store's answer.
type Fetched struct {
	// Events are due, free of each other's gates, each key's events in ascending row order. Over a
	// sequence of answers no row of a key comes after a later row of that key has come, unless it was
	// not yet committed then.
	Events []Event
	// More says that the limits, not the table, ended the answer: read on without a pause.
	More bool
	// Reclaimed counts SENDING rows taken over because their claim was older than the claim timeout.
	Reclaimed int
}

// Doubt is a FAILED or DEAD row that blocks its key.
type Doubt struct {
	Row   RowID
	Key   string
	State State
	DueIn time.Duration // FAILED: until next_retry_at by the database clock, 0 when due
}

// UnsettledRow is a row that does not say that it was sent or discarded.
type UnsettledRow struct {
	Row     RowID
	EventID string
	State   State // StateNew, StateFailed or StateDead
}

// Store is what the Poller needs of a database. Methods are called from several goroutines: one
// Fetch at a time, Settle beside it.
type Store interface {
	// Acquire waits until nobody works on the table beside whom this relay may not (StoreOptions.Peers) and
	// returns once that is so; it then keeps such relays away until Close. standby is called once if it has to
	// wait, with who holds the table and in which mode ("claim: single").
	//
	// lost is closed when others may be at work. With ClaimSingle that is when the session ends that keeps
	// them away. With the other modes the table is taken anew then, and Fetch fails until it is; lost is closed
	// if others came first. Where sessions cannot keep anybody away (a pooler in between) those modes return
	// at once, and the operator is warned.
	Acquire(ctx context.Context, standby func(holder string)) (lost <-chan struct{}, err error)
	// Doubts lists the FAILED rows and, when DEAD rows block (on_dead: hold), the DEAD ones that were
	// not discarded, oldest first, at most limit; with ClaimLanes those of its own lanes. Called at start,
	// after Acquire, and after Own.
	Doubts(ctx context.Context, limit int) ([]Doubt, error)
	// StillBlocking returns those of rows that still block their key: FAILED, or DEAD and not discarded.
	// The rest were sent, discarded, deleted or made NEW by a person.
	StillBlocking(ctx context.Context, rows []RowID) ([]RowID, error)
	// Fetch returns due events: NEW rows, FAILED rows whose next_retry_at has come, and with ClaimRows
	// SENDING rows whose claim is older than the claim timeout. With ClaimRows the answer's rows have
	// been claimed in a transaction that has ended. No row lock or transaction outlives the call.
	Fetch(ctx context.Context, f Fetch) (Fetched, error)
	// Settle writes outcomes in one set-based statement for all and returns those rows that no longer
	// were as read (lost claims, edits by others): they were left alone. An error means that nothing
	// or an unknown part was written; calling again with the same outcomes is safe.
	//
	// With ClaimLanes, StateSent applies to rows that are NEW, FAILED, or DEAD and not discarded, whatever they
	// were read as: that Kafka has the record is the newer truth than a verdict of a relay which did not know yet
	// that it had lost the lane. What a person discarded stays discarded.
	Settle(ctx context.Context, outs []Outcome) (lost []RowID, err error)
	// Close releases the ownership and the connections.
	Close() error
}

// LaneStore is a Store that relays share by lanes.
type LaneStore interface {
	Store
	// Own sets the lanes that are this relay's, in place of those before (ClaimLanes): rows of other lanes
	// do not come. It is called for every change, before Doubts, and never while a Fetch is under way. What
	// was returned and is not settled stays out as long as Fetch names it as Busy. Reading begins at the
	// lowest Low of the lanes that are new and Low of before. Keys that waited when a Low was told and do not wait
	// any more, a person may have acted meanwhile, have their rows read again as if they were Reopened.
	Own(ctx context.Context, lanes []OwnLane) error
	// Low says what is left to do of this relay's lanes, in a form for Own of any relay on this table, at most
	// 500 characters of ASCII; "" when nothing is known. It begins with the digits of a row below which every row
	// of these lanes is settled, but for rows of keys whose gates are closed: of these the rest may tell.
	Low() string
	// Unsettled returns those of rows that StateSent would apply to, with their event ids and states.
	Unsettled(ctx context.Context, rows []RowID) ([]UnsettledRow, error)
}
