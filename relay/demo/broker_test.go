package demo

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDoor(t *testing.T) {
	t.Parallel()
	b, err := startBroker(t.Context())
	require.NoError(t, err)
	defer b.close()
	dial := func() (net.Conn, error) {
		return (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", b.addr())
	}
	before := b.addr()
	conn, err := dial()
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the broker has taken the connection
		b.door.mu.Lock()
		defer b.door.mu.Unlock()
		return len(b.door.conns) == 1
	}, 5*time.Second, time.Millisecond)

	b.door.shut()
	b.door.shut()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err, "connections break")
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = dial()
	require.Error(t, err, "new ones are refused")
	require.False(t, b.door.isOpen())

	require.NoError(t, b.door.open(t.Context()))
	require.NoError(t, b.door.open(t.Context()))
	require.Equal(t, before, b.addr())
	conn, err = dial()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestDoor_PortTaken(t *testing.T) {
	t.Parallel()
	b, err := startBroker(t.Context())
	require.NoError(t, err)
	defer b.close()
	b.door.shut()
	thief, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", b.addr())
	require.NoError(t, err)
	defer func() { _ = thief.Close() }()
	require.ErrorContains(t, b.door.open(t.Context()), "listen on "+b.addr())
}
