//go:build synctests

package sim

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
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
	commit   []byte // the request, of an EndTxn whose answer will not arrive
	fate     fate
	answered chan struct{}
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
	q := question{key: key, fate: c.l.w.fateOf(c.l.name, key), answered: make(chan struct{})}
	if key == int16(kmsg.EndTxn) && (q.fate.answer == lost || q.fate.answer == half) && c.l.w.strangers > 0 {
		q.commit = append([]byte(nil), b...)
	}
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
	if q.commit != nil {
		c.l.w.takeOver(q.commit)
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
