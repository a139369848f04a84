package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// ping makes a sink and returns what Ping finds.
func ping(t *testing.T, opts Options, props map[string]string) *relay.SetupError {
	t.Helper()
	if props["request.timeout.ms"] == "" {
		props["request.timeout.ms"] = "5000"
	}
	s := open(t, parsed(t, props), opts)
	err := s.Ping(t.Context())
	require.Error(t, err)
	setup := relay.AsSetup(err)
	require.NotNil(t, setup, "%v", err)
	require.NotEmpty(t, setup.Fix, "%v", err)
	require.NotContains(t, err.Error(), "\n")
	return setup
}

// server answers each connection with answer and then stays silent until the test ends.
func server(t *testing.T, greets bool, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { close(done); _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				if !greets {
					_, _ = io.ReadAtLeast(conn, make([]byte, 64), 4)
				}
				_, _ = io.WriteString(conn, answer)
				<-done
			}()
		}
	}()
	return l.Addr().String()
}

func TestSink_PingNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	trusting := certPEM(ca.cert)
	secured := cluster(t, kfake.TLS(ca.server(t, x509.Certificate{}))).ListenAddrs()[0]
	open := cluster(t).ListenAddrs()[0]
	login := refusing(t)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	misnamed := cluster(t, kfake.TLS(ca.server(t, x509.Certificate{DNSNames: []string{"kafka.example.com"}}))).ListenAddrs()[0]
	expired := cluster(t, kfake.TLS(ca.server(t, x509.Certificate{NotAfter: time.Now().Add(-time.Minute)}))).ListenAddrs()[0]
	wantsCert := ca.server(t, x509.Certificate{})
	wantsCert.ClientAuth = tls.RequireAnyClientCert
	mutual := cluster(t, kfake.TLS(wantsCert)).ListenAddrs()[0]
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())

	scram := []string{"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-256", "sasl.username", "app", "sasl.password", "wrong"}
	for _, c := range []struct {
		name, seed string
		props      []string
		kind       relay.SetupKind
		says       []string
	}{
		{"nothing listens", gone.Addr().String(), nil, relay.SetupUnreachable, []string{gone.Addr().String(), "the connection is refused", "start the broker"}},
		{"no such name", "no-such-host.invalid:9092", nil, relay.SetupUnreachable, []string{"the name no-such-host.invalid is not known here"}},
		{"web server", web.Listener.Addr().String(), nil, relay.SetupUsage, []string{"a web server answers there, not Kafka", "bootstrap.servers"}},
		{"web server, TLS wanted", web.Listener.Addr().String(), []string{"security.protocol", "SSL"}, relay.SetupUsage, []string{"a web server answers there"}},
		{"PostgreSQL", server(t, false, "E\x00\x00\x00\x8fSFATAL\x00VFATAL\x00C0A000\x00"), nil, relay.SetupUsage, []string{"a PostgreSQL server answers there"}},
		{"MySQL", server(t, true, "J\x00\x00\x00\x0a9.7.4\x00\x10\x00\x00\x00abcdefgh"), nil, relay.SetupUsage, []string{"a MySQL or MariaDB server answers there"}},
		{"silence", server(t, true, ""), []string{"request.timeout.ms", "1000"}, relay.SetupUnreachable, []string{"does not answer in time"}},
		{"TLS listener, PLAINTEXT client", secured, nil, relay.SetupUsage, []string{"it speaks TLS", "security.protocol to SSL"}},
		{"plain listener, TLS client", open, []string{"security.protocol", "SSL", "request.timeout.ms", "1500"}, relay.SetupUsage, []string{"TLS", "security.protocol"}},
		{"unknown authority", secured, []string{"security.protocol", "SSL", "ssl.truststore.certificates", certPEM(other.cert)}, relay.SetupUsage, []string{"an authority that is not trusted", "ssl.truststore.location"}},
		{"another host's certificate", misnamed, []string{"security.protocol", "SSL", "ssl.truststore.certificates", trusting}, relay.SetupUsage, []string{"certificate is for another name"}},
		{"expired certificate", expired, []string{"security.protocol", "SSL", "ssl.truststore.certificates", trusting}, relay.SetupUsage, []string{"certificate is not valid"}},
		{"client certificate missing", mutual, []string{"security.protocol", "SSL", "ssl.truststore.certificates", trusting}, relay.SetupUsage, []string{"refuses the TLS handshake", "ssl.keystore.location"}},
		{"wrong password", login, scram, relay.SetupPermission, []string{"the login as app is refused", "SASL_AUTHENTICATION_FAILED", "password"}},
		{"wrong password, PLAIN", login, []string{"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.username", "plain", "sasl.password", "wrong"}, relay.SetupPermission, []string{"the login as plain is refused"}},
		{"mechanism not offered", login, append(scram[:0:0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token", "wrong"), relay.SetupUsage, []string{"UNSUPPORTED_SASL_MECHANISM", "sasl.mechanism"}},
		{"login missing", login, nil, relay.SetupUsage, []string{"it is a Kafka listener that wants a login", "security.protocol to SASL_PLAINTEXT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			setup := ping(t, Options{}, properties(c.seed, c.props...))
			require.Equal(t, c.kind, setup.Kind, "%v", setup)
			for _, want := range c.says {
				require.Contains(t, setup.Error(), want)
			}
			require.NotContains(t, setup.Error(), "wrong")
		})
	}
}

// A broker that gives an address only its own host knows is the commonest trouble of a first
// connection, and looks like anything but that.
func TestSink_PingNamesAnAdvertisedAddressThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	real := cluster(t).ListenAddrs()[0]
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "seed.example") {
			return (&net.Dialer{}).DialContext(ctx, network, real)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: "kafka", IsNotFound: true}}
	}
	setup := ping(t, Options{Dial: dial}, properties("seed.example:9092"))
	require.Equal(t, relay.SetupUnreachable, setup.Kind)
	require.Contains(t, setup.Error(), "the cluster answers at seed.example:9092, and gives its brokers an address that cannot be used from here: the name kafka is not known here; set advertised.listeners")
}

func TestSink_PingWaitsForACluster(t *testing.T) {
	t.Parallel()
	seed := cluster(t).ListenAddrs()[0]
	s := open(t, parsed(t, properties(seed)), Options{})
	require.NoError(t, s.Ping(t.Context()))
	require.NoError(t, s.Health().Trouble)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Ping(ctx))
}

func TestSink_LogsInWithSCRAMAndPLAIN(t *testing.T) {
	t.Parallel()
	const password = `p#G>P@/%7x:,=`
	c := cluster(t, kfake.EnableSASL(), kfake.SeedTopics(1, "t"), kfake.Superuser("SCRAM-SHA-256", "a", password),
		kfake.Superuser("SCRAM-SHA-512", "b", password), kfake.Superuser("PLAIN", "c", password))
	for user, mechanism := range map[string]string{"a": "SCRAM-SHA-256", "b": "SCRAM-SHA-512", "c": "PLAIN"} {
		s := open(t, parsed(t, properties(c.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", mechanism,
			"sasl.username", user, "sasl.password", password)), Options{})
		require.NoError(t, s.Ping(t.Context()), mechanism)
		require.Nil(t, send(t, s, record("t", "k", "v"))[0].Failure, mechanism)
	}
}

// A login that stops working while the relay runs is not a verdict on any record; it shows in Health.
func TestSink_HealthShowsARefusedLogin(t *testing.T) {
	t.Parallel()
	s := open(t, parsed(t, properties(refusing(t), "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-256",
		"sasl.username", "app", "sasl.password", "wrong")), Options{Patience: 300 * time.Millisecond})
	f := send(t, s, record("t", "k", "v"))[0].Failure
	require.NotNil(t, f)
	require.Contains(t, []relay.Class{relay.ClassRelay, relay.ClassUnavailable}, f.Class)
	trouble := relay.AsSetup(s.Health().Trouble)
	require.NotNil(t, trouble)
	require.Equal(t, relay.SetupPermission, trouble.Kind)
}

// refusing is a cluster that wants a login and refuses every one as brokers do. (The in-process one
// closes the connection.)
func refusing(t *testing.T) string {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "app", "right"), kfake.Superuser("PLAIN", "plain", "right"))
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password")
		return resp, nil, true
	})
	return c.ListenAddrs()[0]
}

func TestTrouble_OfABrokerThatLeftPasses(t *testing.T) {
	t.Parallel()
	tr := &trouble{}
	meta := kgo.BrokerMetadata{Host: "gone", Port: 9092}
	tr.OnBrokerConnect(meta, 0, nil, context.Canceled)
	_, err := tr.last()
	require.NoError(t, err, "ended from this side")
	tr.OnBrokerConnect(meta, 0, nil, io.EOF)
	addr, err := tr.last()
	require.Equal(t, "gone:9092", addr)
	require.ErrorIs(t, err, io.EOF)
	tr.failed["gone:9092"] = attempt{io.EOF, time.Now().Add(-troubleLasts)}
	_, err = tr.last()
	require.NoError(t, err)
}
