package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

const (
	// commitEvery is how often a consumer commits its offsets, always after its database.
	commitEvery = time.Second
	// maxBatch bounds the events of one transaction.
	maxBatch = 100
)

// effectsTable has one row for each time that an event changed something. It has no unique key on
// purpose: what keeps an event from counting twice is the inbox alone.
const effectsTable = `
CREATE TABLE effects (
    n INTEGER PRIMARY KEY, event_id TEXT NOT NULL, order_no TEXT NOT NULL, change INTEGER NOT NULL);`

// trade is what a consumer does with the events.
type trade struct {
	name    string
	unit    string                             // what total counts
	changes map[string]func(e *orderEvent) int // by event type: the change of the total
}

// inventory reserves items for new orders and releases those of cancelled ones.
func inventory() trade {
	return trade{name: "inventory", unit: "items", changes: map[string]func(*orderEvent) int{
		orderCreated:   func(e *orderEvent) int { return e.Quantity },
		orderCancelled: func(e *orderEvent) int { return -e.Quantity },
	}}
}

// points gives a point for each whole unit of money paid.
func points() trade {
	return trade{name: "points", unit: "points", changes: map[string]func(*orderEvent) int{
		orderPaid: func(e *orderEvent) int {
			whole, _, _ := strings.Cut(e.Amount, ".")
			n, _ := strconv.Atoi(whole) // our own service wrote it
			return n
		},
	}}
}

func (t trade) handles() []string {
	types := make([]string, 0, len(t.changes))
	for eventType := range t.changes {
		types = append(types, eventType)
	}
	return types
}

// consumer is one downstream service: its own database file, its own group, the inbox in the
// transaction of its work, offsets after it.
type consumer struct {
	trade
	db   *sql.DB
	box  *inbox.Inbox
	addr string

	mu      sync.Mutex
	crash   bool // asked for
	applied int  // effects
	skipped int  // repetitions that the inbox kept away
	total   int
	reborn  bool                     // crashed, and has not yet seen again what it had applied
	next    map[topicPartition]int64 // the offset after the last event in the database
}

func newConsumer(t trade, db *sql.DB, addr string) *consumer {
	return &consumer{
		trade: t, db: db, addr: addr, next: map[topicPartition]int64{},
		box: inbox.New(outbox.SQLite, t.name, inbox.Options{}),
	}
}

// errCrashed ends one life of a consumer.
var errCrashed = errors.New("crashed on purpose")

// run consumes until ctx ends, and starts over after a crash.
func (c *consumer) run(ctx context.Context) error {
	for {
		err := c.live(ctx)
		if !errors.Is(err, errCrashed) {
			return err
		}
	}
}

// sessionTimeout is how long the group waits for a member that does not come back.
const sessionTimeout = 6 * time.Second

// live is one life of the process: it begins at the group's committed offsets. As a static member it
// takes its own place again, instead of waiting until the group has given up its former life.
func (c *consumer) live(ctx context.Context) error {
	client, err := kgo.NewClient(append(clientOptions(c.addr, c.name),
		kgo.ConsumerGroup(c.name), kgo.ConsumeTopics(topicName), kgo.DisableAutoCommit(),
		kgo.InstanceID(c.name+"-1"), kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(sessionTimeout),
		kgo.HeartbeatInterval(sessionTimeout/6),
	)...)
	if err != nil {
		return fmt.Errorf("set up consumer %s: %w", c.name, err)
	}
	defer closeAtOnce(ctx, client)
	committed := time.Now()
	for {
		waiting, stop := context.WithTimeout(ctx, commitEvery)
		fetches := client.PollRecords(waiting, maxBatch)
		stop()
		if fetches.IsClientClosed() {
			return nil
		}
		if records := fetches.Records(); len(records) > 0 {
			if err := c.apply(ctx, records); err != nil {
				return fmt.Errorf("consumer %s: %w", c.name, err)
			}
			if c.mustCrash() {
				return errCrashed // these are in the database and not in the offsets: they will come again
			}
		}
		if ctx.Err() != nil || time.Since(committed) >= commitEvery {
			commitOffsets(ctx, client)
			committed = time.Now()
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// closeAtOnce says goodbye to nobody, so that it does not wait for a broker that is down.
func closeAtOnce(ctx context.Context, client *kgo.Client) {
	now, stop := context.WithCancel(context.WithoutCancel(ctx))
	stop()
	_ = client.LeaveGroupContext(now)
	client.Close()
}

// commitOffsets tries once and briefly: offsets that are not committed mean events that come again.
func commitOffsets(ctx context.Context, client *kgo.Client) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), commitEvery)
	defer stop()
	_ = client.CommitUncommittedOffsets(ctx)
}

// apply handles a batch in one transaction, the inbox's notes included.
func (c *consumer) apply(ctx context.Context, records []*kgo.Record) error {
	ctx = context.WithoutCancel(ctx) // the outcome of the COMMIT must be known
	var applied, skipped, change int
	err := inTx(ctx, c.db, func(tx *sql.Tx) error {
		for _, rec := range records {
			if rec.Attrs.IsControl() {
				continue
			}
			n := 0
			fresh, err := c.box.Once(ctx, tx, header(rec, "event_id"), func(ctx context.Context) (err error) {
				n, err = c.handle(ctx, tx, rec, &applied)
				return err
			})
			if err != nil {
				return err
			}
			if !fresh {
				skipped++
			}
			change += n
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.applied += applied
	c.skipped += skipped
	c.total += change
	c.reborn = false
	for _, rec := range records {
		tp := topicPartition{rec.Topic, rec.Partition}
		c.next[tp] = max(c.next[tp], rec.Offset+1)
	}
	return nil
}

// handle is the business of one event.
func (c *consumer) handle(ctx context.Context, tx *sql.Tx, rec *kgo.Record, applied *int) (change int, err error) {
	var e orderEvent
	if err := json.Unmarshal(rec.Value, &e); err != nil {
		return 0, fmt.Errorf("read event at %s/%d offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	effect, handled := c.changes[e.EventType]
	if !handled {
		return 0, nil
	}
	change = effect(&e)
	_, err = tx.ExecContext(ctx, `INSERT INTO effects (event_id, order_no, change) VALUES (?, ?, ?)`,
		e.EventID, e.OrderNo, change)
	if err != nil {
		return 0, fmt.Errorf("write effect: %w", err)
	}
	*applied++
	return change, nil
}

// kill makes the consumer crash after its next commit to the database, before it commits offsets.
func (c *consumer) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.crash = true
}

func (c *consumer) mustCrash() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	crash := c.crash
	c.crash = false
	c.reborn = crash
	return crash
}

func (c *consumer) numbers() (applied, skipped, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applied, c.skipped, c.total
}

// position is where the consumer's database is in each partition.
func (c *consumer) position() map[topicPartition]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.next)
}

func (c *consumer) reached(ends map[topicPartition]int64) bool {
	own := map[topicPartition]int64{}
	for tp, end := range ends {
		if tp.topic == topicName {
			own[tp] = end
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.reborn && !behind(c.next, own)
}

// effects reads from the consumer's own tables how often each event took effect.
func (c *consumer) effects(ctx context.Context) (Effects, error) {
	e := Effects{Handles: c.handles(), Applied: map[string]int{}}
	rows, err := c.db.QueryContext(ctx, `SELECT event_id FROM effects`)
	if err != nil {
		return e, fmt.Errorf("read effects of %s: %w", c.name, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return e, fmt.Errorf("read effects of %s: %w", c.name, err)
		}
		e.Applied[id]++
	}
	if err := rows.Err(); err != nil {
		return e, fmt.Errorf("read effects of %s: %w", c.name, err)
	}
	return e, nil
}
