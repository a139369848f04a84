package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 12

// newTopic makes a topic of its own for one measure and returns how to delete it.
func newTopic(ctx context.Context, addr, prefix string) (name string, remove func(), err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return "", nil, err
	}
	adm := kadm.NewClient(cl)
	name = fmt.Sprintf("bench-%s-%d", prefix, time.Now().UnixNano())
	if _, err := adm.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
		cl.Close()
		return "", nil, fmt.Errorf("create topic: %w", err)
	}
	return name, func() {
		_, _ = adm.DeleteTopics(context.WithoutCancel(ctx), name)
		cl.Close()
	}, nil
}

// removeGroup deletes what relays that share lanes keep in Kafka: a consumer group, and the control topic of its name.
// What is not there, or cannot be deleted, is passed over.
func removeGroup(ctx context.Context, addr, name string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	_, _ = adm.DeleteTopics(ctx, name)
	_, _ = adm.DeleteGroups(ctx, name)
}

// records counts what a reader of committed records finds in a topic. The ends of transactions take offsets too.
func records(ctx context.Context, addr, topic string) (n int64, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return n, err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return n, nil
}

// producer is the raw client of article and ceiling: idempotent, acks from all.
func producer(addr string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
}

func setTopic(ctx context.Context, addr, topic, key, value string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	return err
}
