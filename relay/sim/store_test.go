//go:build synctests

package sim

import (
	"context"
	"errors"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/sqlite"
)

var errDead = errors.New("the process is dead")

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

// begin bounds a call by the life of the process.
func (s *store) begin(ctx context.Context) (context.Context, func(), error) {
	if s.life.Err() != nil {
		return nil, nil, errDead
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }, nil
}

// call makes one call, with what befalls it.
func call[T any](ctx context.Context, s *store, _ string, do func(ctx context.Context) (T, error)) (none T, err error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return none, err
	}
	defer end()
	got, err := do(ctx)
	if s.life.Err() != nil {
		return none, errDead
	}
	return got, err
}

func (s *store) Doubts(ctx context.Context, limit int) ([]relay.Doubt, error) {
	return call(ctx, s, "Doubts", func(ctx context.Context) ([]relay.Doubt, error) { return s.Store.Doubts(ctx, limit) })
}

func (s *store) StillBlocking(ctx context.Context, rows []relay.RowID) ([]relay.RowID, error) {
	return call(ctx, s, "StillBlocking", func(ctx context.Context) ([]relay.RowID, error) { return s.Store.StillBlocking(ctx, rows) })
}

func (s *store) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	return call(ctx, s, "Fetch", func(ctx context.Context) (relay.Fetched, error) { return s.Store.Fetch(ctx, f) })
}

func (s *store) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	return call(ctx, s, "Settle", func(ctx context.Context) ([]relay.RowID, error) { return s.Store.Settle(ctx, outs) })
}

func (s *store) Own(ctx context.Context, lanes []relay.OwnLane) error {
	_, err := call(ctx, s, "Own", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.Store.Own(ctx, lanes) })
	return err
}

func (s *store) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	return call(ctx, s, "Unsettled", func(ctx context.Context) ([]relay.UnsettledRow, error) { return s.Store.Unsettled(ctx, rows) })
}
