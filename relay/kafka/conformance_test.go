package kafka

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

func TestSink_ConformanceFake(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	h := harness(c.ListenAddrs()[0])
	h.Stall = func(_ *testing.T, topic string) func() { return stall(c, topic) }
	relaytest.RunSink(t, h)
}

// A broker on its own cannot be made to leave one topic without an answer, so the cases that need that
// run in process only.
func TestSink_ConformanceReal(t *testing.T) {
	t.Parallel()
	relaytest.RunSink(t, harness(realKafka(t)))
}

// stall lets the in-process cluster answer as if too few replicas were in sync, which the client asks
// about for ever.
func stall(c *kfake.Cluster, topic string) (resume func()) {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
}

func harness(seed string) relaytest.SinkHarness {
	const patience = 500 * time.Millisecond
	return relaytest.SinkHarness{
		Patience: patience,
		Open: func(t *testing.T) relay.Sink {
			return open(t, parsed(t, properties(seed)), Options{Patience: patience})
		},
		Topic: func(t *testing.T, partitions int32, maxBytes int) string {
			configs := map[string]string{}
			if maxBytes > 0 {
				configs["max.message.bytes"] = strconv.Itoa(maxBytes)
			}
			return newTopic(t, seed, partitions, configs)
		},
		Read: func(t *testing.T, topic string) [][]relaytest.SinkRecord { return readAll(t, seed, topic) },
	}
}

var topicNumber atomic.Int64

// newTopic creates a topic that is deleted with the test.
func newTopic(t testing.TB, seed string, partitions int32, configs map[string]string) string {
	t.Helper()
	name := fmt.Sprintf("sink-test-%d-%d", time.Now().UnixNano(), topicNumber.Add(1))
	createTopic(t, seed, name, partitions, configs)
	return name
}

func createTopic(t testing.TB, seed, name string, partitions int32, configs map[string]string) {
	t.Helper()
	adm := admin(t, seed)
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	_, err := adm.CreateTopic(t.Context(), partitions, 1, values, name)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = admin(t, seed).DeleteTopics(context.Background(), name) })
	require.Eventually(t, func() bool {
		m, err := adm.Metadata(t.Context(), name)
		if err != nil || m.Topics[name].Err != nil || len(m.Topics[name].Partitions) != int(partitions) {
			return false
		}
		for _, p := range m.Topics[name].Partitions {
			if p.Leader < 0 {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond, "topic %s", name)
}

func admin(t testing.TB, seed string) *kadm.Client { return kadm.NewClient(plainClient(t, seed)) }

// setTopic changes a topic's configuration and waits until the broker says so.
func setTopic(t testing.TB, seed, topic, key, value string) {
	t.Helper()
	adm := admin(t, seed)
	resp, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	require.NoError(t, err)
	require.NoError(t, resp[0].Err)
}

// readAll reads a topic from its beginning to its present end.
func readAll(t testing.TB, seed, topic string) [][]relaytest.SinkRecord {
	t.Helper()
	ends, err := admin(t, seed).ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	held := make([][]relaytest.SinkRecord, len(ends[topic]))
	left := int64(0)
	from := map[int32]kgo.Offset{}
	for p, end := range ends[topic] {
		left += end.Offset
		from[p] = kgo.NewOffset().AtStart()
	}
	c := plainClient(t, seed, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for left > 0 {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			var headers []relay.Header
			for _, h := range r.Headers {
				headers = append(headers, relay.Header{Name: h.Key, Value: h.Value})
			}
			held[r.Partition] = append(held[r.Partition], relaytest.SinkRecord{Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: headers})
		})
	}
	return held
}
