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
		time.Sleep(upTo(w.draw("tx", service, i), 2*pause))
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
		if r.IntN(20) == 0 {
			time.Sleep(upTo(r, 2*time.Second))
		}
	}
	if r.IntN(6) == 0 {
		return
	}
	require.NoError(w.t, tx.Commit())
}

// event is what the service writes under an id.
func (w *world) event(id, key string) outbox.Event {
	r := w.draw("event", id)
	e := outbox.Event{ID: id, AggregateType: "Order", AggregateID: key, Type: "Changed", Topic: topicName(r.IntN(w.topics)),
		Payload: fmt.Appendf(nil, `{"id":%q, "n": 12345678901234567890.10, "x": "%0*d"}`, id, r.IntN(100), 0)}
	if r.IntN(3) == 0 {
		e.Headers = map[string]string{"note": "ü " + id}
	}
	if r.IntN(20) == 0 {
		e.Payload = nil
	}
	return e
}

func (w *world) insert(tx *sql.Tx, e outbox.Event) {
	ctx := context.Background()
	require.NoError(w.t, writer.Write(ctx, tx, e))
	_, err := tx.ExecContext(ctx, "INSERT INTO ledger (event_id, key, counter) SELECT ?1, ?2, 1 + count(*) FROM ledger WHERE key = ?2", e.ID, e.AggregateID)
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[e.ID] = e
}
