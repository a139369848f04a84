package demo

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// The events of an order, in the order in which they can happen.
const (
	orderCreated   = "OrderCreated"
	orderPaid      = "OrderPaid"
	orderShipped   = "OrderShipped"
	orderCancelled = "OrderCancelled"
)

const (
	aggregateType = "Order"
	// giftType is an aggregate type that nobody made a route for: the default template turns it into a
	// topic name with a space, which Kafka refuses for good. It is the demo's poison.
	giftType = "Gift order"
	// rollbackEvery is the share of transactions that change their mind after writing order and event.
	rollbackEvery = 8
	// maxOpen bounds the orders that wait for their next step.
	maxOpen = 500
)

// serviceTables are the order service's own. The ledger is the ground truth of the verdict: one row an
// event, written in the same transaction by the service and read by nobody else.
const serviceTables = `
CREATE TABLE orders (
    order_no TEXT PRIMARY KEY, user_id INTEGER NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL,
    amount TEXT NOT NULL, status TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE ledger (
    event_id TEXT PRIMARY KEY, order_no TEXT NOT NULL, event_type TEXT NOT NULL,
    version INTEGER NOT NULL, digest TEXT NOT NULL) WITHOUT ROWID;`

// orderEvent is the payload. Version counts the changes of its order, without gaps.
type orderEvent struct {
	EventID    string `json:"eventId"`
	EventType  string `json:"eventType"`
	OrderNo    string `json:"orderNo"`
	UserID     int    `json:"userId"`
	SKU        string `json:"sku"`
	Quantity   int    `json:"quantity"`
	Amount     string `json:"amount"`
	Currency   string `json:"currency"`
	Version    int    `json:"version"`
	OccurredAt string `json:"occurredAt"`
}

// order is an order that is not finished.
type order struct {
	no       string
	user     int
	sku      string
	quantity int
	amount   string
	paid     bool
	gift     bool      // its first event is poison
	due      time.Time // not before
}

// shop is the order service. Its methods may be called from several goroutines.
type shop struct {
	db     *sql.DB
	writer *outbox.Writer
	book   *book
	wake   func() // tells the relay of a commit

	mu     sync.Mutex
	rng    *rand.Rand
	placed int // orders placed, rolled back ones included
	steps  int // later steps tried
	open   []*order
}

func newShop(db *sql.DB, b *book, wake func()) *shop {
	return &shop{
		db: db, writer: outbox.New(outbox.SQLite, outbox.Options{}), book: b, wake: wake,
		rng: rand.New(rand.NewPCG(1, 1)),
	}
}

// errChangedMind ends a transaction that has written everything and must leave nothing.
var errChangedMind = errors.New("rolled back on purpose")

// place places one order, and lets some earlier ones go on.
func (s *shop) place(ctx context.Context) error {
	// The outcome of every COMMIT must be known, so an end of ctx does not cut a transaction in two.
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placed++
	err := s.create(ctx, s.newOrder(), s.placed%rollbackEvery == rollbackEvery/2)
	for range s.rng.IntN(4) {
		err = errors.Join(err, s.goOn(ctx))
	}
	return err
}

// poison places an order whose first event cannot be sent, and pays it, so that an event waits behind.
func (s *shop) poison(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // as in place
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placed++
	o := s.newOrder()
	o.gift = true
	if err := s.create(ctx, o, false); err != nil {
		return err
	}
	if err := s.step(ctx, o, orderPaid, false); err != nil {
		return err
	}
	o.paid, o.due = true, time.Now().Add(2*time.Second)
	return nil
}

func (s *shop) newOrder() *order {
	skus := []string{"TEA-GREEN", "TEA-BLACK", "CUP-BLUE", "CUP-WHITE", "POT-IRON"}
	quantity := 1 + s.rng.IntN(4)
	return &order{
		no:       fmt.Sprintf("ORD-%d", 10_000+s.placed),
		user:     1001 + s.rng.IntN(200),
		sku:      skus[s.rng.IntN(len(skus))],
		quantity: quantity,
		amount:   fmt.Sprintf("%d.%02d", quantity*(5+s.rng.IntN(40)), s.rng.IntN(100)),
	}
}

// goOn takes the next step of one open order that is due.
func (s *shop) goOn(ctx context.Context) error {
	if len(s.open) == 0 {
		return nil
	}
	i := s.rng.IntN(len(s.open))
	if first := s.open[0]; first.gift && time.Now().After(first.due) {
		i = 0 // somebody watches this one
	}
	o := s.open[i]
	if time.Now().Before(o.due) {
		return nil
	}
	s.steps++
	rollback := s.steps%rollbackEvery == rollbackEvery/2
	next := orderPaid
	switch {
	case o.paid:
		next = orderShipped
	case s.rng.IntN(5) == 0:
		next = orderCancelled
	}
	if err := s.step(ctx, o, next, rollback); err != nil || rollback {
		return err // rolled back: it is tried again another time
	}
	o.paid = true
	if next != orderPaid {
		s.open[i] = s.open[len(s.open)-1]
		s.open = s.open[:len(s.open)-1]
	}
	return nil
}

// create is the first business transaction of an order.
func (s *shop) create(ctx context.Context, o *order, rollback bool) error {
	err := s.transact(ctx, o, orderCreated, rollback, func(tx *sql.Tx) (int, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders (order_no, user_id, sku, quantity, amount, status, version)
			VALUES (?, ?, ?, ?, ?, 'CREATED', 1)`, o.no, o.user, o.sku, o.quantity, o.amount)
		return 1, err
	})
	if err != nil {
		return fmt.Errorf("place order %s: %w", o.no, err)
	}
	s.book.order(!rollback)
	if rollback {
		return nil
	}
	s.open = append(s.open, o)
	if o.gift {
		s.open[0], s.open[len(s.open)-1] = s.open[len(s.open)-1], s.open[0]
	}
	if len(s.open) > maxOpen {
		s.open = append(s.open[:1], s.open[2:]...)
	}
	return nil
}

// step is a later business transaction of an order. The version is drawn in it, so that a rollback
// gives it back.
func (s *shop) step(ctx context.Context, o *order, eventType string, rollback bool) error {
	err := s.transact(ctx, o, eventType, rollback, func(tx *sql.Tx) (version int, err error) {
		err = tx.QueryRowContext(ctx, `UPDATE orders SET status = ?, version = version + 1 WHERE order_no = ?
			RETURNING version`, eventType, o.no).Scan(&version)
		return version, err
	})
	if err != nil {
		return fmt.Errorf("change order %s: %w", o.no, err)
	}
	return nil
}

// transact is the pattern itself: the order, its event and the ledger's row in one transaction.
func (s *shop) transact(ctx context.Context, o *order, eventType string, rollback bool, change func(*sql.Tx) (int, error)) error {
	id := outbox.NewID()
	err := inTx(ctx, s.db, func(tx *sql.Tx) error {
		version, err := change(tx)
		if err != nil {
			return err
		}
		payload, err := json.Marshal(orderEvent{
			EventID: id, EventType: eventType, OrderNo: o.no, UserID: o.user, SKU: o.sku, Quantity: o.quantity,
			Amount: o.amount, Currency: "EUR", Version: version, OccurredAt: time.Now().UTC().Format(time.RFC3339Nano),
		})
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		event := outbox.Event{
			ID: id, AggregateType: aggregateType, AggregateID: o.no, Type: eventType, Payload: payload,
			Headers: map[string]string{"source": "order-service"},
		}
		if o.gift && version == 1 {
			event.AggregateType = giftType
		}
		if err := s.writer.Write(ctx, tx, event); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (event_id, order_no, event_type, version, digest)
			VALUES (?, ?, ?, ?, ?)`, id, o.no, eventType, version, digest(payload)); err != nil {
			return fmt.Errorf("write the ledger: %w", err)
		}
		if rollback {
			return errChangedMind
		}
		s.book.committing(id, time.Now())
		return nil
	})
	switch {
	case errors.Is(err, errChangedMind):
		s.book.rolledBack(id)
		return nil
	case err != nil:
		return err
	}
	s.book.committed()
	s.wake()
	return nil
}

func digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

// work places orders at rate a second (0: as fast as the database commits) until ctx ends or limit
// orders are placed.
func (s *shop) work(ctx context.Context, rate float64, limit int) error {
	start := time.Now()
	for i := range limit {
		if ctx.Err() != nil {
			return nil
		}
		if err := s.place(ctx); err != nil {
			return err
		}
		if rate <= 0 {
			continue
		}
		next := start.Add(time.Duration(float64(i+1) / rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
	}
	return nil
}
