package kafka

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
)

// tap is a network that hears which request a client sends, and may lose it or its answer.
type tap struct {
	// fault is asked for each request by its API key.
	fault func(key int16) tapFault
	seen  func(key int16) // after fault; may be nil
}

type tapFault int

const (
	tapPass          tapFault = iota
	tapLoseRequest            // the connection ends before the request is sent
	tapLoseAnswer             // the request arrives, the connection ends with its answer
	tapSwallow                // the request is taken, nothing is sent, the connection stays
	tapSwallowAnswer          // the request arrives, nothing comes back any more, the connection stays
)

func (t *tap) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &tapped{Conn: c, tap: t}, nil
}

type tapped struct {
	net.Conn
	tap   *tap
	state atomic.Int32 // a tapFault
}

// Write is called by the library with one whole request.
func (c *tapped) Write(b []byte) (int, error) {
	switch tapFault(c.state.Load()) {
	case tapSwallow:
		return len(b), nil
	}
	if len(b) < 6 {
		return c.Conn.Write(b)
	}
	key := int16(binary.BigEndian.Uint16(b[4:6]))
	fault := c.tap.fault(key)
	if c.tap.seen != nil {
		defer c.tap.seen(key)
	}
	switch fault {
	case tapLoseRequest:
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	case tapSwallow:
		c.state.Store(int32(fault))
		return len(b), nil
	case tapLoseAnswer, tapSwallowAnswer:
		c.state.Store(int32(fault))
	}
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil {
			return n, err
		}
		switch tapFault(c.state.Load()) {
		case tapPass:
			return n, nil
		case tapLoseAnswer:
			_ = c.Conn.Close()
			return 0, net.ErrClosed
		}
	}
}

// oneFault is a tap that passes everything but the next times requests of one key.
type oneFault struct {
	tap
	mu    sync.Mutex
	key   int16
	mode  tapFault
	times int
	hit   chan struct{} // one for each hit; buffered, dropped when full
	on    map[int16]func()
}

func newOneFault() *oneFault {
	f := &oneFault{hit: make(chan struct{}, 100), on: map[int16]func(){}}
	f.seen = func(key int16) {
		f.mu.Lock()
		heard := f.on[key]
		f.mu.Unlock()
		if heard != nil {
			heard()
		}
	}
	f.fault = func(key int16) tapFault {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.times == 0 || key != f.key {
			return tapPass
		}
		f.times--
		select {
		case f.hit <- struct{}{}:
		default:
		}
		return f.mode
	}
	return f
}

func (f *oneFault) set(key int16, mode tapFault, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.mode, f.times = key, mode, times
}

// heard has f called for each later request of a key.
func (f *oneFault) heard(key int16, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[key] = do
}
