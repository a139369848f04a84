package kafka

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutConn is a connection that the network ends when the second request is on its way, as a listener does
// that wants a login.
type cutConn struct {
	net.Conn
	writes atomic.Int32
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.writes.Add(1) == 2 {
		_ = c.Close()
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.writes.Load() >= 2 {
		return n, io.EOF
	}
	return n, err
}

// TestSink_PingDoesNotJudgeByOneCut: a relay must not end for good because a connection was cut at start.
func TestSink_PingDoesNotJudgeByOneCut(t *testing.T) {
	t.Parallel()
	addr := cluster(t).ListenAddrs()[0]
	var dials atomic.Int32
	s := open(t, parsed(t, map[string]string{"bootstrap.servers": addr}), Options{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil && dials.Add(1) <= 2 {
				conn = &cutConn{Conn: conn}
			}
			return conn, err
		},
	})
	require.NoError(t, s.Ping(t.Context()))
	require.Greater(t, dials.Load(), int32(2), "the first connections were cut")
}
