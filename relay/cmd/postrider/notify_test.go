//go:build unix

package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNotifySystemd sends each state as one datagram, by a path or by an abstract name, and needs nobody
// to listen.
func TestNotifySystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	notifySystemd("READY=1") // not under systemd
	path := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", path)
	notifySystemd("READY=1") // nobody there
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	for _, state := range []string{"READY=1", "STATUS=waiting for Kafka", "STOPPING=1"} {
		notifySystemd(state)
		buf := make([]byte, 100)
		n, err := conn.Read(buf)
		require.NoError(t, err)
		require.Equal(t, state, string(buf[:n]))
	}
}
