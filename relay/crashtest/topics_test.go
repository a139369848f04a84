//go:build unix

package crashtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topics are those of one test, reached without a proxy.
type topics struct {
	addr  string
	names []string
	admin *kadm.Client
}

// newTopics creates topics that are deleted at the end.
func newTopics(t testing.TB, addr string, partitions int32, names ...string) *topics {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addr, ",")...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	k := &topics{addr: addr, admin: kadm.NewClient(client)}
	for _, name := range names {
		k.create(t, partitions, name)
	}
	return k
}

// create makes a topic with as many replicas as the cluster gives one by itself.
func (k *topics) create(t testing.TB, partitions int32, name string) {
	t.Helper()
	_, err := k.admin.CreateTopic(t.Context(), partitions, -1, nil, name)
	require.NoError(t, err)
	k.names = append(k.names, name)
	k.delete(t, name)
}

// delete removes a topic at the end.
func (k *topics) delete(t testing.TB, name string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := k.admin.DeleteTopic(ctx, name); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Logf("delete topic %s: %v", name, err)
		}
	})
}

// forget removes what relays make by themselves at the end: the control topic, and its group. A relay that was
// killed a moment ago is still a member, so the group may stay until the brokers forget it.
func (k *topics) forget(t testing.TB, control string) {
	k.delete(t, control)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = k.admin.DeleteGroup(ctx, control)
	})
}

// way is a relay's way to Kafka. It leads through a proxy unless the cluster has several brokers.
func (k *topics) way(t testing.TB) *proxy {
	t.Helper()
	if strings.Contains(k.addr, ",") {
		return &proxy{addr: k.addr}
	}
	return newProxy(t, k.addr, kafkaFrames)
}

// read returns every record of every topic that a read_committed reader sees, from offset 0.
func (k *topics) read(t testing.TB) []Record { return k.records(t, kgo.ReadCommitted()) }

// everything is read for a read_uncommitted reader, who sees what was aborted too.
func (k *topics) everything(t testing.TB) []Record { return k.records(t, kgo.ReadUncommitted()) }

func (k *topics) records(t testing.TB, isolation kgo.IsolationLevel) (records []Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := k.ends(t)
	from := map[string]map[int32]kgo.Offset{}
	left := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset == 0 {
			return
		}
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(0)
		left++
	})
	if left == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(k.addr, ",")...), kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachError(func(topic string, partition int32, err error) {
			require.NoError(t, err, "read %s/%d", topic, partition)
		})
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			end, _ := ends.Lookup(p.Topic, p.Partition)
			for _, r := range p.Records {
				if r.Offset >= end.Offset {
					break
				}
				if !r.Attrs.IsControl() { // a transaction's end, which takes an offset too
					records = append(records, recordOf(r))
				}
				if r.Offset == end.Offset-1 {
					left--
				}
			}
		})
	}
	return records
}

// ends are the topics' ends once nothing is open below them: brokers answer that a transaction is committed before
// its marks stand in all partitions, and readers of committed records wait for those.
func (k *topics) ends(t testing.TB) kadm.ListedOffsets {
	t.Helper()
	ends, err := k.admin.ListEndOffsets(t.Context(), k.names...)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	eventually(t, 20*time.Second, func() bool {
		committed, err := k.admin.ListCommittedOffsets(t.Context(), k.names...)
		open := err != nil || committed.Error() != nil
		ends.Each(func(o kadm.ListedOffset) {
			c, _ := committed.Lookup(o.Topic, o.Partition)
			open = open || c.Offset < o.Offset
		})
		return !open
	}, func() string { return "a transaction is open, and no relay is there to end it" })
	return ends
}

func recordOf(r *kgo.Record) Record {
	rec := Record{Place: Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}, Key: string(r.Key), Hash: hashOf(r.Value)}
	for _, h := range r.Headers {
		if h.Key == "event_id" {
			rec.EventID = string(h.Value)
		}
	}
	return rec
}

func hashOf(payload []byte) string { return fmt.Sprintf("%x", sha256.Sum256(payload)) }

// size is how many records the topics hold.
func (k *topics) size(t testing.TB) int {
	t.Helper()
	ends, err := k.admin.ListEndOffsets(t.Context(), k.names...)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	n := 0
	ends.Each(func(o kadm.ListedOffset) { n += int(o.Offset) })
	return n
}

// holds waits until the topics hold so many records.
func (k *topics) holds(t testing.TB, want int) {
	t.Helper()
	n := 0
	eventually(t, 30*time.Second, func() bool { n = k.size(t); return n == want },
		func() string { return fmt.Sprintf("the topics hold %d records, want %d", n, want) })
}

// limit sets a topic's max.message.bytes, and waits until the broker has heard of it.
func (k *topics) limit(t testing.TB, name, bytes string) {
	t.Helper()
	_, err := k.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}, name)
	require.NoError(t, err)
	eventually(t, time.Minute, func() bool {
		told, err := k.admin.DescribeTopicConfigs(t.Context(), name)
		if err != nil || len(told) != 1 {
			return false
		}
		return slices.ContainsFunc(told[0].Configs, func(c kadm.Config) bool { return c.Key == "max.message.bytes" && c.MaybeValue() == bytes })
	}, func() string { return "the broker does not take max.message.bytes" })
}

// id is the topic's own, by which newer produce requests name it.
func (k *topics) id(t testing.TB, name string) [16]byte {
	t.Helper()
	var details kadm.TopicDetails
	eventually(t, time.Minute, func() bool { // a broker hears of a topic a moment after it was made
		var err error
		details, err = k.admin.ListTopics(t.Context(), name)
		return err == nil && details.Error() == nil
	}, func() string { return fmt.Sprintf("topic %s is not known: %v", name, details.Error()) })
	return details[name].ID
}

// refuse makes a topic refuse what the relays send it, as its leader would without enough replicas,
// until take.
func (w *world) refuse(t testing.TB, topic string) {
	id := w.topics.id(t, topic)
	for _, r := range w.relays {
		r.kafka.refused.Store(topic, true)
		r.kafka.refused.Store(id, true)
	}
}

func (w *world) take() {
	for _, r := range w.relays {
		r.kafka.refused.Clear()
	}
}
