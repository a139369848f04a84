//go:build synctests

package sim

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/sqlite"
)

var (
	errDead  = errors.New("the process is dead")
	errFault = errors.New("the connection broke")
	errFull  = errors.New("database or disk is full (13)")
)

// store is a process's way to the database.
type store struct {
	*sqlite.Store
	p    *process
	life context.Context
	kill context.CancelFunc
}

func newStore(p *process, inner *sqlite.Store) *store {
	s := &store{Store: inner, p: p}
	s.life, s.kill = context.WithCancel(context.Background())
	return s
}

// mishap is what befalls a call.
type mishap struct {
	before, after error
	part          bool // a part of it is done, then before
	wait, late    time.Duration
}

func (s *store) mishap(op string) (m mishap) {
	w := s.p.w
	n := w.call(s.p.name + op)
	if w.isOver() {
		return m
	}
	d := w.draw("store", s.p.name, op, n)
	for _, o := range w.dbOutages {
		if o.has(w.now()) {
			m.before = errFault
			return m
		}
	}
	switch {
	case d.sometimes(w.dbFlaky):
		err := []error{errFault, errFull}[d.IntN(2)]
		switch d.IntN(4) {
		case 0:
			m.before = err
		case 1:
			m.after = err
		case 2:
			m.part, m.before, m.wait = true, err, d.upTo(2*time.Second)
		case 3:
			m.wait = d.upTo(5 * time.Second)
		}
	case d.sometimes(w.dbSlow):
		m.wait, m.late = d.upTo(3*time.Second), d.upTo(3*time.Second)
	}
	if m != (mishap{}) {
		w.log.add(s.p.name, "database", op, m.before, m.after, m.part, m.wait, m.late)
	}
	return m
}

// call makes one call, with what befalls it. part does a part of it; nil for calls that have none.
func call[T any](ctx context.Context, s *store, op string, do func(context.Context) (T, error), part func(context.Context)) (none T, err error) {
	m := s.mishap(op)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if err := s.pass(ctx, m.wait); err != nil {
		return none, err
	}
	if m.before != nil {
		if m.part && part != nil {
			part(ctx)
		}
		return none, m.before
	}
	got, err := do(ctx)
	if pausing := s.pass(ctx, m.late); pausing != nil {
		return none, pausing
	}
	if m.after != nil {
		return none, m.after
	}
	return got, err
}

// pass waits, and longer while the process stands still.
func (s *store) pass(ctx context.Context, wait time.Duration) error {
	if !sleepOr(wait, ctx.Done()) || s.p.link.pass(ctx.Done()) != nil || s.life.Err() != nil {
		if s.life.Err() != nil {
			return errDead
		}
		return ctx.Err()
	}
	return nil
}

func (s *store) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	return call(ctx, s, "Doubts", func(ctx context.Context) ([]relay.Doubt, error) { return s.Store.Doubts(ctx, limit) }, nil)
}

func (s *store) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	return call(ctx, s, "StillBlocking", func(ctx context.Context) ([]relay.RowID, error) { return s.Store.StillBlocking(ctx, rows) }, nil)
}

func (s *store) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	return call(ctx, s, "Fetch", func(ctx context.Context) (relay.Fetched, error) { return s.Store.Fetch(ctx, f) }, nil)
}

func (s *store) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	defer s.p.w.excuse(s.p, outs)
	return call(ctx, s, "Settle", func(ctx context.Context) ([]relay.RowID, error) {
		s.p.w.excuse(s.p, outs)
		return s.Store.Settle(ctx, outs)
	}, func(ctx context.Context) { _, _ = s.Store.Settle(ctx, outs[:len(outs)/2]) })
}

// excuse notes keys of which a relay judges an event that is another's by now. It cannot know yet that it has lost the
// lane, and brokers fence records, not marks: when the owner meets such a row, its key may be out of order.
func (w *world) excuse(p *process, outs []relay.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range outs {
		key := w.written[o.EventID].AggregateID
		owner := w.owners[relay.LaneOf(key, w.lanes)]
		if (o.State == relay.StateFailed || o.State == relay.StateDead) && owner != p && !w.excused[key] {
			w.excused[key] = true
			w.log.add(p.name, "judges what is not its own", o.EventID, o.State)
		}
	}
}

func (s *store) Own(ctx context.Context, lanes []relay.OwnLane) error {
	s.p.w.owns(s.p, lanes)
	_, err := call(ctx, s, "Own", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Store.Own(ctx, lanes) }, nil)
	return err
}

// owns notes which lanes a process reads from now on.
func (w *world) owns(p *process, lanes []relay.OwnLane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[int32]bool{}
	for _, l := range lanes {
		now[l.Lane] = true
		if !p.reads[l.Lane] {
			w.owners[l.Lane] = p
		}
	}
	p.reads = now
}

func (s *store) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	return call(ctx, s, "Unsettled", func(ctx context.Context) ([]relay.UnsettledRow, error) { return s.Store.Unsettled(ctx, rows) }, nil)
}
