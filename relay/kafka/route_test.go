package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
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
