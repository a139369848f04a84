package librarytest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its server and can cut the next reply: the server has done what
// it was asked, and the client learns only that the connection is gone. It counts round trips: how often
// the client spoke after it had heard an answer, with one connection through it.
type proxy struct {
	addr  string
	cut   atomic.Bool
	asked atomic.Bool // the client has spoken since the server's last answer
	trips atomic.Int64
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: listener.Addr().String()}
	var wait sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		wait.Wait()
	})
	wait.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			wait.Go(func() { p.carry(client, upstream, false) })
			wait.Go(func() { p.carry(upstream, client, true) })
		}
	})
	return p
}

// carry copies one direction and closes both ends at its end. With cut set, the next bytes of an answer
// are read and thrown away with the connection.
func (p *proxy) carry(from, to net.Conn, answers bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		switch {
		case n == 0:
		case answers && p.cut.CompareAndSwap(true, false):
			return
		case answers:
			p.asked.Store(false)
		case p.asked.CompareAndSwap(false, true):
			p.trips.Add(1)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
