//go:build unix

package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaFrames makes a proxy one of Kafka: a client goes where the broker's metadata send it, so that
// must be the proxy. It serves clusters of one broker. Records for topics that the proxy refuses do not
// reach the broker; the client is told that replicas are missing.
func kafkaFrames(p *proxy) framing {
	k := &kafkaLink{proxy: p}
	return framing{request: k.request, reply: k.reply}
}

// kafkaLink knows which requests of a connection wait for their reply; replies come in their order.
type kafkaLink struct {
	proxy *proxy
	mu    sync.Mutex
	sent  []kafkaRequest
}

type kafkaRequest struct {
	key, version int16
	correlation  int32
	refused      []kmsg.ProduceRequestTopic
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
	if err != nil || len(buf) < 14 {
		return nil, err
	}
	b := binary.BigEndian
	r := kafkaRequest{key: int16(b.Uint16(buf[4:])), version: int16(b.Uint16(buf[6:])), correlation: int32(b.Uint32(buf[8:]))}
	if kmsg.Key(r.key) == kmsg.Produce {
		if buf, err = k.refuse(&r, buf); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, r)
	return buf, nil
}

// asks is the kind of requests with one of the keys.
func asks(keys ...kmsg.Key) func([]byte) bool {
	return func(request []byte) bool {
		return len(request) > 6 && slices.Contains(keys, kmsg.Key(binary.BigEndian.Uint16(request[4:])))
	}
}

// produces is the kind of requests that bring records to a topic, or to none but others. Since version 13 they name
// topics by their ids.
func produces(topic [16]byte, others bool) func([]byte) bool {
	return func(request []byte) bool {
		return asks(kmsg.Produce)(request) && bytes.Contains(request, topic[:]) != others
	}
}

// refuse takes the refused topics out of a produce request.
func (k *kafkaLink) refuse(r *kafkaRequest, buf []byte) ([]byte, error) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(r.version)
	head := 14 // size, key, version, correlation id, length of the client id
	if n := int16(binary.BigEndian.Uint16(buf[12:])); n > 0 {
		head += int(n)
	}
	if req.IsFlexible() {
		head++ // no tags
	}
	if err := req.ReadFrom(buf[head:]); err != nil {
		return nil, fmt.Errorf("read a produce request: %w", err)
	}
	var taken []kmsg.ProduceRequestTopic
	for _, t := range req.Topics {
		_, byName := k.proxy.refused.Load(t.Topic)
		_, byID := k.proxy.refused.Load(t.TopicID)
		if byName || byID {
			r.refused = append(r.refused, t)
		} else {
			taken = append(taken, t)
		}
	}
	if len(r.refused) == 0 {
		return buf, nil
	}
	req.Topics = taken
	return sized(req.AppendTo(append([]byte(nil), buf[:head]...))), nil
}

// sized writes a frame's size in front.
func sized(frame []byte) []byte {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
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
	return k.change(r, buf)
}

// change puts the proxy's address where a reply names the broker's, and answers for refused topics.
func (k *kafkaLink) change(r kafkaRequest, buf []byte) ([]byte, error) {
	switch kmsg.Key(r.key) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.Produce:
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
	host, digits, _ := net.SplitHostPort(k.proxy.addr)
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
	case *kmsg.ProduceResponse:
		for _, t := range r.refused {
			m.Topics = append(m.Topics, missingReplicas(t))
		}
	}
	return sized(resp.AppendTo(append([]byte(nil), buf[:head]...))), nil
}

func missingReplicas(t kmsg.ProduceRequestTopic) kmsg.ProduceResponseTopic {
	out := kmsg.NewProduceResponseTopic()
	out.Topic, out.TopicID = t.Topic, t.TopicID
	for _, p := range t.Partitions {
		failed := kmsg.NewProduceResponseTopicPartition()
		failed.Partition, failed.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
		out.Partitions = append(out.Partitions, failed)
	}
	return out
}
