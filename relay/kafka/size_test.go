package kafka

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

// The size that is compared with a topic's limit is the size of the batch that a broker would get, to
// the byte.
func TestSizeOf_IsTheBatchOnTheWire(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	seed := c.ListenAddrs()[0]
	topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "10000000"})
	sizes := make(chan int, 1)
	watch(c, func(rt kmsg.ProduceRequestTopic) { sizes <- len(rt.Partitions[0].Records) })
	s := open(t, parsed(t, properties(seed)), Options{})
	lengths := rapid.OneOf(rapid.IntRange(0, 300), rapid.SampledFrom([]int{8_150, 8_190, 8_200, 1_048_500, 1_048_576, 2_097_200}))
	rapid.Check(t, func(t *rapid.T) {
		r := relay.Record{Topic: topic, Key: blob(t, "key", lengths), Value: blob(t, "value", lengths)}
		for range rapid.IntRange(0, 70).Draw(t, "headers") {
			r.Headers = append(r.Headers, relay.Header{Name: rapid.StringN(0, 80, -1).Draw(t, "name"), Value: blob(t, "header", rapid.IntRange(0, 200))})
		}
		w := begin(context.Background(), s, r)
		require.Equal(t, batchOverhead+sizeOf(&r), <-sizes)
		w.await(t, 1)
		require.Nil(t, w.result(0).Failure)
	})
}

func blob(t *rapid.T, label string, lengths *rapid.Generator[int]) []byte {
	if rapid.Bool().Draw(t, label+" is null") {
		return nil
	}
	return []byte(strings.Repeat("x", lengths.Draw(t, label+" length")))
}

// A round never outgrows the topic's limit, however many records it has.
func TestSink_BatchesStayWithinTheTopicsLimit(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	seed := c.ListenAddrs()[0]
	topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "5000"})
	var largest atomic.Int64
	watch(c, func(rt kmsg.ProduceRequestTopic) {
		largest.Store(max(largest.Load(), int64(len(rt.Partitions[0].Records))))
	})
	s := open(t, parsed(t, properties(seed)), Options{})
	recs := make([]relay.Record, 3000)
	for i := range recs {
		recs[i] = record(topic, "k", strings.Repeat("v", i%200))
	}
	for _, r := range send(t, s, recs...) {
		require.Nil(t, r.Failure)
	}
	require.LessOrEqual(t, largest.Load(), int64(5000))
	require.Greater(t, largest.Load(), int64(4500), "batches are filled")
	require.Len(t, readAll(t, seed, topic)[0], 3000)
}

// watch sees each topic of each produce request before the broker does.
func watch(c *kfake.Cluster, see func(kmsg.ProduceRequestTopic)) {
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, rt := range req.(*kmsg.ProduceRequest).Topics {
			see(rt)
		}
		return nil, nil, false
	})
}
