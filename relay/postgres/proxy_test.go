package postgres

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a store and its server.
type proxy struct {
	url      string
	listener net.Listener
	mu       sync.Mutex
	swallow  bool
	conns    []net.Conn
	wg       sync.WaitGroup
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	target := u.Host
	u.Host = listener.Addr().String()
	p := &proxy{url: u.String(), listener: listener}
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(client, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.heal()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) pass(client net.Conn, target string) {
	backend, err := net.Dial("tcp", target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, backend)
	p.mu.Unlock()
	p.wg.Go(func() {
		_, _ = io.Copy(backend, client)
		_ = backend.Close()
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := backend.Read(buf)
		if err != nil {
			break
		}
		p.mu.Lock()
		cut := p.swallow
		p.mu.Unlock()
		if cut {
			break // the server has answered, the client never hears of it
		}
		if _, err := client.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = client.Close()
	_ = backend.Close()
}

// swallowReplies ends each connection at the server's next answer, without handing it on.
func (p *proxy) swallowReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = true
}

// heal ends all connections and lets new ones work.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swallow = false
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
