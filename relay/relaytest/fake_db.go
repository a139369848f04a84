package relaytest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// FakeDB is an outbox table in memory, with transactions, sessions and a clock of its own. It stands in
// for a database where a test wants virtual time, or faults that a real one would not commit. Its
// methods may be called from several goroutines.
type FakeDB struct {
	// Skew is the database's clock minus this process's. To be set before use.
	Skew time.Duration

	mu      sync.Mutex
	lastID  int64
	open    map[int64]bool // ids drawn by transactions that have not ended
	rows    []*fakeRow     // committed, not SENT, ascending by id
	byEvent map[string][]*fakeRow
	claims  int
	owners  []*FakeStore  // relays at work
	freed   chan struct{} // closed, and made anew, when one of them ends
}

// fakeRow is one committed row.
type fakeRow struct {
	NewRow
	id        int64
	malformed error
	state     relay.State
	attempts  int
	due       time.Time // next_retry_at; zero is NULL
	token     string    // the claim, while SENDING
	reclaims  int
	claimed   time.Time
	lastError string
	created   time.Time
	sent      time.Time
	receipt   *relay.Receipt
}

// FakeRow is what a FakeDB shows of one row.
type FakeRow struct {
	ID        relay.RowID
	EventID   string
	Key       *string // nil without a key
	State     relay.State
	Attempts  int
	DueAt     time.Time // next_retry_at by the database's clock; zero for NULL
	LastError string
	Receipt   *relay.Receipt
	Reclaims  int // how often an abandoned claim on it was taken over
}

// NewFakeDB makes an empty table.
func NewFakeDB() *FakeDB {
	return &FakeDB{open: map[int64]bool{}, byEvent: map[string][]*fakeRow{}, freed: make(chan struct{})}
}

// FakeTx is a business transaction. Ids are drawn at the insert, rows are seen from the commit on.
type FakeTx struct {
	db   *FakeDB
	rows []*fakeRow
}

// Begin starts a transaction.
func (db *FakeDB) Begin() *FakeTx { return &FakeTx{db: db} }

// Insert writes rows in order.
func (tx *FakeTx) Insert(rows ...NewRow) {
	for _, r := range rows {
		tx.insert(r, nil)
	}
}

// InsertMalformed writes a row that no Store can turn into a record, for the reason given.
func (tx *FakeTx) InsertMalformed(r NewRow, reason error) { tx.insert(r, reason) }

func (tx *FakeTx) insert(r NewRow, malformed error) {
	r.AggregateType = cmp.Or(r.AggregateType, "order")
	r.Type = cmp.Or(r.Type, "OrderCreated")
	if r.Payload == nil && !r.Tombstone {
		r.Payload = []byte("{}")
	}
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.db.lastID++
	tx.db.open[tx.db.lastID] = true
	tx.rows = append(tx.rows, &fakeRow{NewRow: r, id: tx.db.lastID, malformed: malformed, state: relay.StateNew, created: tx.db.now()})
}

// Commit makes the rows visible, all at once. It does nothing on a transaction that has ended.
func (tx *FakeTx) Commit() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	for _, r := range tx.rows {
		delete(tx.db.open, r.id)
		i, _ := tx.db.find(r.id)
		tx.db.rows = slices.Insert(tx.db.rows, i, r)
		tx.db.byEvent[r.EventID] = append(tx.db.byEvent[r.EventID], r)
	}
	tx.rows = nil
}

// Rollback drops the rows; their ids are never used again.
func (tx *FakeTx) Rollback() {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	for _, r := range tx.rows {
		delete(tx.db.open, r.id)
	}
	tx.rows = nil
}

// Row returns the row of an event.
func (db *FakeDB) Row(eventID string) (FakeRow, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	r := db.event(eventID)
	if r == nil {
		return FakeRow{}, false
	}
	return r.show(), true
}

// Pending returns the rows that are not SENT, ascending.
func (db *FakeDB) Pending() []FakeRow {
	db.mu.Lock()
	defer db.mu.Unlock()
	out := make([]FakeRow, len(db.rows))
	for i, r := range db.rows {
		out[i] = r.show()
	}
	return out
}

// Now is the database's clock.
func (db *FakeDB) Now() time.Time { return db.now() }

// Edit changes a row as a person would by SQL. It returns false when there is no such row.
func (db *FakeDB) Edit(eventID string, e Edit) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	r := db.event(eventID)
	if r == nil {
		return false
	}
	if e.RetryCount != nil {
		r.attempts = *e.RetryCount
	}
	if e.DueIn != nil {
		r.due = db.now().Add(*e.DueIn)
	}
	if e.ClaimAge != nil {
		r.claimed = db.now().Add(-*e.ClaimAge)
	}
	if e.LastError != nil {
		r.lastError = *e.LastError
	}
	if e.State != nil {
		db.put(r, *e.State)
	}
	if e.Delete {
		db.delete(r)
	}
	return true
}

// now and what follows is called with the lock held, but for now.
func (db *FakeDB) now() time.Time { return time.Now().Add(db.Skew) }

func (db *FakeDB) find(id int64) (int, bool) {
	return slices.BinarySearchFunc(db.rows, id, func(r *fakeRow, id int64) int { return cmp.Compare(r.id, id) })
}

// row returns a row that is not SENT, or nil.
func (db *FakeDB) row(id relay.RowID) *fakeRow {
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return nil
	}
	if i, ok := db.find(n); ok {
		return db.rows[i]
	}
	return nil
}

func (db *FakeDB) event(eventID string) *fakeRow {
	if rows := db.byEvent[eventID]; len(rows) > 0 {
		return rows[len(rows)-1]
	}
	return nil
}

// put changes a row's state, and keeps rows to those that are not SENT.
func (db *FakeDB) put(r *fakeRow, s relay.State) {
	i, listed := db.find(r.id)
	switch {
	case s == relay.StateSent && listed:
		db.rows = slices.Delete(db.rows, i, i+1)
	case s != relay.StateSent && !listed:
		db.rows = slices.Insert(db.rows, i, r)
	}
	r.state = s
}

func (db *FakeDB) delete(r *fakeRow) {
	db.put(r, relay.StateSent)
	db.byEvent[r.EventID] = slices.DeleteFunc(db.byEvent[r.EventID], func(x *fakeRow) bool { return x == r })
}

func rowID(id int64) relay.RowID { return relay.RowID(strconv.FormatInt(id, 10)) }

func (r *fakeRow) rowID() relay.RowID { return rowID(r.id) }

// key is COALESCE(message_key, aggregate_id); nil for neither.
func (r *fakeRow) key() *string {
	switch {
	case r.Key != nil:
		return r.Key
	case r.AggregateID != "":
		return &r.AggregateID
	}
	return nil
}

func (r *fakeRow) show() FakeRow {
	return FakeRow{ID: r.rowID(), EventID: r.EventID, Key: r.key(), State: r.state, Attempts: r.attempts,
		DueAt: r.due, LastError: r.lastError, Receipt: r.receipt, Reclaims: r.reclaims}
}

// String is for the reports of failing tests.
func (r FakeRow) String() string {
	key := "-"
	if r.Key != nil {
		key = *r.Key
	}
	return fmt.Sprintf("row %s event %s key %s %s attempts %d due %s error %q", r.ID, r.EventID, key, r.State, r.Attempts,
		r.DueAt.Format("15:04:05.000"), r.LastError)
}
