package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/postrider/postrider/relay"
)

// sniffWait bounds the look at a port that does not answer as a broker.
const sniffWait = 2 * time.Second

// hello is a request that every broker answers without a login: ApiVersions, version 0, with the
// correlation id 7 and an empty client id.
var hello = []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0, 0}

// sniff connects without TLS, says hello, and looks at the first bytes of the answer; a port that closes
// then is asked for a TLS handshake. It returns nil when that tells nothing.
func (s *Sink) sniff(ctx context.Context, addr string) *relay.SetupError {
	ctx, cancel := context.WithTimeout(ctx, sniffWait)
	defer cancel()
	conn, err := s.connect(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write(hello); err != nil {
		return nil
	}
	answer := make([]byte, 16)
	n, err := io.ReadAtLeast(conn, answer, 8)
	if err != nil && n == 0 && !s.cfg.usesTLS() && s.speaksTLS(ctx, addr) {
		return speaksTLS(addr)
	}
	return s.recognise(addr, answer[:n])
}

// speaksTLS offers a handshake and accepts any certificate: nothing is sent after it.
func (s *Sink) speaksTLS(ctx context.Context, addr string) bool {
	conn, err := s.connect(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) // only looked at
	var remote *net.OpError
	return err == nil || errors.As(err, &remote) && remote.Op == "remote error"
}

func speaksTLS(addr string) *relay.SetupError {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: "kafka broker " + addr, Reason: "it speaks TLS",
		Fix: "set security.protocol to SSL or SASL_SSL"}
}

// recognise tells what speaks like that.
func (s *Sink) recognise(addr string, b []byte) *relay.SetupError {
	e := &relay.SetupError{Kind: relay.SetupUsage, Thing: "kafka broker " + addr,
		Fix: "correct the port in bootstrap.servers"}
	switch {
	case bytes.HasPrefix(b, []byte("HTTP/")):
		e.Reason = "a web server answers there, not Kafka"
	case len(b) >= 5 && b[0] == 'E' && b[1] == 0 && b[2] == 0:
		e.Reason = "a PostgreSQL server answers there, not Kafka"
	case len(b) >= 5 && b[3] == 0 && (b[4] == 10 || b[4] == 0xff) && b[2] == 0:
		e.Reason = "a MySQL or MariaDB server answers there, not Kafka"
	case len(b) >= 3 && b[0] == 0x15 && b[1] == 3:
		if s.cfg.usesTLS() {
			return nil
		}
		return speaksTLS(addr)
	case len(b) >= 8 && binary.BigEndian.Uint32(b[4:8]) == 7 && b[0] == 0:
		switch {
		case s.cfg.usesTLS():
			e.Reason, e.Fix = "it is a Kafka listener without TLS", "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the port of a TLS listener"
		case !s.cfg.usesSASL():
			e.Reason, e.Fix = "it is a Kafka listener that wants a login, or a controller's", "set security.protocol to SASL_PLAINTEXT, or name a broker's port in bootstrap.servers"
		default:
			return nil
		}
	default:
		return nil
	}
	return e
}
