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
	lanes  []int32   // of notes that list rows, ascending
	noted  bool      // the group was told of notes

	left   atomic.Int64
	landed chan struct{} // buffered 1: all that was handed over is answered
}

// share is what goes to one partition.
type share struct {
	to    target
	topic *topicInfo
	limit int // bytes of a batch
	todo  []*sending
	sent  int // of todo, handed over
	round int // of them, in the last round
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
	return x
}

// run brings the transaction to its end. With probe set it only asks whether the brokers take the records, and
// aborts.
func (x *transaction) run(ctx context.Context, probe bool) (ending, error) {
	if err := x.begin(ctx); err != nil {
		return x.giveUp(ctx, err)
	}
	for more := true; more; {
		if more = x.launch(); more && !x.await(ctx) {
			x.slot.close()
			<-x.landed
			x.b.t.fenceLater(x.id)
			if ctx.Err() != nil {
				return endDropped, nil
			}
			return endAborted, nil
		}
		if x.failed() != nil {
			break
		}
	}
	if err := x.failed(); err != nil || probe {
		x.abort(ctx)
		if ofTheProducer(err) {
			return endBroken, err
		}
		return endAborted, nil
	}
	if err := x.note(ctx); err != nil {
		return x.giveUp(ctx, err)
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
// with its first record, they would run into each other at the coordinator.
func (x *transaction) begin(ctx context.Context) (err error) {
	ctx, cancel := x.within(ctx)
	defer cancel()
	if x.client, x.id, err = x.slot.open(ctx); err != nil {
		return err
	}
	if err := x.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
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
	control, _ := x.b.t.g.control()
	topics[control] = append(topics[control], x.noteLanes()...)
	for name, partitions := range topics {
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = name, partitions
		req.Topics = append(req.Topics, rt)
	}
	return x.add(ctx, req)
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

// launch hands each partition's next batch to the client. False when there is none.
func (x *transaction) launch() bool {
	n := 0
	for _, s := range x.shares {
		s.round = s.next()
		n += s.round
	}
	if n == 0 {
		return false
	}
	x.left.Store(int64(n))
	for _, s := range x.shares {
		for _, y := range s.todo[s.sent : s.sent+s.round] {
			x.produce(y)
		}
		s.sent += s.round
	}
	kick(x.client)
	return true
}

func (x *transaction) produce(y *sending) {
	y.tx, y.err = x, errUnanswered
	x.client.TryProduce(context.Background(), &y.rec, answered)
}

// errUnanswered stands at a record that was handed over.
var errUnanswered = errors.New("no answer yet")

// answered is the library's callback for one record.
func answered(r *kgo.Record, err error) {
	y := r.Context.(*sending)
	y.err = err
	if y.tx.left.Add(-1) == 0 {
		y.tx.landed <- struct{}{}
	}
}

// next says how many records fit the partition's next batch.
func (s *share) next() int {
	n, size := 0, batchOverhead
	for _, y := range s.todo[s.sent:] {
		if n > 0 && size+y.size+inBatch > s.limit {
			break
		}
		size += y.size + inBatch
		n++
	}
	return n
}

// await returns false when patience, or the sink, has ended before all was answered.
func (x *transaction) await(ctx context.Context) bool {
	timer := time.NewTimer(x.b.t.base.opts.Patience)
	defer timer.Stop()
	select {
	case <-x.landed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// failed returns the first error of the records that were answered; one of the producer, which all of them share, before one
// of a record.
func (x *transaction) failed() (err error) {
	for _, s := range x.shares {
		for _, y := range s.todo[:s.sent] {
			if y.err == nil {
				continue
			}
			if err == nil || ofTheProducer(y.err) {
				err = y.err
			}
		}
	}
	return err
}

// noteLanes are the lanes that get a progress record. A transaction that lists no rows, of copies for the
// dead-letter topic, has one in the lane of its first record: what became of it must be found out too.
func (x *transaction) noteLanes() []int32 {
	if len(x.lanes) > 0 {
		return x.lanes
	}
	return []int32{x.b.recs[x.data[0].index].Lane}
}

// note writes the progress records.
func (x *transaction) note(ctx context.Context) error {
	rows := map[int32][]relay.SentRow{}
	for n := range x.data {
		y := &x.data[n]
		if r := &x.b.recs[y.index]; r.Row != "" {
			rows[r.Lane] = append(rows[r.Lane], relay.SentRow{Row: r.Row, Event: r.Event, Receipt: y.receipt()})
		}
	}
	control, _ := x.b.t.g.control()
	lanes := x.noteLanes()
	x.notes = make([]sending, len(lanes))
	x.left.Store(int64(len(lanes)))
	now := time.Now()
	for n, lane := range lanes {
		y := &x.notes[n]
		y.rec = kgo.Record{Key: []byte(x.id), Value: encodeProgress(rows[lane]), Timestamp: now, Topic: control, Partition: lane, Context: y}
		x.produce(y)
	}
	kick(x.client)
	if !x.await(ctx) {
		x.slot.close()
		<-x.landed
		return fmt.Errorf("note progress in %s: %w", control, context.DeadlineExceeded)
	}
	for n := range x.notes {
		if err := x.notes[n].err; err != nil {
			return fmt.Errorf("note progress in %s: %w", control, err)
		}
	}
	x.noted = len(x.lanes) > 0
	for n := range x.notes {
		if x.noted {
			x.b.t.g.noted(x.notes[n].rec.Partition, x.notes[n].rec.Offset)
		}
	}
	return nil
}

// receipt of an acknowledged record.
func (x *sending) receipt() relay.Receipt {
	return relay.Receipt{Topic: x.rec.Topic, Partition: x.rec.Partition, Offset: x.rec.Offset}
}

// drop tells the group that the progress records will not be there.
func (x *transaction) drop() {
	if !x.noted {
		return
	}
	x.noted = false
	for n := range x.notes {
		x.b.t.g.dropped(x.notes[n].rec.Partition, x.notes[n].rec.Offset)
	}
}

// offsets adds the lanes' offsets under the membership that owns them: the broker fences here.
func (x *transaction) offsets(ctx context.Context) (ending, error) {
	if len(x.lanes) == 0 {
		return endCommitted, nil
	}
	g := x.b.t.g
	var as member
	err := g.with(ctx, x.lanes, func(m member) error {
		as = m
		within, cancel := x.within(ctx)
		defer cancel()
		return x.commitOffsets(within, m)
	})
	switch {
	case err == nil:
		return endCommitted, nil
	case ctx.Err() != nil:
		return x.giveUp(ctx, err)
	case errors.Is(err, errNotOwner):
		x.abort(ctx)
		return endFenced, err
	case ofTheMembership(err):
		g.stale(as)
		x.abort(ctx)
		return endFenced, err
	}
	if as == (member{}) { // the group did not come to rest
		x.abort(ctx)
		return endBroken, err
	}
	return x.giveUp(ctx, err)
}

// ofTheMembership says whether a broker does not know the membership, or not any more.
func ofTheMembership(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) ||
		errors.Is(err, kerr.StaleMemberEpoch) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.GroupIDNotFound)
}

func (x *transaction) commitOffsets(ctx context.Context, m member) error {
	id, epoch, err := x.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = x.id, m.group, id, epoch
	req.MemberID, req.Generation = m.id, m.generation
	if m.instance != "" {
		req.InstanceID = &m.instance
	}
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = x.b.t.g.control()
	for _, lane := range x.lanes {
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		metadata := x.b.t.g.metadata(lane)
		rp.Partition, rp.Offset, rp.Metadata = lane, x.b.t.g.from(lane), &metadata
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	for {
		resp, err := req.RequestWith(ctx, x.client)
		if err != nil {
			return fmt.Errorf("commit offsets: %w", err)
		}
		err = firstError(resp)
		if !errors.Is(err, kerr.ConcurrentTransactions) || rest(ctx, 2*time.Millisecond) != nil {
			return err
		}
	}
}

// firstError is the answer's gravest: one that is not to be waited for, if there is one.
func firstError(resp *kmsg.TxnOffsetCommitResponse) (first error) {
	n := 0
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			n++
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil && (first == nil || errors.Is(first, kerr.ConcurrentTransactions)) {
				first = fmt.Errorf("commit offsets: %w", err)
			}
		}
	}
	if n == 0 {
		return errors.New("commit offsets: the broker's answer names no lane")
	}
	return first
}

// abort ends the transaction so that nothing of it is seen, and keeps the client if that was confirmed.
func (x *transaction) abort(ctx context.Context) {
	x.drop()
	within, cancel := x.within(ctx)
	defer cancel()
	if err := x.client.EndTransaction(within, kgo.TryAbort); err != nil {
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
	if err == nil {
		return endCommitted, nil
	}
	x.slot.close()
	there, known := x.b.t.resolve(ctx, x.id, x.notes[0].rec.Partition, x.notes[0].rec.Offset, err)
	switch {
	case !known:
		return endDropped, nil
	case there:
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
	at := make(map[int32]int64, len(x.notes))
	for i := range x.notes {
		at[x.notes[i].rec.Partition] = x.notes[i].rec.Offset
	}
	t, s := x.b.t, x.slot
	var left atomic.Int64
	left.Store(int64(n))
	return func() {
		if left.Add(-1) > 0 {
			return
		}
		for lane, offset := range at {
			t.g.marked(lane, offset)
		}
		t.idle <- s
	}
}
