package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// transaction is one attempt to bring records to Kafka together.
type transaction struct {
	b      *batch
	slot   *slot
	client *kgo.Client
	id     string

	data   []sending // in the order of the Write
	shares []*share  // of data, by partition
	notes  []sending // progress records, by lane
	lanes  []int32   // those of the rows, ascending
	noted  bool      // the group was told of notes
	noteID [16]byte  // the control topic's, when they were written

	small   bool   // its progress is to be carried by the offsets' metadata
	carried uint64 // its number there; 0 when its progress is in notes

	left   atomic.Int64
	landed chan struct{} // buffered 1: all that was handed over is answered
}

// ending is what became of a transaction.
type ending int

const (
	endCommitted ending = iota
	endAborted          // for reasons that stand at its records
	endFenced           // the lanes, or the membership, are not what they were
	endBroken           // trouble with brokers: to be tried again
	endDropped          // the sink was closed
)

// newTransaction prepares the records i.
func newTransaction(b *batch, s *slot, items []int) *transaction {
	x := &transaction{b: b, slot: s, data: make([]sending, len(items)), landed: make(chan struct{}, 1)}
	by := make(map[target]*share)
	headers := 0
	for _, i := range items {
		headers += len(b.recs[i].Headers)
	}
	kept := make([]kgo.RecordHeader, 0, headers)
	now := time.Now()
	for n, i := range items {
		r, y := &b.recs[i], &x.data[n]
		first := len(kept)
		for _, h := range r.Headers {
			kept = append(kept, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		to := target{r.Topic, b.at[i].partition}
		y.index, y.size = i, sizeOf(r)
		y.rec = kgo.Record{Key: r.Key, Value: r.Value, Headers: kept[first:len(kept):len(kept)],
			Timestamp: now, Topic: to.topic, Partition: to.partition, Context: y}
		s := by[to]
		if s == nil {
			p := b.at[i].plan
			s = &share{to: to, topic: p.topic, limit: min(p.limit.bytes, maxBatch)}
			by[to] = s
			x.shares = append(x.shares, s)
		}
		s.todo = append(s.todo, y)
		if r.Row != "" && !slices.Contains(x.lanes, r.Lane) {
			x.lanes = append(x.lanes, r.Lane)
		}
	}
	slices.Sort(x.lanes)
	x.small = carrying && x.worthCarrying()
	return x
}

// run brings the transaction to its end. With probe set it only asks whether the brokers take the records, and
// aborts.
func (x *transaction) run(ctx context.Context, probe bool) (ending, error) {
	if err := x.begin(ctx); err != nil {
		return x.giveUp(ctx, err)
	}
	silent, err := x.deliver(ctx, x.shares)
	if silent {
		x.b.t.fenceLater(x.id)
		if ctx.Err() != nil {
			return endDropped, nil
		}
		return endAborted, nil
	}
	if err != nil || probe {
		x.abort(ctx)
		if ofTheProducer(err) {
			return endBroken, err
		}
		return endAborted, nil
	}
	if !x.carry() {
		if err := x.note(ctx); err != nil {
			return x.giveUp(ctx, err)
		}
	}
	if end, err := x.offsets(ctx); end != endCommitted {
		return end, err
	}
	return x.commit(ctx)
}

// giveUp ends a transaction whose client is of no more use.
func (x *transaction) giveUp(ctx context.Context, err error) (ending, error) {
	x.drop()
	x.slot.close()
	if x.id != "" {
		x.b.t.fenceLater(x.id)
	}
	if ctx.Err() != nil {
		return endDropped, nil
	}
	return endBroken, err
}

// within bounds one step.
func (x *transaction) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 3*x.b.t.base.opts.Patience)
}

// begin opens the transaction and adds all its partitions to it in one request. Were each broker to add its own
// with its first record, they would run into each other at the coordinator. A broker that is alone with the
// records adds them itself, which saves the request.
func (x *transaction) begin(ctx context.Context) (err error) {
	ctx, cancel := x.within(ctx)
	defer cancel()
	if x.client, x.id, err = x.slot.open(ctx); err != nil {
		return err
	}
	x.b.open.Store(x.id)
	if err := x.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if x.small && x.oneLeader() && time.Since(x.slot.ended) > markersTake {
		return nil
	}
	id, epoch, err := x.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, id, epoch
	topics := map[string][]int32{}
	for _, s := range x.shares {
		topics[s.to.topic] = append(topics[s.to.topic], s.to.partition)
	}
	if !x.small {
		control, _ := x.b.t.g.control()
		topics[control] = append(topics[control], x.noteLanes()...)
	}
	for name, partitions := range topics {
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = name, partitions
		req.Topics = append(req.Topics, rt)
	}
	return x.add(ctx, req)
}

// markersTake is how long brokers need, as a rule, to write a transaction's end into its partitions. A record of the
// id's next transaction that comes before is kept waiting by the broker in long steps; the request that adds
// partitions is repeated in short ones.
const markersTake = 10 * time.Millisecond

// oneLeader says that all records go to one broker, as far as is known.
func (x *transaction) oneLeader() bool {
	first := x.shares[0].leader()
	return first >= 0 && !slices.ContainsFunc(x.shares, func(s *share) bool { return s.leader() != first })
}

// add waits while an earlier transaction of the id is being ended. What else a broker has against a
// partition it will say to the records.
func (x *transaction) add(ctx context.Context, req *kmsg.AddPartitionsToTxnRequest) error {
	for {
		resp, err := req.RequestWith(ctx, x.client)
		if err != nil {
			return fmt.Errorf("add partitions to a transaction: %w", err)
		}
		var first error
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && (first == nil || errors.Is(err, kerr.ConcurrentTransactions)) {
					first = err
				}
			}
		}
		if !ofTheProducer(first) {
			return nil
		}
		if !errors.Is(first, kerr.ConcurrentTransactions) || rest(ctx, 2*time.Millisecond) != nil {
			return fmt.Errorf("add partitions to a transaction: %w", first)
		}
	}
}

// ofTheProducer says whether an error is about the transaction or its id, not about a record or a partition.
func ofTheProducer(err error) bool {
	if err == nil {
		return false
	}
	p, _ := place(err)
	return p == producerRestart || errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) ||
		errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
}

// abort ends the transaction so that nothing of it is seen, and keeps the client if that was confirmed.
func (x *transaction) abort(ctx context.Context) {
	x.drop()
	within, cancel := x.within(ctx)
	defer cancel()
	err := x.client.EndTransaction(within, kgo.TryAbort)
	x.slot.ended = time.Now()
	if err != nil {
		x.b.t.base.opts.Logger.Debug("a transaction was not aborted as told, starting over with a new one", "transactional_id", x.id, "error", err.Error())
		x.slot.close()
		x.b.t.fenceLater(x.id)
	}
}

// commit ends the transaction. All its records were acknowledged and the group's offsets taken; without that the
// library would turn a commit into an abort, or commit a part, and say nil.
func (x *transaction) commit(ctx context.Context) (ending, error) {
	within, cancel := x.within(ctx)
	defer cancel()
	err := x.client.EndTransaction(within, kgo.TryCommit)
	x.slot.ended = time.Now()
	if err == nil {
		x.keep()
		return endCommitted, nil
	}
	x.slot.close()
	there, known := x.b.t.resolve(ctx, x, err)
	switch {
	case !known:
		return endDropped, nil
	case there:
		x.keep()
		return endCommitted, nil
	}
	x.drop()
	return endBroken, fmt.Errorf("end a transaction: %w", err)
}

// onMarked returns what is to be called for each row once it is marked. With the last of them the group is told,
// and the slot is free.
func (x *transaction) onMarked() func() {
	n := 0
	for i := range x.data {
		if x.b.recs[x.data[i].index].Row != "" {
			n++
		}
	}
	if n == 0 {
		x.b.t.idle <- x.slot
		return nil
	}
	notes := make([]relay.Receipt, len(x.notes))
	for i := range x.notes {
		notes[i] = x.notes[i].receipt()
	}
	t, s, lanes, carried := x.b.t, x.slot, x.lanes, x.carried
	if carried != 0 {
		t.idle <- s // its next transaction replaces nothing
	}
	var left atomic.Int64
	left.Store(int64(n))
	return func() {
		if left.Add(-1) > 0 {
			return
		}
		for _, at := range notes {
			t.g.marked(at.Partition, at.Offset)
		}
		if carried != 0 {
			t.g.uncarry(lanes, carried)
			return
		}
		t.idle <- s
	}
}
