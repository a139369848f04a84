//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

// traffic is a number of writers that behave as services do, and worse.
type traffic struct {
	db    *database
	types []string // aggregate types; each has a topic of its own
	keys  []string

	mu       sync.Mutex
	attempts []Attempt

	stop context.CancelFunc
	done sync.WaitGroup
}

// canary is in every payload and in a header, and must not be in any log (P10).
const canary = "canary-5f1d"

// Numbers of the traffic.
const (
	writers      = 6
	keysOfWriter = 4 // keys a writer, but every writer works on all
	rollbackOne  = 8 // one transaction in so many is rolled back
	cutOne       = 40
	slowOne      = 15
	repeatOne    = 2 // of the transactions whose outcome is unknown, one in so many is repeated
)

// newTraffic prepares the counters. Key i belongs to type i modulo their number.
func newTraffic(t testing.TB, db *database, types ...string) *traffic {
	t.Helper()
	tr := &traffic{db: db, types: types}
	for i := range writers * keysOfWriter {
		tr.keys = append(tr.keys, fmt.Sprintf("key-%02d", i))
		_, err := db.Exec(db.sql("INSERT INTO counters (k, n) VALUES (?, 0)"), tr.keys[i])
		require.NoError(t, err)
	}
	return tr
}

// start lets the writers loose until end. Each has a connection of its own, through a proxy that can
// cut it at the worst moment.
func (tr *traffic) start(t testing.TB, seed uint64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	tr.stop = stop
	server := databaseAddr(t, tr.db.server)
	for i := range writers {
		w := &serviceWriter{traffic: tr, proxy: newProxy(t, server, nil), rand: rand.New(rand.NewPCG(seed, uint64(i)))}
		w.conn = open(t, tr.db.dialect, tr.db.url(t, ""), w.proxy.addr)
		w.conn.SetMaxOpenConns(1)
		tr.done.Go(func() {
			defer w.conn.Close()
			w.run(ctx)
		})
	}
	t.Cleanup(tr.end)
}

// end stops the writers and waits for them.
func (tr *traffic) end() {
	tr.stop()
	tr.done.Wait()
}

func (tr *traffic) note(a Attempt) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.attempts = append(tr.attempts, a)
}

// serviceWriter is one writer.
type serviceWriter struct {
	*traffic
	proxy *proxy
	conn  *sql.DB
	rand  *rand.Rand
}

func (w *serviceWriter) one(in int) bool { return w.rand.IntN(in) == 0 }

func (w *serviceWriter) run(ctx context.Context) {
	for ctx.Err() == nil {
		p := w.plan()
		outcome, err := w.transact(ctx, p)
		w.note(Attempt{EventIDs: p.ids, Outcome: outcome})
		if outcome == Unknown && w.one(repeatOne) {
			w.repeat(ctx, p)
		}
		pause := time.Duration(w.rand.IntN(30)) * time.Millisecond
		if err != nil && outcome != Committed && !errors.Is(err, errPlanned) {
			pause += 100 * time.Millisecond // the database is away
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// plan draws a transaction.
func (w *serviceWriter) plan() plan {
	p := plan{rollback: w.one(rollbackOne)}
	n := 1
	if w.one(3) {
		n = 2 + w.rand.IntN(4)
	}
	// Keys in one order, so that transactions do not lock each other out.
	for range n {
		p.keys = append(p.keys, w.keys[w.rand.IntN(len(w.keys))])
		p.ids = append(p.ids, outbox.NewID())
	}
	slices.Sort(p.keys)
	if w.one(slowOne) {
		p.lingers = time.Duration(50+w.rand.IntN(700)) * time.Millisecond
	}
	switch {
	case w.one(cutOne):
		p.cut = &w.proxy.cutReply
	case w.one(2 * cutOne):
		p.cut = &w.proxy.cutRequest
	}
	return p
}

// repeat does what a careful caller does after an unknown outcome: the same events with the same ids
// once more. Either the first transaction was committed, and Write says so, or this one counts (case W01).
func (w *serviceWriter) repeat(ctx context.Context, p plan) {
	p.cut, p.rollback, p.lingers = nil, false, 0
	outcome, err := w.transact(ctx, p)
	if errors.Is(err, outbox.ErrDuplicateEvent) {
		outcome = Committed
	}
	if outcome != RolledBack { // else only the first attempt's fate is still open
		w.note(Attempt{EventIDs: p.ids, Outcome: outcome})
	}
}

// plan is one transaction before it runs.
type plan struct {
	ids, keys []string
	rollback  bool
	lingers   time.Duration // between its writes and its commit: later ids are committed before it
	cut       interface{ Store(bool) }
}

// errPlanned is the reason of a planned rollback.
var errPlanned = errors.New("rolled back as planned")

// transact runs one business transaction: the counters, orders, events and the ledger.
func (w *serviceWriter) transact(ctx context.Context, p plan) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	tx, err := w.conn.BeginTx(ctx, nil)
	if err != nil {
		return RolledBack, err
	}
	if err := w.write(ctx, tx, p); err != nil {
		_ = tx.Rollback()
		return RolledBack, err
	}
	if p.lingers > 0 {
		time.Sleep(p.lingers)
	}
	if p.rollback {
		_ = tx.Rollback()
		return RolledBack, errPlanned
	}
	if p.cut != nil {
		p.cut.Store(true)
		defer p.cut.Store(false)
	}
	if err := tx.Commit(); err != nil {
		return Unknown, err
	}
	return Committed, nil
}

func (w *serviceWriter) write(ctx context.Context, tx *sql.Tx, p plan) error {
	return w.db.record(ctx, tx, p.ids, p.keys, w.event)
}

func (w *serviceWriter) event(id, key string, n int64) outbox.Event {
	payload := fmt.Appendf(nil, `{"key":%q,"counter":%d,"event":%q,"note":%q,"pad":"`, key, n, id, canary)
	for range w.rand.IntN(1500) {
		payload = append(payload, byte(w.rand.IntN(256)))
	}
	e := outbox.Event{ID: id, AggregateType: w.typeOf(key), AggregateID: key, Type: "Counted", Payload: payload}
	if w.one(2) {
		e.Headers = map[string]string{"note": canary, "x-counter": fmt.Sprint(n)}
	}
	return e
}

func (tr *traffic) typeOf(key string) string {
	return tr.types[slices.Index(tr.keys, key)%len(tr.types)]
}
