package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// judge reports what an aborted transaction has told of single records and of partitions. It returns those that
// brokers refused together; shrunk is true when some of them were only too many for a batch, perhaps.
func (b *batch) judge(x *transaction) (suspects []int, shrunk bool) {
	for _, s := range x.shares {
		var bad []*sending
		for _, y := range s.todo[:s.sent] {
			if y.err != nil {
				bad = append(bad, y)
			}
		}
		switch {
		case len(bad) == 0:
			b.t.spoke(s.to)
		case errors.Is(bad[0].err, kgo.ErrClientClosed):
			b.t.fellSilent(s.to)
			b.refuseShare(s, &relay.Failure{Class: relay.ClassUnavailable, Code: kerr.RequestTimedOut.Message, Hint: hintCluster,
				Text: fmt.Sprintf("topic %s: partition %d did not answer within %s", s.to.topic, s.to.partition, b.s.opts.Patience)})
		case !placedBatch(bad[0].err):
			if b.s.doubtTopic(s.to.topic, bad[0].err) {
				x.slot.close() // the client must not trust its memory of the topic
			} else if x.client != nil {
				x.client.ForceMetadataRefresh()
			}
			b.refuseShare(s, b.s.failure(s.to.topic, bad[0].err))
		case len(bad) == 1:
			b.refuse(bad[0].index, b.s.verdict(s.topic, batchOverhead+bad[0].size, bad[0].err))
		case errors.Is(bad[0].err, kerr.MessageTooLarge):
			b.shrink(s, bad)
			shrunk = true
		default:
			for _, y := range bad {
				suspects = append(suspects, y.index)
			}
		}
	}
	slices.Sort(suspects)
	return suspects, shrunk
}

// shrink makes a topic's batches smaller: its limit was lowered, or is not known, since it holds for what stands
// together too. A record that is too large alone is found to be so in the end.
func (b *batch) shrink(s *share, bad []*sending) {
	size := batchOverhead
	for _, y := range bad {
		size += y.size + inBatch
	}
	ctx, cancel := context.WithTimeout(b.t.life, b.s.opts.Patience)
	defer cancel()
	p := b.at[bad[0].index].plan
	p.limit.bytes = size / 2
	if limit := b.s.limit(b.s.topics.again(ctx, p.topic)); limit.bytes < size {
		p.limit.bytes = limit.bytes
	}
}

// refuseShare reports all of the Write that was to go to a partition: what was left out of a probe comes behind what
// was in it.
func (b *batch) refuseShare(s *share, f *relay.Failure) {
	for _, i := range b.left {
		if !b.told[i] && b.recs[i].Topic == s.to.topic && b.at[i].partition == s.to.partition {
			b.tell(i, relay.Result{Failure: f})
		}
	}
	b.moved.Store(time.Now().UnixNano())
}

// refuse reports a record that a broker refused alone, and holds back those of its key behind it.
func (b *batch) refuse(i int, f *relay.Failure) {
	topic, key := b.recs[i].Topic, b.recs[i].Key
	b.tell(i, relay.Result{Failure: f})
	b.moved.Store(time.Now().UnixNano())
	if key == nil {
		return
	}
	for _, j := range b.left {
		if r := &b.recs[j]; j > i && !b.told[j] && r.Topic == topic && r.Key != nil && bytes.Equal(r.Key, key) {
			b.tell(j, relay.Result{Failure: held(topic)})
		}
	}
}

// narrow finds the guilty among records that brokers refused together: halves of them are offered until the
// guilty stand alone, and nothing of it is committed.
func (b *batch) narrow(s *slot, suspects []int) {
	todo := halves(nil, suspects)
	for len(todo) > 0 && b.t.life.Err() == nil && b.hopeless(errNothingThrough) == nil {
		group := slices.DeleteFunc(todo[0], func(i int) bool { return b.told[i] })
		if todo = todo[1:]; len(group) == 0 {
			continue
		}
		x := newTransaction(b, s, group)
		if end, _ := x.run(b.t.life, true); end != endAborted {
			return // the whole is tried again
		}
		more, _ := b.judge(x)
		todo = halves(todo, more)
	}
}

// halves puts two halves of items in front.
func halves(todo [][]int, items []int) [][]int {
	if len(items) == 0 {
		return todo
	}
	n := (len(items) + 1) / 2
	return append([][]int{items[:n:n], items[n:]}, todo...)
}
