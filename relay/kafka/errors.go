package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// Codes of failures that no broker gave.
const (
	CodeHeld                = "HELD"                   // an earlier record of the key was refused
	CodeBufferFull          = "BUFFER_FULL"            // unanswered records hold buffer.memory
	CodePartitionOutOfRange = "PARTITION_OUT_OF_RANGE" // an explicit partition that the topic lacks
	CodeUnreachable         = "BROKER_UNREACHABLE"     // the network, or no broker behind it
	CodeTLS                 = "TLS_REFUSED"            // a certificate that is not accepted
	CodeFenced              = "FENCED"                 // the record's lane is another relay's
	CodeCancelled           = "WRITE_CANCELLED"        // the caller's context ended before the record was sent
	CodeClosed              = "SINK_CLOSED"            // the sink was closed before the record was sent
	CodeClient              = "CLIENT_ERROR"           // anything else the client library reports
)

// place finds an error's placement and the code it is reported under.
func place(err error) (placement, string) {
	var broker *kerr.Error
	if errors.As(err, &broker) {
		if p, placed := placements[broker]; placed {
			return p, broker.Message
		}
		return foreign, broker.Message
	}
	switch {
	case errors.Is(err, kgo.ErrClientClosed):
		return placement{class: relay.ClassUnavailable}, CodeClosed
	case errors.Is(err, kgo.ErrMaxBuffered):
		return placement{class: relay.ClassUnavailable}, CodeBufferFull
	case isCertificate(err):
		return placement{class: relay.ClassRelay, hint: "check the ssl.* properties"}, CodeTLS
	case isNetwork(err):
		return clusterTrouble, CodeUnreachable
	}
	// What is left came from the client library: a timeout, an abort, a topic dropped from its memory.
	// None of it is a verdict on a record.
	return placement{class: relay.ClassUnavailable}, CodeClient
}

// isNetwork is true for what a connection or the wait for one reports. A context that ended is one: it
// bounded a request to a broker that did not answer.
func isNetwork(err error) bool {
	var opErr *net.OpError
	var dnsErr *net.DNSError
	var eof *kgo.ErrFirstReadEOF
	return errors.As(err, &opErr) || errors.As(err, &dnsErr) || errors.As(err, &eof) ||
		kgo.IsRetryableBrokerErr(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// failure is the account of an error that a topic's records met.
func (s *Sink) failure(topic string, err error) *relay.Failure {
	p, code := place(err)
	f := &relay.Failure{Class: p.class, Code: code, Hint: s.fill(p.hint, topic)}
	var broker *kerr.Error
	if errors.As(err, &broker) {
		f.Text = fmt.Sprintf("topic %s: %s", topic, strings.TrimSuffix(broker.Description, "."))
	} else {
		f.Text = fmt.Sprintf("topic %s: %s", topic, err)
	}
	if p.grace {
		f.Grace = s.opts.UnknownTopicGrace
	}
	return f
}

// fill puts names into a hint.
func (s *Sink) fill(hint, topic string) string {
	if !strings.Contains(hint, "{") {
		return hint
	}
	replicas := min(max(s.brokers.Load(), 1), 3)
	return strings.NewReplacer("{replicas}", strconv.Itoa(int(replicas)), "{servers}", strings.Join(s.cfg.Seeds, ","), "{topic}", topic,
		"{principal}", s.cfg.Principal()).Replace(hint)
}

// tooLargeFor tells the sizes that the broker's answer leaves out.
func tooLargeFor(topic string, size int, limit topicLimit) *relay.Failure {
	return &relay.Failure{
		Class: relay.ClassPermanent, Code: kerr.MessageTooLarge.Message, Hint: limit.hint,
		Text: fmt.Sprintf("topic %s: record is %d bytes, %s %d (%s)", topic, size, limit.whose, limit.bytes, limit.property),
	}
}

// topicLimit is the smaller of a topic's and this client's limit on a record.
type topicLimit struct {
	bytes    int
	whose    string
	property string
	hint     string
}

func (s *Sink) limit(t *topicInfo) topicLimit {
	if own := s.cfg.MaxRequestSize; own > 0 && own < t.maxBytes {
		return topicLimit{own, "client limit", "max.request.size", "raise max.request.size, or make the event smaller; then postrider events retry"}
	}
	if t.maxBytes > maxRecord {
		return topicLimit{maxRecord, "client limit", "100 MiB a request", "make the event smaller"}
	}
	return topicLimit{t.maxBytes, "topic limit", "max.message.bytes", hintLimit}
}
