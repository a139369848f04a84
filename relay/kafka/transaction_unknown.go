package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// resolve finds out what became of a transaction whose commit was not confirmed, whatever the error says: that
// the producer was fenced too may be the answer to a second try after a first one that was applied. When the id
// has been taken over nothing of the transaction can change any more; then its progress is there, for a reader of
// what is committed, or it is not. It asks until it knows or ctx ends.
func (t *Transactions) resolve(ctx context.Context, x *transaction, cause error) (there, known bool) {
	log, id := t.base.opts.Logger, x.id
	log.Info("it is not known whether a transaction was committed, asking", "transactional_id", id, "error", cause.Error())
	for try := 1; ctx.Err() == nil; try++ {
		there, err := t.ask(ctx, x)
		if err == nil {
			log.Info("found out what became of the transaction", "transactional_id", id, "committed", there)
			return there, true
		}
		log.Debug("not found out yet what became of the transaction", "transactional_id", id, "error", err.Error())
		_ = rest(ctx, t.base.cfg.backoff(try))
	}
	return false, false
}

func (t *Transactions) ask(ctx context.Context, x *transaction) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.base.cfg.requestTimeout)
	defer cancel()
	if err := t.takeOver(ctx, x.id); err != nil {
		return false, err
	}
	if x.carried != 0 {
		return t.g.committedList(ctx, x.lanes, x.carried)
	}
	if _, id := t.g.control(); id != x.noteID {
		t.base.opts.Logger.Warn("nobody can tell any more whether a transaction was committed, since the control topic was deleted: its events are sent again",
			"transactional_id", x.id, "events", len(x.data))
		return false, nil
	}
	lane, offset := x.notes[0].rec.Partition, x.notes[0].rec.Offset
	err = t.g.readCommitted(ctx, lane, offset, offset+1, func(r *kgo.Record) {
		there = there || r.Offset == offset && transactionOf(r) == x.id
	})
	return there, err
}

// takeOver takes a transactional id over by a connection of its own: whatever made it necessary may hold the others.
func (t *Transactions) takeOver(ctx context.Context, id string) error {
	c, err := kgo.NewClient(append(t.base.clientOptions(), t.overhead())...)
	if err != nil {
		return fmt.Errorf("make a Kafka client: %w", err)
	}
	defer c.Close()
	return initProducer(ctx, c, id)
}

// fenceLater ends a transaction that will not be committed, beside what goes on: readers of committed records
// need not wait for its time to run out. When many are waiting already, its time does run out.
func (t *Transactions) fenceLater(id string) {
	select {
	case t.fences <- struct{}{}:
	default:
		return
	}
	if !t.base.begin() {
		return
	}
	go func() {
		defer t.base.calls.Done()
		defer func() { <-t.fences }()
		ctx, cancel := context.WithTimeout(t.life, 2*transactionTimeout)
		defer cancel()
		for try := 1; ctx.Err() == nil; try++ {
			if t.takeOver(ctx, id) == nil {
				return
			}
			_ = rest(ctx, max(t.base.cfg.backoff(try), 50*time.Millisecond))
		}
	}()
}
