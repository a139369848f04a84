package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// share is what goes to one partition.
type share struct {
	to    target
	topic *topicInfo
	limit int // bytes of a batch
	todo  []*sending
	sent  int // of todo, handed over
	round int // of them, in the last round
}

// leader is the broker that was the partition's leader when the topic was looked up, or -1.
func (s *share) leader() int32 {
	if int(s.to.partition) < len(s.topic.leaders) {
		return s.topic.leaders[s.to.partition]
	}
	return -1
}

// deliver hands shares over, a batch a partition at a time, until all are acknowledged. It returns at the first
// failure, which stands at its records; one of the producer, which concerns them all, goes before one of a
// record. With silent set, something was not answered within the sink's patience: the client was closed, and
// those records failed with ErrClientClosed.
func (x *transaction) deliver(ctx context.Context, shares []*share) (silent bool, err error) {
	for x.launch(shares) {
		if !x.await(ctx) {
			x.slot.close()
			<-x.landed
			return true, kgo.ErrClientClosed
		}
		if err := firstFailure(shares); err != nil {
			return false, err
		}
	}
	return false, nil
}

// launch hands each partition's next batch to the client. False when there is none.
func (x *transaction) launch(shares []*share) bool {
	n := 0
	for _, s := range shares {
		s.round = s.next()
		n += s.round
	}
	if n == 0 {
		return false
	}
	x.left.Store(int64(n))
	for _, s := range shares {
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

func firstFailure(shares []*share) (err error) {
	for _, s := range shares {
		for _, y := range s.todo[s.sent-s.round : s.sent] {
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
