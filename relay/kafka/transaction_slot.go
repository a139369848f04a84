package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A slot is a place for one transaction at a time, from its first record until the table shows what it
// committed. Its progress records are named after it, so that the next transaction of the slot replaces them: not
// before their rows are marked.
type slot struct {
	t      *Transactions
	number int       // among those of the flow
	ended  time.Time // of its last transaction; the flow's own

	mu     sync.Mutex
	client *kgo.Client
	id     string
	base   *client // the sink's own client when this one was made: a topic that was made anew ages both
}

// transactionTimeout is how long brokers let a transaction stay open when its relay says nothing more.
const transactionTimeout = 15 * time.Second

// open returns the slot's client, or makes one under a new transactional id.
func (s *slot) open(ctx context.Context) (c *kgo.Client, id string, err error) {
	base := s.t.base.current()
	s.mu.Lock()
	c, id, old := s.client, s.id, s.base
	s.mu.Unlock()
	if c != nil && old == base {
		return c, id, nil
	}
	s.close()
	id = s.t.nextID()
	if c, err = kgo.NewClient(s.t.clientOptions(id)...); err != nil {
		return nil, "", fmt.Errorf("make a transactional client: %w", err)
	}
	if !s.keep(c, id, base) {
		c.Close()
		return nil, "", kgo.ErrClientClosed
	}
	if _, _, err := c.ProducerID(ctx); err != nil {
		return nil, "", fmt.Errorf("take the transactional id %s: %w", id, err)
	}
	return c, id, nil
}

// keep is refused once the sink has been closed.
func (s *slot) keep(c *kgo.Client, id string, base *client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.t.life.Err() != nil {
		return false
	}
	s.client, s.id, s.base = c, id, base
	return true
}

// close lets go of the client. Whatever it had open can not be committed any more by this relay.
func (s *slot) close() {
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

func (t *Transactions) nextID() string {
	group, _ := t.g.control()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	return fmt.Sprintf("%s/%s/%d/%d", group, t.g.run(), t.flow, t.number)
}

func (t *Transactions) clientOptions(id string) []kgo.Opt {
	// Partitions are added to a transaction in one request, in the version that is for clients.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.AddPartitionsToTxn), 3)
	return append(t.base.clientOptions(),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.MaxVersions(versions),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConcurrentTransactionsBackoff(5*time.Millisecond),
		t.overhead(),
	)
}

// overhead: a connection that swallows must be given up long before a transaction times out.
func (t *Transactions) overhead() kgo.Opt {
	return kgo.RequestTimeoutOverhead(min(3*time.Second, t.base.cfg.requestTimeout/2))
}
