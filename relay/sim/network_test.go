//go:build synctests

package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fate is what becomes of one request and of its answer.
type fate struct {
	request, answer toll
	wait, late      time.Duration // of the request and of its answer
}

// toll is what the network takes.
type toll int

const (
	passes   toll = iota
	lost          // and the connection with it
	half          // the rest is lost, and the connection
	silent        // nothing is said any more on this connection, which stays
	straggle      // the connection ends; the request is delivered later all the same
	twice         // a second copy arrives right behind
	slow          // it takes long
)

func (t toll) String() string {
	return [...]string{"passes", "lost", "half", "silence", "straggles", "twice", "slow"}[t]
}

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

// conn is a client's end of a connection to a broker.
type conn struct {
	net.Conn
	l       *link
	address string
	once    sync.Once
	closed  chan struct{}
	gone    atomic.Bool // the client has lost it, and a request of its is still to come

	mu    sync.Mutex
	asked map[int32]question // by correlation id
	mute  bool               // what is written goes nowhere
	deaf  bool               // what is answered goes nowhere

	in     []byte // of an answer, what is not read yet
	broken bool   // after in
}

type question struct {
	key      int16
	fate     fate
	answered chan struct{}
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

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.l.mu.Lock()
		delete(c.l.conns, c)
		c.l.mu.Unlock()
		if !c.gone.Load() && c.joining() {
			c.linger(nil, time.Millisecond)
		}
	})
	if c.gone.Load() {
		return nil
	}
	return c.Conn.Close()
}

// joining says whether the group's coordinator owes an answer. kfake forgets the session timeout of a member whom it
// cannot answer; a broker does not.
func (c *conn) joining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.asked {
		if q.key == int16(kmsg.JoinGroup) || q.key == int16(kmsg.SyncGroup) {
			return true
		}
	}
	return false
}

// Write is called by the client library with one whole request.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.l.pass(c.closed); err != nil {
		return 0, err
	}
	key, id := int16(binary.BigEndian.Uint16(b[4:])), int32(binary.BigEndian.Uint32(b[8:]))
	q := question{key, c.l.w.fateOf(c.l.name, key), make(chan struct{})}
	c.mu.Lock()
	mute := c.mute
	c.asked[id] = q
	c.mute = c.mute || q.fate.request == silent
	c.mu.Unlock()
	c.l.w.log.add(c.l.name, "request", kmsg.NameForKey(key), q.fate.request)
	if mute || !sleepOr(q.fate.wait, c.closed) {
		return len(b), nil
	}
	if key == int16(kmsg.JoinGroup) {
		c.l.w.keepAlive(joining(b), c.closed, q.answered)
	}
	switch q.fate.request {
	case silent:
		return len(b), nil
	case lost:
		_ = c.Close()
		return 0, net.ErrClosed
	case half:
		_, _ = c.Conn.Write(b[:len(b)/2])
		_ = c.Close()
		return 0, net.ErrClosed
	case straggle:
		c.straggle(b, q.fate.late)
		return 0, net.ErrClosed
	case twice:
		if _, err := c.Conn.Write(b); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// straggle ends the connection for the client. The broker takes the request all the same, later.
func (c *conn) straggle(b []byte, late time.Duration) {
	c.linger(append([]byte(nil), b...), late)
	_ = c.Close()
}

// linger takes the connection from the client and keeps it for the broker, which is told b after a while.
func (c *conn) linger(b []byte, late time.Duration) {
	if c.gone.Swap(true) {
		return
	}
	_ = c.Conn.SetDeadline(time.Now()) // ends what the client has under way
	c.l.w.linger.Go(func() {
		defer c.Conn.Close()
		time.Sleep(late)
		_ = c.Conn.SetDeadline(time.Time{})
		if _, err := c.Conn.Write(b); err == nil {
			_, _ = io.Copy(io.Discard, c.Conn) // until the cluster closes it
		}
	})
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if c.gone.Load() {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if c.gone.Load() {
		return net.ErrClosed
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *conn) Read(b []byte) (int, error) {
	for len(c.in) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

// next takes one answer off the network.
func (c *conn) next() error {
	if c.gone.Load() {
		return net.ErrClosed
	}
	if c.broken {
		_ = c.Close()
		return net.ErrClosed
	}
	var size [4]byte
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	if _, err := io.ReadFull(c.Conn, frame[4:]); err != nil {
		return err
	}
	if err := c.l.pass(c.closed); err != nil {
		return err
	}
	id := int32(binary.BigEndian.Uint32(frame[4:]))
	c.mu.Lock()
	q, known := c.asked[id]
	delete(c.asked, id)
	if known {
		close(q.answered)
	}
	c.deaf = c.deaf || known && q.fate.answer == silent
	deaf := c.deaf
	c.mu.Unlock()
	if known && q.fate.answer != passes || deaf {
		c.l.w.log.add(c.l.name, "answer", kmsg.NameForKey(q.key), q.fate.answer)
	}
	if !known || deaf { // the answer to a second copy is nobody's
		return nil
	}
	if !sleepOr(q.fate.late, c.closed) {
		return net.ErrClosed
	}
	switch q.fate.answer {
	case lost:
		_ = c.Close()
		return net.ErrClosed
	case half:
		c.in, c.broken = frame[:len(frame)/2], true
	default:
		c.in = frame
	}
	return nil
}
