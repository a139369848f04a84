package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// resolve finds out what became of a transaction whose commit was not confirmed, whatever the error says: that
// the producer was fenced too may be the answer to a second try after a first one that was applied. When the id
// has been taken over nothing of the transaction can change any more; then its progress record is there, for a
// reader of committed records, or it is not. It asks until it knows or ctx ends.
func (t *Transactions) resolve(ctx context.Context, id string, lane int32, offset int64, cause error) (there, known bool) {
	log := t.base.opts.Logger
	log.Info("it is not known whether a transaction was committed, asking", "transactional_id", id, "error", cause.Error())
	for try := 1; ctx.Err() == nil; try++ {
		there, err := t.ask(ctx, id, lane, offset)
		if err == nil {
			log.Info("found out what became of the transaction", "transactional_id", id, "committed", there)
			return there, true
		}
		log.Debug("not found out yet what became of the transaction", "transactional_id", id, "error", err.Error())
		_ = rest(ctx, t.base.cfg.backoff(try))
	}
	return false, false
}

func (t *Transactions) ask(ctx context.Context, id string, lane int32, offset int64) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.base.cfg.requestTimeout)
	defer cancel()
	if err := initProducer(ctx, t.base.current().Client, id); err != nil {
		return false, err
	}
	err = t.g.readCommitted(ctx, lane, offset, offset+1, func(r *kgo.Record) {
		there = there || r.Offset == offset && string(r.Key) == id
	})
	return there, err
}

// fenceLater ends a transaction that will not be committed, beside what goes on: readers of committed records
// need not wait for its time to run out.
func (t *Transactions) fenceLater(id string) {
	if !t.base.begin() {
		return
	}
	go func() {
		defer t.base.calls.Done()
		ctx, cancel := context.WithTimeout(t.life, 2*transactionTimeout)
		defer cancel()
		for try := 1; ctx.Err() == nil; try++ {
			if err := initProducer(ctx, t.base.current().Client, id); err == nil {
				return
			}
			_ = rest(ctx, max(t.base.cfg.backoff(try), 50*time.Millisecond))
		}
	}()
}
