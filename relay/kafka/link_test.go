package kafka

import (
	"context"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// link is the network between a sink and its brokers: it can be cut, and it can swallow.
type link struct {
	mu    sync.Mutex
	state linkState
	free  chan struct{} // closed while nothing is swallowed
	only  string        // the address that state holds for; empty for all
	conns []*linked
}

type linkState int

const (
	linkUp   linkState = iota
	linkCut            // connections end, new ones are refused
	linkHole           // connections stay, and nothing comes through
)

func newLink() *link {
	l := &link{free: make(chan struct{})}
	close(l.free)
	return l
}

// set changes the state for the connections to one address, or to all.
func (l *link) set(state linkState, only string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkHole && state != linkHole {
		close(l.free)
	}
	if l.state != linkHole && state == linkHole {
		l.free = make(chan struct{})
	}
	l.state, l.only = state, only
	if state == linkCut {
		for _, c := range l.conns {
			if only == "" || c.address == only {
				_ = c.Conn.Close()
			}
		}
	}
}

// dial is Options.Dial.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	hit := l.only == "" || l.only == address
	state := l.state
	l.mu.Unlock()
	if hit && state == linkCut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if hit && state == linkHole {
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &linked{Conn: conn, link: l, address: address, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = slices.DeleteFunc(l.conns, (*linked).isClosed)
	l.conns = append(l.conns, c)
	return c, nil
}

// linked is a connection over a link.
type linked struct {
	net.Conn
	link    *link
	address string
	once    sync.Once
	closed  chan struct{}
}

// pass waits while the link swallows.
func (c *linked) pass() {
	c.link.mu.Lock()
	free, hit := c.link.free, c.link.only == "" || c.link.only == c.address
	c.link.mu.Unlock()
	if !hit {
		return
	}
	select {
	case <-free:
	case <-c.closed:
	}
}

func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

func (c *linked) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

func (c *linked) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *linked) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}
