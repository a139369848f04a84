package relay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// closedLanes notes that it was closed.
type closedLanes struct {
	relay.Lanes
	closed int
}

func (l *closedLanes) Run(ctx context.Context, _ relay.LaneKeeper) error {
	if ctx.Err() != nil {
		l.closed++
	}
	return nil
}

// refusingStore has no table to give.
type refusingStore struct{ relay.LaneStore }

func (refusingStore) Acquire(context.Context, func(string)) (<-chan struct{}, error) {
	return nil, errors.New("no table")
}

func (refusingStore) Close() error { return nil }

// closedSink likewise.
type closedSink struct {
	relay.Sink
	closed int
}

func (s *closedSink) Close(context.Context) error {
	s.closed++
	return nil
}

// TestRun_ClosesLanesThatItNeverRan: what was opened for a run that does not come about is closed.
func TestRun_ClosesLanesThatItNeverRan(t *testing.T) {
	t.Parallel()
	lanes, sink := &closedLanes{}, &closedSink{}
	r := relay.New(relay.Options{Store: refusingStore{}, Sink: sink, Claim: relay.ClaimLanes, Lanes: lanes, LaneCount: 1})
	require.ErrorContains(t, r.Run(t.Context()), "no table")
	require.Equal(t, 1, lanes.closed)
	require.Equal(t, 1, sink.closed)
}
