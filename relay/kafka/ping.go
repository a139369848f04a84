package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// Ping reports whether the cluster can be reached and lets this client write: nil, or a
// *relay.SetupError that names the address, the reason and the next step. SetupUnreachable is worth
// waiting for, the other kinds are not. It asks one broker to answer, one of those that the cluster
// names to be reachable under the name it gives, and an id for a producer. It takes request.timeout.ms
// at most.
func (s *Sink) Ping(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, s.cfg.requestTimeout)
	defer cancel()
	for try := time.Duration(1); ; try++ {
		setup := s.ping(ctx, within)
		if setup == nil {
			return nil
		}
		// What a closed connection seems to say about the listener counts only when it says so each time:
		// networks and brokers that stop close connections too, and the relay would end for good.
		if setup.Kind == relay.SetupUnreachable || !isClosed(setup.Err) || try == pingTries {
			return setup
		}
		select {
		case <-time.After(try * pingPause):
		case <-within.Done():
			return setup
		}
	}
}

// pingTries is how often a connection must be closed for the listener to be judged by it. The pauses
// between them grow by pingPause.
const (
	pingTries = 4
	pingPause = 200 * time.Millisecond
)

// ping asks within its time; finding out why there is no answer may take a little longer.
func (s *Sink) ping(ctx, within context.Context) *relay.SetupError {
	c := s.current()
	if err := c.Ping(within); err != nil {
		return s.unreachable(ctx, err)
	}
	if setup := s.advertised(within, c); setup != nil {
		return setup
	}
	if err := producerAllowed(within, c); err != nil {
		return s.unreachable(ctx, err)
	}
	return nil
}

// unreachable tells why no broker answered. The library's error may be the end of a context while the
// attempts before it failed for a better reason.
func (s *Sink) unreachable(ctx context.Context, err error) *relay.SetupError {
	addr := s.cfg.Seeds[len(s.cfg.Seeds)-1]
	if at, last := s.trouble.last(); last != nil && (isContext(err) || errors.Is(last, err)) {
		addr, err = at, last
	}
	setup := s.diagnose(addr, err)
	var header tls.RecordHeaderError
	if isRefused(err) || isName(err) || setup.Kind != relay.SetupUnreachable && !errors.As(err, &header) {
		return setup
	}
	// Something is there and does not behave like this cluster's broker: look what it is.
	if better := s.sniff(ctx, addr); better != nil {
		better.Err = setup.Err
		return better
	}
	return setup
}

// advertised connects to the brokers under the addresses that the cluster gives them, until one answers.
// A listener that advertises a name which only its own host knows is the commonest trouble of a first
// connection.
func (s *Sink) advertised(ctx context.Context, c *client) *relay.SetupError {
	var last error
	for _, b := range c.DiscoveredBrokers() {
		_, err := b.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err == nil {
			return nil
		}
		last = err
	}
	if last == nil {
		return nil
	}
	addr := "the cluster names"
	if at, err := s.trouble.last(); err != nil {
		addr, last = at, err
	}
	setup := s.diagnose(addr, last)
	setup.Reason = "the cluster answers at " + strings.Join(s.cfg.Seeds, ",") + ", and gives its brokers an address that cannot be used from here: " + setup.Reason
	setup.Fix = "set advertised.listeners of the brokers to an address that this host reaches"
	return setup
}

// producerAllowed asks for a producer id, as the first write would.
func producerAllowed(ctx context.Context, c *client) error {
	resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, c)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil && !kerr.IsRetriable(err) {
		return err
	}
	return nil
}

// diagnose puts an error into the words of a person's problem.
func (s *Sink) diagnose(addr string, err error) *relay.SetupError {
	e := &relay.SetupError{Kind: relay.SetupUnreachable, Thing: "kafka broker " + addr, Err: err}
	if s.diagnoseTLS(e, err) || s.diagnoseBroker(e, err) {
		return e
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		e.Reason, e.Fix = "the name "+dns.Name+" is not known here", "check bootstrap.servers, and advertised.listeners of the brokers"
	case isRefused(err):
		e.Reason, e.Fix = "the connection is refused: nothing listens there", "start the broker, or correct bootstrap.servers"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.Reason, e.Fix = "there is no route to the host", "check the network, or correct bootstrap.servers"
	case isClosed(err):
		e.Reason, e.Fix = "it closes the connection at once", s.protocolHint()
	case isContext(err), isTimeout(err):
		e.Reason, e.Fix = "it does not answer in time", "check the network and firewalls, and that the port is a broker's"
	default:
		e.Reason, e.Fix = err.Error(), "check that the port in bootstrap.servers is a Kafka broker's"
	}
	return e
}

func (s *Sink) protocolHint() string {
	switch s.cfg.Protocol {
	case "PLAINTEXT":
		return "its listener may want TLS or a login: set security.protocol to SSL, SASL_PLAINTEXT or SASL_SSL"
	case "SASL_PLAINTEXT":
		return "check sasl.mechanism, user and password; or its listener wants TLS: set security.protocol to SASL_SSL"
	case "SASL_SSL":
		return "check sasl.mechanism, user and password; or its listener does not speak TLS: compare security.protocol with the broker's listeners"
	}
	return "its listener may not speak TLS: compare security.protocol with the broker's listeners"
}

func (s *Sink) diagnoseTLS(e *relay.SetupError, err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var header tls.RecordHeaderError
	var remote *net.OpError
	var own *propertyError
	e.Kind = relay.SetupUsage
	switch {
	case errors.As(err, &own):
		e.Thing, e.Reason = "kafka."+own.property, own.err.Error()
	case errors.As(err, &host):
		e.Reason, e.Fix = "its certificate is for another name: "+host.Error(), "use the name in the certificate in bootstrap.servers and advertised.listeners"
	case errors.As(err, &unknown):
		e.Reason, e.Fix = "its certificate is signed by an authority that is not trusted", "set ssl.truststore.location to the authority's PEM file"
	case errors.As(err, &invalid):
		e.Reason, e.Fix = "its certificate is not valid: "+invalid.Error(), "renew the broker's certificate, or correct this host's clock"
	case errors.As(err, &remote) && remote.Op == "remote error": // what the other side's TLS says
		e.Reason, e.Fix = "it refuses the TLS handshake: "+remote.Err.Error(), "the listener may want a client certificate: set ssl.keystore.location"
	case errors.As(err, &header):
		e.Reason, e.Fix = "it does not speak TLS", "set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the port of a TLS listener"
	default:
		e.Kind = relay.SetupUnreachable
		return false
	}
	return true
}

func (s *Sink) diagnoseBroker(e *relay.SetupError, err error) bool {
	var broker *kerr.Error
	if !errors.As(err, &broker) {
		return false
	}
	p, _ := place(err)
	e.Reason = fmt.Sprintf("%s: %s", broker.Message, strings.TrimSuffix(broker.Description, "."))
	e.Fix = s.fill(p.hint, "")
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		e.Kind, e.Reason = relay.SetupPermission, fmt.Sprintf("the login as %s is refused (%s)", strings.TrimPrefix(s.cfg.Principal(), "User:"), broker.Message)
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		e.Kind, e.Reason = relay.SetupPermission, fmt.Sprintf("%s may not write with an idempotent producer (%s)", s.cfg.Principal(), broker.Message)
	case p.class == relay.ClassRelay:
		e.Kind = relay.SetupUsage
	}
	return true
}

func isCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &verify)
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// isClosed says whether the other side ended the connection.
func isClosed(err error) bool {
	var eof *kgo.ErrFirstReadEOF
	return errors.As(err, &eof) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
}

func isName(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns)
}

func isContext(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func portText(port int32) string { return strconv.Itoa(int(port)) }
