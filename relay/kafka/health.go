package kafka

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Health is what the sink knows of its cluster without asking it.
type Health struct {
	Unanswered int           // partitions that owe an answer
	Bytes      int64         // of the records that wait for one
	Oldest     time.Duration // since the longest silence began; 0 when no partition owes an answer
	Topics     []string      // of the partitions that have been silent for longer than the sink's patience; at most 10
	// Trouble is why connections fail: set by a failed attempt, cleared by one that succeeds. It is a
	// *relay.SetupError, or nil.
	Trouble error
}

// Stalled reports whether a partition has been silent for longer than the sink's patience.
func (h Health) Stalled() bool { return len(h.Topics) > 0 }

// Health never blocks on the network.
func (s *Sink) Health() Health {
	h := Health{}
	if addr, err := s.trouble.last(); err != nil {
		h.Trouble = s.diagnose(addr, err)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Unanswered, h.Bytes = len(s.busy), s.bytes
	for to, f := range s.busy {
		since := f.since.Load()
		if since == 0 {
			continue // on its way to its first round
		}
		silent := now.Sub(time.Unix(0, since))
		h.Oldest = max(h.Oldest, silent)
		if silent > s.opts.Patience && !slices.Contains(h.Topics, to.topic) && len(h.Topics) < 10 {
			h.Topics = append(h.Topics, to.topic)
		}
	}
	slices.Sort(h.Topics)
	return h
}

// trouble remembers how connecting to each broker went last.
type trouble struct {
	mu     sync.Mutex
	failed map[string]attempt // by address
}

type attempt struct {
	err error
	at  time.Time
}

// troubleLasts is how long a failed attempt counts: while a broker is wanted, attempts follow each other
// within seconds, and one that has left the cluster is not asked again.
const troubleLasts = 30 * time.Second

var _ kgo.HookBrokerConnect = (*trouble)(nil)

// OnBrokerConnect is called by the library after each attempt, login included.
func (t *trouble) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return // ended from this side
	}
	addr := net.JoinHostPort(meta.Host, portText(meta.Port))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failed, addr)
		return
	}
	if t.failed == nil || len(t.failed) > 1000 {
		t.failed = make(map[string]attempt)
	}
	t.failed[addr] = attempt{err, time.Now()}
}

// last returns a broker that could not be connected to at the last attempt, the first by name.
func (t *trouble) last() (addr string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a, failed := range t.failed {
		if time.Since(failed.at) < troubleLasts && (addr == "" || a < addr) {
			addr, err = a, failed.err
		}
	}
	return addr, err
}
