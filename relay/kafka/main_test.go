package kafka

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/relay"
)

func TestMain(m *testing.M) {
	carrying = true // off in the product for now, see there
	goleak.VerifyTestMain(m)
}

// cluster starts an in-process Kafka.
func cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// realKafka returns the address of a real broker.
func realKafka(t testing.TB) string {
	t.Helper()
	addr := os.Getenv("POSTRIDER_TEST_KAFKA")
	if addr == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("POSTRIDER_TEST_KAFKA is not set, and CI must not skip")
		}
		t.Skip("set POSTRIDER_TEST_KAFKA to a broker's host:port (dev/servers up)")
	}
	return addr
}

// properties of a client for the seeds, with more pairs of name and value.
func properties(seed string, more ...string) map[string]string {
	props := map[string]string{"bootstrap.servers": seed}
	for i := 0; i < len(more); i += 2 {
		props[more[i]] = more[i+1]
	}
	return props
}

func parsed(t testing.TB, props map[string]string) Config {
	t.Helper()
	cfg, problems, _ := Parse(props)
	require.Empty(t, problems)
	return cfg
}

// open makes a sink that is closed with the test.
func open(t testing.TB, cfg Config, opts Options) *Sink {
	t.Helper()
	s, err := NewSink(cfg, opts)
	require.NoError(t, err)
	closeLater(t, s)
	return s
}

// closeLater closes a sink with the test; it does not wait long for what is on its way.
func closeLater(t testing.TB, s relay.Sink) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Close(ctx)
	})
}

// client makes a plain client of the library that is closed with the test.
func plainClient(t testing.TB, seed string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seed), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// contextOf is a context for a test's cleanups too, when t.Context has ended.
func contextOf(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
