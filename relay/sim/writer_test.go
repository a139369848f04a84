//go:build synctests

package sim

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

var writer = outbox.New(outbox.SQLite, outbox.Options{})

// write is one service: transactions that commit or roll back, some of them slow.
func (w *world) write(service int) {
	each := max(1, w.events/w.writers/2)
	pause := w.span / time.Duration(each)
	for i := range each {
		time.Sleep(w.draw("tx", service, i).upTo(2 * pause))
		w.transaction(service, i)
	}
}

// transaction writes a few events of one key, with their rows in the ledger. SQLite has one writer at a time, so
// transactions commit in the order in which they take their ids.
func (w *world) transaction(service, i int) {
	r := w.draw("write", service, i)
	key := fmt.Sprintf("k%d", r.IntN(w.keys))
	ctx := context.Background()
	tx, err := w.db.BeginTx(ctx, nil)
	require.NoError(w.t, err)
	defer tx.Rollback()
	for j := range 1 + r.IntN(3) {
		id := fmt.Sprintf("e%d-%d-%d", service, i, j)
		w.insert(tx, w.event(id, key))
		if r.sometimes(w.slowTx) {
			time.Sleep(r.upTo(2 * time.Second))
		}
	}
	if r.IntN(6) == 0 {
		return
	}
	require.NoError(w.t, tx.Commit())
}

func (w *world) insert(tx *sql.Tx, e outbox.Event) {
	ctx := context.Background()
	require.NoError(w.t, writer.Write(ctx, tx, e))
	if statement := spoil[w.troubleOf(e.ID)]; statement != "" {
		_, err := tx.ExecContext(ctx, statement, e.ID)
		require.NoError(w.t, err)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (event_id, key, counter) SELECT ?1, ?2, 1 + count(*) FROM ledger WHERE key = ?2", e.ID, e.AggregateID)
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[e.ID] = e
}
