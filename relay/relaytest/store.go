package relaytest

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

// Store is what a database package implements: the poller's needs and the operators'.
type Store interface {
	relay.LaneStore
	relay.Admin
}

// Harness says how the suite reaches one kind of table on one database.
type Harness struct {
	// Table makes an empty outbox table of the test's own, gone at its end. Tests run in parallel.
	Table func(t *testing.T) Table
	// Claims lists the claim modes that the suite tries. Defaults to single and rows.
	Claims []relay.ClaimMode
	// Traits say what the layout can hold, so that the suite skips what it cannot.
	Traits Traits
}

// Table is one empty outbox table and the ways around the store: what a service writes, what an
// operator changes by SQL, what is really in a row.
type Table interface {
	// Open opens a store on the table. The harness fills URL and Table; the suite sets the rest. The
	// store is closed at the test's end if the test has not done so.
	Open(ctx context.Context, o relay.StoreOptions) (Store, error)
	// Begin starts a business transaction on a connection of its own. It is rolled back at the test's
	// end if it is still open.
	Begin(t *testing.T) Tx
	// Row reads a row by event id, outside the store; ok is false when there is none.
	Row(t *testing.T, eventID string) (row Row, ok bool)
	// Edit changes a row as a person would by SQL, outside the store.
	Edit(t *testing.T, eventID string, e Edit)
}

// Tx is a business transaction that the suite holds open as long as it likes. Its methods end the
// test on errors.
type Tx interface {
	// Insert writes rows in the given order in one or more statements.
	Insert(rows ...NewRow)
	Commit()
	Rollback()
}

// NewRow is what a service writes. Columns that the layout lacks are left out; zero fields take the
// values of a plain event. The state is the column's default (NEW).
type NewRow struct {
	EventID       string
	AggregateType string  // defaults to "order"
	AggregateID   string  // the ordering key where Key is nil
	Type          string  // defaults to "OrderCreated"
	Topic         string  // "" is NULL where the column takes it, else "orders"
	Key           *string // message_key; nil is NULL where the column takes it, else AggregateID
	Payload       []byte  // nil is `{}` unless Tombstone
	Tombstone     bool    // payload NULL; used only with Traits.NullPayload
	Headers       string  // the column's text; "" is NULL where the column takes it, else {}
}

// Row is what is really in the table.
type Row struct {
	ID         relay.RowID
	State      relay.State // by the table's words; NEW for the word of NEW even where FAILED shares it
	RetryCount int
	// DueIn is next_retry_at minus the database's now; HasDue is false for NULL, and for a value that
	// means never ('infinity').
	DueIn     time.Duration
	HasDue    bool
	LastError string // "" for NULL or no such column
	Payload   []byte // as the database gives the column's text or bytes
	SentAgo   time.Duration
	HasSent   bool           // sent_at is not NULL
	Receipt   *relay.Receipt // nil while kafka_offset is NULL, or no such columns
}

// Edit names what changes; nil fields stay. Times are relative to the database's now.
type Edit struct {
	State      *relay.State
	RetryCount *int
	DueIn      *time.Duration // next_retry_at = now + DueIn
	// ClaimAge makes the claim this old: the column that carries it (updated_at, else next_retry_at) is
	// set back, and whatever else the store's layout uses to find abandoned rows.
	ClaimAge  *time.Duration
	LastError *string
	Delete    bool
}

// Traits are what a layout and its database can hold. The zero value is the product's own table on a
// server with many writers.
type Traits struct {
	OneWriter    bool // a transaction keeps other writers out, so ids become visible in order (SQLite)
	NoMessageKey bool // no message_key column: aggregate_id is the key
	NoTopic      bool
	NoHeaders    bool
	NoLastError  bool
	NoReceipt    bool
	NoSentAt     bool
	NoStatus     bool // sent rows are deleted
	FailedIsNew  bool // FAILED shares the word of NEW
	HeadersJSON  bool // the headers column takes valid JSON only, so malformed text cannot be stored
	// NormalizesHeaders: the headers column keeps neither order nor doubles (jsonb, MySQL JSON).
	NormalizesHeaders bool
	// NormalizesPayload: what the column returns is the database's own text of the JSON written.
	NormalizesPayload bool
	JSONPayload       bool // the payload column takes valid JSON only
	TextPayload       bool // the payload column takes text: no NUL, valid UTF-8
	NullPayload       bool // the payload column takes NULL
	LastErrorMax      int  // length of last_error in characters; 0 is unlimited
	KeepsLow          bool // with claim: lanes the scan has a position, which Low tells
	NulKeys           bool // a key may contain NUL
	NoPeers           bool // nobody can be kept away from the table (a pooler)
}

// RunStore runs the conformance suite: every sentence of the contracts of relay.Store and relay.Admin.
func RunStore(t *testing.T, h Harness) {
	if len(h.Claims) == 0 {
		h.Claims = []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows}
	}
	for _, claim := range h.Claims {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			for _, c := range storeCases() {
				if c.skip != nil && c.skip(h.Traits) || c.only != "" && c.only != claim || c.except == claim {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newBed(t, h, claim))
				})
			}
		})
	}
}

// storeCase is one test of the suite. Cases that a layout cannot run are left out, not skipped: what
// a harness declares is the place to look for them.
type storeCase struct {
	name   string
	run    func(*bed)
	only   relay.ClaimMode      // "" for all modes
	except relay.ClaimMode      // "" for none
	skip   func(tr Traits) bool // nil: for every layout
}

func storeCases() []storeCase {
	var all []storeCase
	for _, group := range [][]storeCase{
		fetchCases(), limitCases(), gateCases(), settleCases(), claimCases(), contentCases(),
		ownerCases(), peerCases(), adminCases(), historyCases(), laneCases(), laneMarkCases(), laneWaitCases(),
	} {
		all = append(all, group...)
	}
	return all
}
