//go:build unix

package crashtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaFrames makes a proxy one of Kafka: a client goes where the broker's metadata send it, so that
// must be the proxy. It serves clusters of one broker.
func kafkaFrames(p *proxy) framing {
	k := &kafkaLink{addr: p.addr}
	return framing{request: k.request, reply: k.reply}
}

// kafkaLink knows which requests of a connection wait for their reply; replies come in their order.
type kafkaLink struct {
	addr string
	mu   sync.Mutex
	sent []kafkaRequest
}

type kafkaRequest struct {
	key, version int16
	correlation  int32
}

// maxFrame is more than a test sends.
const maxFrame = 64 << 20

func frame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	buf := make([]byte, 4+n)
	copy(buf, size[:])
	_, err := io.ReadFull(from, buf[4:])
	return buf, err
}

func (k *kafkaLink) request(from io.Reader) ([]byte, error) {
	buf, err := frame(from)
	if err != nil || len(buf) < 12 {
		return nil, err
	}
	b := binary.BigEndian
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, kafkaRequest{int16(b.Uint16(buf[4:])), int16(b.Uint16(buf[6:])), int32(b.Uint32(buf[8:]))})
	return buf, nil
}

func (k *kafkaLink) reply(from io.Reader) ([]byte, error) {
	buf, err := frame(from)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sent) == 0 || k.sent[0].correlation != int32(binary.BigEndian.Uint32(buf[4:])) {
		return nil, errors.New("a reply that nothing asked for")
	}
	r := k.sent[0]
	k.sent = k.sent[1:]
	return k.redirect(r, buf)
}

// redirect puts the proxy's address where a reply names the broker's.
func (k *kafkaLink) redirect(r kafkaRequest, buf []byte) ([]byte, error) {
	switch kmsg.Key(r.key) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
	default:
		return buf, nil
	}
	resp := kmsg.ResponseForKey(r.key)
	resp.SetVersion(r.version)
	head := 8 // size and correlation id
	if resp.IsFlexible() {
		head++ // no tags
	}
	if err := resp.ReadFrom(buf[head:]); err != nil {
		return nil, fmt.Errorf("read %s: %w", kmsg.NameForKey(r.key), err)
	}
	host, digits, _ := net.SplitHostPort(k.addr)
	n, _ := strconv.Atoi(digits)
	port := int32(n)
	switch m := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range m.Brokers {
			m.Brokers[i].Host, m.Brokers[i].Port = host, port
		}
	case *kmsg.FindCoordinatorResponse:
		m.Host, m.Port = host, port
		for i := range m.Coordinators {
			m.Coordinators[i].Host, m.Coordinators[i].Port = host, port
		}
	case *kmsg.DescribeClusterResponse:
		for i := range m.Brokers {
			m.Brokers[i].Host, m.Brokers[i].Port = host, port
		}
	}
	out := resp.AppendTo(append([]byte(nil), buf[:head]...))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out, nil
}
