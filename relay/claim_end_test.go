package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// farStore is a store whose answers take their time, and are lost when the caller does not wait for them.
type farStore struct {
	relay.Store
	away time.Duration
}

func (s *farStore) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	got, err := s.Store.Fetch(context.WithoutCancel(ctx), f)
	select {
	case <-time.After(s.away):
		return got, err
	case <-ctx.Done():
		return relay.Fetched{}, ctx.Err()
	}
}

// TestCase_C09_EndInTheClaim: rows are claimed while the relay is told to end. They are released, and do
// not stay SENDING until the claim timeout; a database that has gone silent does not hold up the end.
func TestCase_C09_EndInTheClaim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away time.Duration
		want relay.State
	}{"answered": {time.Second, relay.StateNew}, "silent": {time.Hour, relay.StateSending}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				so := r.store
				so.Claim = relay.ClaimRows
				o := r.opts
				o.Claim, o.Store, o.Sink = relay.ClaimRows, &farStore{r.db.Open(so), c.away}, r.kafka.Sink(r.sink)
				r.commit("K-1", "K-2")
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(500*time.Millisecond, cancel)
				began := time.Now()
				require.NoError(t, relay.New(o).Run(ctx))
				require.LessOrEqual(t, time.Since(began), 3*time.Second)
				require.Equal(t, c.want, r.state("K-1").State)
				require.Zero(t, r.state("K-1").Attempts)
			})
		})
	}
}
