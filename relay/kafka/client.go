package kafka

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newClient makes a client whose producer has an id of its own.
func (s *Sink) newClient() (*client, error) {
	c, err := kgo.NewClient(s.clientOptions()...)
	if err != nil {
		return nil, err
	}
	return &client{Client: c}, nil
}

func (s *Sink) clientOptions() []kgo.Opt {
	c := &s.cfg
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Seeds...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("postrider", "1"),
		kgo.WithLogger(clientLog{s.opts.Logger}),
		kgo.WithHooks(&s.trouble),
		kgo.Dialer(s.dial),

		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordRetries(math.MaxInt),
		kgo.RecordDeliveryTimeout(0),
		kgo.UnknownTopicRetries(4),
		kgo.RecordPartitioner(oneBatch{}),
		// Records wait for the kick at the end of a round (flight.go), or this long for the first
		// records of a topic whose layout the client still has to learn.
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.ProducerBatchCompression(c.codec(), kgo.NoCompression()),
		// The sink's own limits are reached first: these must never decide.
		kgo.ProducerBatchMaxBytes(maxRecord + 1024),
		kgo.MaxBufferedRecords(math.MaxInt32),

		// A produce request has half the time for the replicas' acknowledgements and half for the way.
		kgo.ProduceRequestTimeout(c.requestTimeout / 2),
		kgo.RequestTimeoutOverhead(c.requestTimeout / 2),
		kgo.RetryBackoffFn(c.backoff),
		kgo.MetadataMaxAge(c.metadataMaxAge),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.ConnIdleTimeout(c.connIdle),
	}
	if !c.telemetry {
		opts = append(opts, kgo.DisableClientMetrics())
	}
	if m := c.mechanism(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

func (c *Config) codec() kgo.CompressionCodec {
	var codec kgo.CompressionCodec
	switch c.Compression {
	case "gzip":
		codec = kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		codec = kgo.Lz4Compression()
	case "zstd":
		codec = kgo.ZstdCompression()
	default:
		return kgo.NoCompression()
	}
	if level, set := c.levels[c.Compression]; set {
		codec = codec.WithLevel(level)
	}
	return codec
}

// backoff doubles from retry.backoff.ms to retry.backoff.max.ms and spreads by a fifth either way.
func (c *Config) backoff(tries int) time.Duration {
	d := c.retryBackoff << min(max(tries-1, 0), 20)
	if d <= 0 || d > c.retryBackoffMax {
		d = c.retryBackoffMax
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// rest waits so long, or until ctx ends: then it returns the context's error.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dial connects, with TLS if the protocol says so, within socket.connection.setup.timeout.ms.
func (s *Sink) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.dialTimeout)
	defer cancel()
	conn, err := s.connect(ctx, network, address)
	if err != nil || !s.cfg.usesTLS() {
		return conn, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	secured, err := s.cfg.tls.handshake(ctx, conn, host)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// connect makes the bare connection.
func (s *Sink) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if s.opts.Dial != nil {
		return s.opts.Dial(ctx, network, address)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if s.cfg.sendBuffer > 0 {
			_ = tcp.SetWriteBuffer(s.cfg.sendBuffer)
		}
		if s.cfg.receiveBuffer > 0 {
			_ = tcp.SetReadBuffer(s.cfg.receiveBuffer)
		}
	}
	return conn, nil
}

// clientLog passes the client library's warnings on at debug level: the sink reports what matters in
// its own words.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelNone
}

func (l clientLog) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug("kafka client: "+msg, keyvals...)
}

// current is the client that takes new flights.
func (s *Sink) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// use counts a flight on the client that takes new ones.
func (s *Sink) use() *client {
	s.client.flights++
	return s.client
}

// leave ends a flight's use of its client. An older client is closed with its last flight. Called with
// mu held.
func (s *Sink) leave(c *client) {
	c.flights--
	if c.flights > 0 || c == s.client || !s.clients[c] {
		return
	}
	delete(s.clients, c)
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		c.Close()
	}()
}

// maxClients bounds the clients that live side by side: the one in use and older ones that still owe
// answers.
const maxClients = 4

// renew replaces client c, whose producer or memory of topics is of no more use. The client library
// keeps both for life: a refused producer id, and the sequence numbers of a topic that was deleted and
// created again, under which new records could be taken for copies of old ones. Flights under way stay
// with c until they are answered. It does nothing when c was already replaced, twice within a second,
// or when too many old clients still owe answers; the caller comes again with its next Write.
func (s *Sink) renew(c *client, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped.Load() || c != s.client || time.Since(s.renewed) < time.Second || len(s.clients) >= maxClients {
		return false
	}
	fresh, err := s.newClient()
	if err != nil {
		s.opts.Logger.Warn("renew the Kafka client", "error", err.Error())
		return false
	}
	s.opts.Logger.Info("starting over with a new Kafka client", "reason", why)
	s.client, s.renewed = fresh, time.Now()
	s.clients[fresh] = true
	clear(s.suspect)
	c.flights++ // leave closes c if it has no flight
	s.leave(c)
	return true
}
