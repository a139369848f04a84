package main

import (
	"net"
	"os"
)

// notifySystemd tells systemd (Type=notify) of a state such as "READY=1". Without NOTIFY_SOCKET it
// does nothing; that systemd does not listen is no reason to fail. Protocol: sd_notify(3).
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' { // an abstract socket
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte(state))
}
