//go:build synctests

package sim

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// link is one process's network.
type link struct {
	w    *world
	name string

	mu    sync.Mutex
	conns map[*conn]bool
	dead  bool
	still time.Time // nothing moves before
}

func newLink(w *world, name string) *link {
	l := &link{w: w, name: name, conns: map[*conn]bool{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links = append(w.links, l)
	return l
}

func refused(address string) error {
	return &net.OpError{Op: "dial", Net: "tcp " + address, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := l.pass(ctx.Done()); err != nil || l.w.isDown(address) {
		return nil, refused(address)
	}
	inner, err := l.w.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, refused(address)
	}
	c := &conn{Conn: inner, l: l, address: address, closed: make(chan struct{}), asked: map[int32]question{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = inner.Close()
		return nil, refused(address)
	}
	l.conns[c] = true
	return c, nil
}

// pass waits while the process stands still.
func (l *link) pass(done <-chan struct{}) error {
	for {
		l.mu.Lock()
		dead, wait := l.dead, time.Until(l.still)
		l.mu.Unlock()
		switch {
		case dead:
			return net.ErrClosed
		case wait <= 0:
			return nil
		}
		if !sleepOr(wait, done) {
			return net.ErrClosed
		}
	}
}

// sleepOr returns false when done is closed first.
func sleepOr(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// pause lets the process hear and say nothing for a while.
func (l *link) pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.still = time.Now().Add(d)
}

// kill ends every connection; none is made any more.
func (l *link) kill() {
	l.mu.Lock()
	l.dead = true
	conns := l.conns
	l.conns = map[*conn]bool{}
	l.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
}

// cut ends the connections to a broker.
func (l *link) cut(address string) {
	l.mu.Lock()
	var conns []*conn
	for c := range l.conns {
		if c.address == address {
			conns = append(conns, c)
		}
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}
