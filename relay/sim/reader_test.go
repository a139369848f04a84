//go:build synctests

package sim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// read returns the records of all topics as a reader of an isolation level sees them, by topic, partition and offset.
func (w *world) read(level kgo.IsolationLevel) (all []*kgo.Record) {
	from := map[string]map[int32]kgo.Offset{}
	ends := map[string]map[int32]int64{}
	left := 0
	for name := range w.topicIDs {
		if name == deadTopic {
			continue
		}
		from[name], ends[name] = map[int32]kgo.Offset{}, map[int32]int64{}
		for _, p := range w.cluster.PartitionInfos(name) {
			if p.LastStableOffset < p.HighWatermark {
				w.fail("P7: a transaction is still open in %s/%d, from %d", name, p.Partition, p.LastStableOffset)
				return nil
			}
			if p.HighWatermark > 0 {
				from[name][p.Partition], ends[name][p.Partition] = kgo.NewOffset().At(0), p.HighWatermark
				left++
			}
		}
	}
	if left == 0 {
		return nil
	}
	c, err := kgo.NewClient(kgo.SeedBrokers("localhost:9092"), kgo.Dialer(w.net.DialContext), kgo.DisableClientMetrics(),
		kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.ConsumePartitions(from))
	require.NoError(w.t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for left > 0 {
		fs := c.PollFetches(ctx)
		require.NoError(w.t, fs.Err())
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset == ends[r.Topic][r.Partition]-1 {
				left--
			}
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
		})
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}
