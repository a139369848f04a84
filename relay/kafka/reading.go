package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// span is a stretch of a lane's partition: offsets [from, to). each is called for its committed records, in order.
type span struct {
	lane     int32
	from, to int64
	each     func(*kgo.Record)
}

// end is where a lane's partition ends for some reader, and the broker that leads it.
type end struct {
	offset int64
	broker int32
}

// Isolation levels of the protocol.
const (
	toTheEnd    int8 = 0
	toTheStable int8 = 1
)

// readCommitted implements lanes: records of a lane's partition in [from, to), once nothing below to is open.
func (g *Group) readCommitted(ctx context.Context, lane int32, from, to int64, each func(*kgo.Record)) error {
	return g.read(ctx, []span{{lane, from, to, each}})
}

// read reads all spans at once, with one request for each broker that leads some of them, on connections that
// are there already: a take-over is to cost a few round trips, whatever the number of lanes.
func (g *Group) read(ctx context.Context, spans []span) error {
	spans = slices.DeleteFunc(spans, func(s span) bool { return s.from >= s.to })
	if len(spans) == 0 {
		return nil
	}
	stable, err := g.awaitStable(ctx, spans)
	if err != nil {
		return err
	}
	by := map[int32][]span{}
	for _, s := range spans {
		broker := stable[s.lane].broker
		by[broker] = append(by[broker], s)
	}
	within, cancel := context.WithTimeout(ctx, g.lend.cfg.requestTimeout)
	defer cancel()
	all, within := errgroup.WithContext(within)
	for broker, spans := range by {
		all.Go(func() error { return g.fetch(within, broker, spans) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	return nil
}

// awaitStable waits until no transaction is open in any of the spans. Owners that are gone have been fenced before;
// should one have left something open all the same, in a lane that it had not been noted for yet, it is fenced now.
func (g *Group) awaitStable(ctx context.Context, spans []span) (map[int32]end, error) {
	lanes := make([]int32, len(spans))
	for i := range spans {
		lanes[i] = spans[i].lane
	}
	for began := time.Now(); ; {
		stable, err := g.ends(ctx, lanes, toTheStable)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(spans, func(s span) bool { return stable[s.lane].offset < s.to }) {
			return stable, nil
		}
		if time.Since(began) > patientFor {
			if err := g.fenceStrangers(ctx); err != nil {
				return nil, err
			}
			began = time.Now()
		}
		if err := rest(ctx, 5*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for the lanes' open transactions: %w", err)
		}
	}
}

var errNoAnswer = errors.New("the broker did not say")

// ends asks where the partitions of lanes end.
func (g *Group) ends(ctx context.Context, lanes []int32, isolation int8) (map[int32]end, error) {
	topic, _ := g.control()
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, lane := range lanes {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = lane, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	found := make(map[int32]end, len(lanes))
	for _, shard := range g.lend.current().RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("read the lanes' ends: %w", shard.Err)
		}
		for _, rt := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return nil, fmt.Errorf("read the end of lane %d: %w", rp.Partition, err)
				}
				found[rp.Partition] = end{rp.Offset, shard.Meta.NodeID}
			}
		}
	}
	for _, lane := range lanes {
		if _, ok := found[lane]; !ok {
			return nil, fmt.Errorf("read the end of lane %d: %w", lane, errNoAnswer)
		}
	}
	return found, nil
}

// Bounds of one answer, in bytes; more comes with the next.
const (
	fetchBytes     = 8 << 20
	fetchLaneBytes = 1 << 20
)

// fetch reads spans that one broker leads.
func (g *Group) fetch(ctx context.Context, broker int32, spans []span) error {
	topic, id := g.control()
	next := make(map[int32]*span, len(spans))
	for i := range spans {
		next[spans[i].lane] = &spans[i]
	}
	for len(next) > 0 {
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = 100, 1, fetchBytes, toTheStable
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = topic, id
		for lane, s := range next {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = lane, s.from, fetchLaneBytes
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		answer, err := g.lend.current().Broker(int(broker)).RetriableRequest(ctx, req)
		if err != nil {
			return err
		}
		resp := answer.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				rp := &resp.Topics[i].Partitions[j]
				if s := next[rp.Partition]; s != nil {
					if err := s.take(topic, rp); err != nil {
						return fmt.Errorf("lane %d: %w", s.lane, err)
					}
					if s.from >= s.to {
						delete(next, rp.Partition)
					}
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// take hands a broker's answer on and moves the span's start behind it: also over what compaction has emptied,
// aborted records, and the marks of transactions.
func (s *span) take(topic string, rp *kmsg.FetchResponseTopicPartition) error {
	if errors.Is(kerr.ErrorForCode(rp.ErrorCode), kerr.OffsetOutOfRange) && rp.LogStartOffset > s.from {
		s.from = rp.LogStartOffset // somebody deleted records
		return nil
	}
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: s.from, IsolationLevel: kgo.ReadCommitted(), Topic: topic, Partition: s.lane,
	}, rp, kgo.DefaultDecompressor(), nil)
	if got.Err != nil {
		return got.Err
	}
	for _, r := range got.Records {
		if r.Offset < s.to {
			s.each(r)
		}
	}
	s.from = next
	return nil
}
