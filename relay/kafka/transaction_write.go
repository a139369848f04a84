package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/relay"
)

// batch is one Write of a Transactions: one transaction, of all that nothing speaks against. What does is
// found out in transactions that are aborted; so a Write commits once, or not at all.
type batch struct {
	planner
	t      *Transactions
	report func(int, relay.Result)

	at   []spot // by record
	told []bool // by record: reported
	left []int  // records that are not reported, in order

	names   []string     // of the records' topics
	open    atomic.Value // the transactional id in use, a string
	waiting atomic.Int64
	bytes   atomic.Int64
	moved   atomic.Int64 // when something was last heard of a record, Unix nanoseconds; 0 before the first transaction
}

// spot is where a record goes.
type spot struct {
	plan      *plan
	partition int32
}

// run brings the batch to its end: all is reported when it returns, unless the sink was closed.
func (b *batch) run(ctx context.Context) {
	b.plan(ctx)
	if len(b.left) == 0 {
		return
	}
	select {
	case s := <-b.t.idle:
		b.moved.Store(time.Now().UnixNano())
		if !b.send(ctx, s) {
			b.t.idle <- s
		}
	case <-ctx.Done():
		b.rejectAll(cancelled())
	case <-b.t.life.Done():
	}
}

// plan checks each record and finds its partition, or reports it.
func (b *batch) plan(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.s.opts.Patience)
	defer cancel()
	b.lookUp(ctx)
	b.left = make([]int, 0, len(b.recs))
	size := 0
	for i := range b.recs {
		r := &b.recs[i]
		p, partition, failure := b.place(ctx, r)
		if failure != nil {
			b.hold(r, failure)
			b.tell(i, relay.Result{Failure: failure})
			continue
		}
		b.at[i] = spot{p, partition}
		b.left = append(b.left, i)
		size += sizeOf(r)
	}
	b.bytes.Store(int64(size))
	b.names = slices.Collect(maps.Keys(b.plans))
}

func (b *batch) tell(i int, r relay.Result) {
	b.told[i] = true
	b.waiting.Add(-1)
	b.s.tell(b.report, i, r)
}

// rejectAll reports all that is left with the same failure.
func (b *batch) rejectAll(f *relay.Failure) {
	for i := range b.told {
		if !b.told[i] {
			b.tell(i, relay.Result{Failure: f})
		}
	}
	b.left = nil
}

// send makes transactions until one is committed or nothing is left. It returns true when one was, or may have
// been: the slot is not free then.
func (b *batch) send(ctx context.Context, s *slot) (taken bool) {
	for tries := 0; ; tries++ {
		b.leaveForeign()
		switch {
		case len(b.left) == 0:
			return false
		case b.t.life.Err() != nil:
			return true
		case ctx.Err() != nil:
			b.rejectAll(cancelled())
			return false
		}
		x := newTransaction(b, s, b.left)
		end, err := x.run(b.t.life, false) //nolint:contextcheck // what is begun is brought to its end
		switch end {
		case endCommitted:
			b.done(x)
			return true
		case endDropped:
			return true
		case endAborted:
			before := b.waiting.Load()
			suspects, shrunk := b.judge(x)
			b.narrow(s, suspects)
			if shrunk || b.waiting.Load() < before {
				tries = -1
			}
			err = errNothingThrough
		case endFenced:
			err = fmt.Errorf("%w: %w", errUnsettled, err)
		}
		b.t.g.doubt(err)
		if f := b.hopeless(err); f != nil {
			b.rejectAll(f)
			return false
		}
		if tries > 0 || tries == 0 && end == endBroken {
			b.pause(ctx, tries)
		}
	}
}

var (
	errNothingThrough = errors.New("the brokers refuse the records together and take each of them alone")
	errUnsettled      = errors.New("the group's membership is not settled")
)

func (b *batch) pause(ctx context.Context, tries int) {
	within, cancel := context.WithCancel(b.t.life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	_ = rest(within, b.s.cfg.backoff(tries))
}

// leaveForeign reports records of lanes that are not this relay's any more.
func (b *batch) leaveForeign() {
	owned := make(map[int32]bool)
	for _, i := range b.left {
		r := &b.recs[i]
		if b.told[i] || r.Row == "" {
			continue
		}
		own, asked := owned[r.Lane]
		if !asked {
			own = b.t.g.owns(r.Lane)
			owned[r.Lane] = own
		}
		if !own {
			b.tell(i, relay.Result{Failure: &relay.Failure{Class: relay.ClassFenced, Code: CodeFenced,
				Text: fmt.Sprintf("lane %d went to another relay", r.Lane)}})
		}
	}
	b.left = slices.DeleteFunc(b.left, func(i int) bool { return b.told[i] })
}

// hopeless returns the failure of all that is left when it is no use to go on.
func (b *batch) hopeless(err error) *relay.Failure {
	f := b.t.failure(err)
	patience := b.s.opts.Patience
	if f.Class == relay.ClassRelay || time.Since(time.Unix(0, b.moved.Load())) > 5*patience {
		return f
	}
	return nil
}

// done reports a committed transaction.
func (b *batch) done(x *transaction) {
	for _, s := range x.shares {
		b.t.spoke(s.to)
	}
	marked := x.onMarked()
	for n := range x.data {
		y := &x.data[n]
		r := relay.Result{Receipt: y.receipt()}
		if b.recs[y.index].Row != "" {
			r.Marked = marked
		}
		b.tell(y.index, r)
	}
	b.left = nil
}

// failure is the account of an error that all records of a transaction met.
func (t *Transactions) failure(err error) *relay.Failure {
	control, _ := t.g.control()
	f := t.base.failure(control, err)
	switch {
	case ofTheControlTopic(err):
		f.Class, f.Grace, f.Hint = relay.ClassUnavailable, 0, hintLanes
	case forbidden(err):
		f.Class, f.Hint = relay.ClassRelay, t.base.grant(control, err)
	case errors.Is(err, errUnsettled):
		f.Class, f.Hint = relay.ClassUnavailable, "the lanes are shared out anew by themselves"
	case f.Class == relay.ClassPermanent, f.Class == relay.ClassRetriable:
		f.Class, f.Grace = relay.ClassUnavailable, 0 // it is no record's
	}
	f.Text = fmt.Sprintf("transaction of %s: %s", control, err)
	return f
}
