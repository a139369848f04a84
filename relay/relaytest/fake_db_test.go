package relaytest

import (
	"context"
	"testing"

	"github.com/postrider/postrider/relay"
)

// fakeTable lets the conformance suite try the fake store.
type fakeTable struct {
	db *FakeDB
	o  FakeStoreOptions
}

func (f fakeTable) Open(_ context.Context, o relay.StoreOptions) (Store, error) {
	opts := f.o
	opts.StoreOptions = o
	return f.db.Open(opts), nil
}

func (f fakeTable) Begin(t *testing.T) Tx {
	tx := f.db.Begin()
	t.Cleanup(tx.Rollback)
	return tx
}

func (f fakeTable) Row(_ *testing.T, eventID string) (Row, bool) {
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	r := f.db.event(eventID)
	if r == nil {
		return Row{}, false
	}
	now := f.db.now()
	return Row{ID: r.rowID(), State: r.state, RetryCount: r.attempts, DueIn: r.due.Sub(now), HasDue: !r.due.IsZero(),
		LastError: r.lastError, Payload: r.Payload, SentAgo: now.Sub(r.sent), HasSent: !r.sent.IsZero(), Receipt: r.receipt}, true
}

func (f fakeTable) Edit(t *testing.T, eventID string, e Edit) {
	if !f.db.Edit(eventID, e) {
		t.Fatalf("event %s is not in the table", eventID)
	}
}

// TestFakeStore_Conformance holds the fake to what every Store promises: a fake that is kinder than a
// database would hide bugs.
func TestFakeStore_Conformance(t *testing.T) {
	t.Parallel()
	harness := func(o FakeStoreOptions, claims ...relay.ClaimMode) Harness {
		return Harness{
			Table:  func(*testing.T) Table { return fakeTable{NewFakeDB(), o} },
			Claims: claims,
			Traits: Traits{NoHeaders: true, NullPayload: true, NulKeys: true, KeepsLow: o.Cursor},
		}
	}
	t.Run("by index", func(t *testing.T) {
		t.Parallel()
		RunStore(t, harness(FakeStoreOptions{}, relay.ClaimSingle, relay.ClaimRows, relay.ClaimLanes))
	})
	t.Run("by cursor", func(t *testing.T) {
		t.Parallel()
		RunStore(t, harness(FakeStoreOptions{Cursor: true}, relay.ClaimSingle, relay.ClaimLanes))
	})
}
