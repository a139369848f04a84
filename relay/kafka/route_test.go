package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sink is a network that takes what is sent and delivers nothing, as one does that lost its route. (A link blocks the
// writer, which no operating system does so soon.)
type sink struct {
	mu    sync.Mutex
	empty bool
	conns []*sinkConn
}

type sinkConn struct {
	net.Conn
	s *sink
}

func (s *sink) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty {
		return nil, errors.New("no route")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	sc := &sinkConn{c, s}
	s.conns = append(s.conns, sc)
	return sc, nil
}

func (s *sink) swallow(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty = yes; yes {
		return
	}
	for _, c := range s.conns {
		_ = c.Conn.Close() // what was swallowed does not come any more
	}
	s.conns = nil
}

// Write loses everything while the network swallows.
func (c *sinkConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	empty := c.s.empty
	c.s.mu.Unlock()
	if empty {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// slowJoin is a network on which requests to join a group, and to learn what one gets, take their time.
type slowJoin struct{ join, sync atomic.Int64 }

type slowJoinConn struct {
	net.Conn
	s  *slowJoin
	mu sync.Mutex // held by what is on its way
}

func (s *slowJoin) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &slowJoinConn{Conn: c, s: s}, err
}

// Write takes everything at once; what begins with the length and the key of such a request goes out later, and what
// comes behind it too.
func (c *slowJoinConn) Write(b []byte) (int, error) {
	delay := int64(0)
	if len(b) > 6 {
		switch kmsg.Key(binary.BigEndian.Uint16(b[4:6])) {
		case kmsg.JoinGroup:
			delay = c.s.join.Load()
		case kmsg.SyncGroup:
			delay = c.s.sync.Load()
		}
	}
	c.mu.Lock()
	if delay == 0 {
		defer c.mu.Unlock()
		return c.Conn.Write(b)
	}
	later := slices.Clone(b)
	time.AfterFunc(time.Duration(delay), func() {
		defer c.mu.Unlock()
		_, _ = c.Conn.Write(later)
	})
	return len(b), nil
}
