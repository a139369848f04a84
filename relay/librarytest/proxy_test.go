package librarytest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and its server and can cut the next reply: the server has done what
// it was asked, and the client learns only that the connection is gone.
type proxy struct {
	addr string
	cut  atomic.Bool
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
			wait.Go(func() { p.carry(client, upstream, nil) })
			wait.Go(func() { p.carry(upstream, client, &p.cut) })
		}
	})
	return p
}

// carry copies one direction and closes both ends at its end. With cut set, the next bytes are read
// and thrown away with the connection.
func (p *proxy) carry(from, to net.Conn, cut *atomic.Bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if cut != nil && n > 0 && cut.CompareAndSwap(true, false) {
			return
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
