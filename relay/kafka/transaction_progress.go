package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// noteLanes are the lanes that get a progress record. A transaction that lists no rows, of copies for the
// dead-letter topic, has one in the lane of its first record: what became of it must be found out too.
func (x *transaction) noteLanes() []int32 {
	if len(x.lanes) > 0 {
		return x.lanes
	}
	return []int32{x.b.recs[x.data[0].index].Lane}
}

// maxNote bounds a progress record, in bytes, so that clusters take it whose limit is far below the usual one.
const maxNote = 256 << 10

// note writes the progress records.
func (x *transaction) note(ctx context.Context) error {
	control, id := x.b.t.g.control()
	x.notes, x.noteID = x.progress(control), id
	shares := make([]*share, 0, len(x.notes))
	for n := range x.notes {
		y := &x.notes[n]
		if n == 0 || y.rec.Partition != x.notes[n-1].rec.Partition {
			shares = append(shares, &share{to: target{control, y.rec.Partition}, limit: maxNote})
		}
		last := shares[len(shares)-1]
		last.todo = append(last.todo, y)
	}
	if silent, err := x.deliver(ctx, shares); silent {
		return fmt.Errorf("note progress in %s: %w", control, context.DeadlineExceeded)
	} else if err != nil {
		return fmt.Errorf("note progress in %s: %w", control, err)
	}
	if x.noted = len(x.lanes) > 0; x.noted {
		for n := range x.notes {
			x.b.t.g.noted(x.notes[n].rec.Partition, x.notes[n].rec.Offset)
		}
	}
	return nil
}

// inTransaction is the header of a progress record that names its transactional id.
const inTransaction = "transaction"

// transactionOf is the transactional id that a progress record was written under.
func transactionOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == inTransaction {
			return string(h.Value)
		}
	}
	return ""
}

// noteKey names the place of the transaction: flow and slot. The record that it replaces is of the slot's transaction
// before, which is marked, or of an earlier owner of the lane, whose records are marked before the lane is open. So a
// lane has few keys, however many relays have come and gone, and compaction never takes a list that counts. What lists
// no rows is not fenced by its lane, and must not stand in for what does.
func (x *transaction) noteKey() string {
	key := fmt.Sprintf("%d/%d", x.b.t.flow, x.slot.number)
	if len(x.lanes) == 0 {
		return "copies/" + key
	}
	return key
}

// progress makes the progress records, one a lane. A lane with more rows than a record takes has others under names of
// their own behind it.
func (x *transaction) progress(control string) (notes []sending) {
	rows := x.rows()
	now := time.Now()
	headers := []kgo.RecordHeader{{Key: inTransaction, Value: []byte(x.id)}}
	for _, lane := range x.noteLanes() {
		for n, part := range inParts(rows[lane]) {
			key := x.noteKey()
			if n > 0 {
				key = fmt.Sprintf("%s/%d", key, n)
			}
			value := encodeProgress(part)
			size := len(value) + len(key) + len(inTransaction) + len(x.id)
			notes = append(notes, sending{size: size, rec: kgo.Record{Key: []byte(key), Value: value, Headers: headers,
				Timestamp: now, Topic: control, Partition: lane}})
		}
	}
	for n := range notes {
		notes[n].rec.Context = &notes[n]
	}
	return notes
}

// rows are what the transaction tells of each lane: its records are acknowledged.
func (x *transaction) rows() map[int32][]relay.SentRow {
	rows := make(map[int32][]relay.SentRow, len(x.lanes))
	for n := range x.data {
		y := &x.data[n]
		if r := &x.b.recs[y.index]; r.Row != "" {
			rows[r.Lane] = append(rows[r.Lane], relay.SentRow{Row: r.Row, Event: r.Event, Receipt: y.receipt()})
		}
	}
	return rows
}

// rowNumbers is what the numbers of a row take in a progress record, at most, in bytes.
const rowNumbers = 40

// inParts cuts rows so that each part fits a progress record.
func inParts(rows []relay.SentRow) (parts [][]relay.SentRow) {
	first, size := 0, 0
	for i := range rows {
		n := rowNumbers + len(rows[i].Row)
		if i == first || rows[i].Receipt.Topic != rows[i-1].Receipt.Topic {
			n += len(rows[i].Receipt.Topic)
		}
		if size+n > maxNote-1024 {
			parts = append(parts, rows[first:i])
			first, size = i, 0
		}
		size += n
	}
	return append(parts, rows[first:])
}

// receipt of an acknowledged record.
func (x *sending) receipt() relay.Receipt {
	return relay.Receipt{Topic: x.rec.Topic, Partition: x.rec.Partition, Offset: x.rec.Offset}
}

// keep tells the group that the transaction was committed.
func (x *transaction) keep() {
	if x.carried != 0 {
		x.b.t.g.kept(x.lanes, x.carried)
	}
}

// drop tells the group that the transaction's progress will not be there.
func (x *transaction) drop() {
	if x.carried != 0 {
		x.b.t.g.uncarry(x.lanes, x.carried)
		x.carried = 0
	}
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
	case errors.Is(err, kerr.OffsetMetadataTooLarge) && x.carried != 0:
		g.carryNoMore()
		x.abort(ctx)
		return endBroken, err
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
