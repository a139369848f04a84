package relaytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/relay"
)

var _ Store = (*FakeStore)(nil)

// FakeStoreOptions is what a FakeStore may be told beside the options of every Store.
type FakeStoreOptions struct {
	relay.StoreOptions
	// Cursor makes it scan as a Store for the product's own table may: forward from the last row seen,
	// remembering gaps. The default is to look for due rows by their state at each Fetch. For ClaimSingle
	// and ClaimLanes.
	Cursor bool
	// NewHeads makes Fetch bring a NEW row that is named as a Head. No Store should, but where FAILED
	// shares the word of NEW it is an easy mistake, which a relay should bear.
	NewHeads bool
	// Fault is asked at each call what is to go wrong. Nil: nothing.
	Fault func(FakeCall) FakeFault
}

// FakeCall is one call of a FakeStore's method.
type FakeCall struct {
	Op string // the method's name: "Acquire", "Doubts", "StillBlocking", "Fetch", "Settle", "Own", "Unsettled"
	N  int    // counts the calls of this store, from 1
}

// FakeFault is what goes wrong with a call.
type FakeFault struct {
	Wait   time.Duration // before anything is done
	Late   time.Duration // Fetch: between the reading and the reply
	Before error         // returned without anything done
	After  error         // returned after everything was done: the reply is lost
	Part   error         // Settle: returned after every second outcome was written
}

// FakeStore is one session on a FakeDB. It obeys every sentence of relay.Store and relay.Admin.
type FakeStore struct {
	o        FakeStoreOptions
	db       *FakeDB
	calls    atomic.Int64
	fetching atomic.Bool

	// guarded by db.mu
	cursor cursor
	lanes  map[int32]string // that this store reads, and where each of them began
	cut    int64            // the row that the last Fetch left out for its size
	ended  error            // why nothing works any more
	lost   chan struct{}
}

// Open opens a session.
func (db *FakeDB) Open(o FakeStoreOptions) *FakeStore {
	if o.ClaimTimeout == 0 {
		o.ClaimTimeout = 60 * time.Second
	}
	if o.Claim == "" {
		o.Claim = relay.ClaimSingle
	}
	return &FakeStore{o: o, db: db, lost: make(chan struct{}), cursor: newCursor()}
}

var (
	errClosed = errors.New("the store is closed")
	errKilled = errors.New("the process is dead")
)

// Close implements relay.Store.
func (s *FakeStore) Close() error {
	s.end(errClosed)
	return nil
}

// Kill ends the session as the death of its process does: whatever the relay still tries, nothing
// reaches the table.
func (s *FakeStore) Kill() { s.end(errKilled) }

func (s *FakeStore) end(err error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.ended == nil {
		s.ended = err
	}
	s.db.free(s)
}

// LoseOwnership ends the session that guards the ownership; statements still work, as on the other
// connections of a pool. It returns false when the store is not the only one of
// its table.
func (s *FakeStore) LoseOwnership() bool {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.o.Claim != relay.ClaimSingle || !slices.Contains(s.db.owners, s) {
		return false
	}
	close(s.lost)
	s.db.free(s)
	return true
}

// free must be called with the lock held.
func (db *FakeDB) free(s *FakeStore) {
	if i := slices.Index(db.owners, s); i >= 0 {
		db.owners = slices.Delete(db.owners, i, i+1)
		close(db.freed)
		db.freed = make(chan struct{})
	}
}

// enter begins a call: it asks for a fault and takes the lock. On an error the lock is not held.
func (s *FakeStore) enter(ctx context.Context, op string) (FakeFault, error) {
	var f FakeFault
	if s.o.Fault != nil {
		f = s.o.Fault(FakeCall{Op: op, N: int(s.calls.Add(1))})
	}
	if f.Wait > 0 {
		t := time.NewTimer(f.Wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.db.mu.Lock()
	err := cmpErr(s.ended, ctx.Err(), f.Before)
	if err != nil {
		s.db.mu.Unlock()
		return f, fmt.Errorf("%s: %w", op, err)
	}
	return f, nil
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Acquire implements relay.Store.
func (s *FakeStore) Acquire(ctx context.Context, standby func(holder string)) (<-chan struct{}, error) {
	told := false
	for {
		if _, err := s.enter(ctx, "Acquire"); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(s.db.owners, func(o *FakeStore) bool { return o.o.Peers() == "" || o.o.Peers() != s.o.Peers() })
		if i < 0 {
			s.db.owners = append(s.db.owners, s)
			s.db.mu.Unlock()
			return s.lost, nil
		}
		holder := s.db.owners[i]
		freed := s.db.freed
		s.db.mu.Unlock()
		if !told {
			told = true
			who := fmt.Sprintf("%s, claim: %s", holder.o.Relay, holder.o.Claim)
			if s.o.Claim == relay.ClaimLanes && holder.o.Claim == relay.ClaimLanes {
				who += ", " + s.o.Unlike()
			}
			standby(who)
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Doubts implements relay.Store.
func (s *FakeStore) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	f, err := s.enter(ctx, "Doubts")
	if err != nil {
		return nil, err
	}
	defer s.db.mu.Unlock()
	var out []relay.Doubt
	for _, r := range s.db.rows {
		if key := r.key(); key != nil && s.blocks(r) && s.mine(r) && len(out) < limit {
			out = append(out, relay.Doubt{Row: r.rowID(), Key: *key, State: r.state, DueIn: max(0, r.due.Sub(s.db.now()))})
		}
	}
	return out, f.After
}

// blocks says whether a row holds its key.
func (s *FakeStore) blocks(r *fakeRow) bool {
	return r.state == relay.StateFailed || r.state == relay.StateDead && s.o.OnDead != relay.OnDeadSkip && !r.discarded()
}

func (r *fakeRow) discarded() bool { return strings.HasPrefix(r.lastError, "discarded:") }

// shown is the state by which people count and list.
func (r *fakeRow) shown() relay.State {
	if r.state == relay.StateDead && r.discarded() {
		return relay.StateDiscarded
	}
	return r.state
}

// StillBlocking implements relay.Store.
func (s *FakeStore) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	f, err := s.enter(ctx, "StillBlocking")
	if err != nil {
		return nil, err
	}
	defer s.db.mu.Unlock()
	still := slices.DeleteFunc(slices.Clone(rows), func(id relay.RowID) bool {
		r := s.db.row(id)
		return r == nil || !s.blocks(r)
	})
	return still, f.After
}

// Settle implements relay.Store.
func (s *FakeStore) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	f, err := s.enter(ctx, "Settle")
	if err != nil {
		return nil, err
	}
	defer s.db.mu.Unlock()
	var lost []relay.RowID
	for i := range outs {
		if f.Part != nil && i%2 == 1 {
			continue
		}
		if !s.settle(&outs[i]) {
			lost = append(lost, outs[i].Row)
		}
	}
	return lost, cmpErr(f.After, f.Part)
}

func (s *FakeStore) settle(o *relay.Outcome) bool {
	r := s.db.row(o.Row)
	if r == nil || !s.applies(r, o) || o.Claim != "" && r.token != o.Claim {
		return false
	}
	if o.State == relay.StateSent && s.o.Table.AfterSend == "delete" {
		s.db.delete(r)
		return true
	}
	s.db.put(r, o.State)
	r.token = ""
	switch o.State {
	case relay.StateNew:
		s.cursor.again[r.id] = true
	case relay.StateSent:
		receipt := o.Receipt
		r.receipt, r.sent, r.lastError, r.due = &receipt, s.db.now(), "", time.Time{}
	case relay.StateFailed:
		r.due, r.lastError = s.db.now().Add(o.RetryAfter), clean(o.LastError)
	case relay.StateDead:
		r.due, r.lastError = time.Time{}, clean(o.LastError)
	}
	if o.Attempt {
		r.attempts++
	}
	return true
}

// applies says whether the row is one that the mark is for.
func (s *FakeStore) applies(r *fakeRow, o *relay.Outcome) bool {
	if s.o.Claim == relay.ClaimLanes && o.State == relay.StateSent {
		return r.unsettled() // it is the newer truth than what a relay wrote that had lost the lane
	}
	return r.state == o.From
}

func (r *fakeRow) unsettled() bool {
	return r.state == relay.StateNew || r.state == relay.StateFailed || r.state == relay.StateDead && !r.discarded()
}

func clean(text string) string { return strings.ReplaceAll(text, "\x00", "") }
