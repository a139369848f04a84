package relay_test

import (
	"context"
	"fmt"

	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// TestRelay_ModeSwitch: a rolling change of relay.claim keeps the order of keys and sends nothing twice. The newcomers
// wait, and say for whom, until the last relay of the other mode has gone.
func TestRelay_ModeSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		single := func() { r.opts.Claim, r.opts.Lanes, r.group, r.relays = relay.ClaimSingle, nil, nil, 1 }
		lanes := func() { r.share(2, true) }
		rows := func() {
			r.opts.Claim, r.opts.Lanes, r.group, r.relays, r.store.Cursor = relay.ClaimRows, nil, nil, 2, false
		}
		var want []string
		n := 0
		write := func() {
			for range 10 {
				n++
				for _, key := range []string{"a", "b", "c"} {
					r.commit(fmt.Sprintf("%s-%03d", key, n))
				}
				want = append(want, fmt.Sprintf("a-%03d", n))
			}
		}
		var old []*life
		held := ""
		for _, mode := range []func(){single, lanes, single, rows, lanes, rows} {
			mode()
			write()
			fresh := r.runAll()
			if len(old) > 0 {
				time.Sleep(5 * time.Second)
				for _, l := range fresh {
					require.False(t, l.Status().Active)
					require.Contains(t, l.Status().StandbyFor, "claim: "+held)
				}
				for _, l := range old {
					write()
					r.end(l) // one by one, as a rolling deploy does
				}
			}
			write()
			time.Sleep(10 * time.Second)
			for _, l := range fresh {
				require.True(t, l.Status().Active)
			}
			require.Empty(t, r.db.Pending())
			require.Equal(t, want, r.ofKey("t", "a"))
			old, held = fresh, string(r.opts.Claim)
		}
		r.end(old...)
		require.Contains(t, r.log.String(), "another relay owns the table, and this one may not work beside it")
	})
}

// TestRelay_StandbyForOthers: a relay that waits for relays of another kind says so once a minute, with the next step; one
// that waits for its like says so once.
func TestRelay_StandbyForOthers(t *testing.T) {
	t.Parallel()
	for claim, warned := range map[relay.ClaimMode]int{relay.ClaimRows: 3, relay.ClaimSingle: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2)
			r.opts.Claim, r.opts.Lanes, r.group, r.relays = relay.ClaimSingle, nil, nil, 1
			first := r.runAll()
			synctest.Wait()
			r.opts.Claim, r.store.Cursor = claim, r.store.Cursor && claim != relay.ClaimRows
			second := r.runAll()
			time.Sleep(150 * time.Second)
			log := r.log.String()
			require.Equal(t, warned, strings.Count(log, "and this one may not work beside it"), "%s: %s", claim, log)
			if warned > 0 {
				require.Contains(t, log, "stop those relays, or give this one the same relay.claim, outbox.name and relay.lanes")
				require.Contains(t, log, `"own_claim":"rows"`)
			} else {
				require.Equal(t, 1, strings.Count(log, "waiting as standby"))
			}
			r.end(first...)
			time.Sleep(150 * time.Second)
			require.Equal(t, warned, strings.Count(r.log.String(), "and this one may not work beside it"), "not once it works")
			r.end(second...)
		})
	}
}

// sweptStore is a Store whose sweep finds events.
type sweptStore struct {
	*relaytest.FakeStore
	found atomic.Int64
}

func (s *sweptStore) SweepFound() int64 { return s.found.Load() }

// TestRelay_SweepFound: what a sweep had to find is told once.
func TestRelay_SweepFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log safeBuffer
		db := relaytest.NewFakeDB()
		s := &sweptStore{FakeStore: db.Open(relaytest.FakeStoreOptions{})}
		l := relay.New(relay.Options{Store: s, Sink: relaytest.NewFakeKafka(1).Sink(relaytest.FakeSinkOptions{}),
			Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(10 * time.Second)
		require.NotContains(t, log.String(), "sweep")
		s.found.Store(3)
		time.Sleep(10 * time.Second)
		require.Contains(t, log.String(), `a sweep of the table found events that reading had missed, they are sent now","events":3`)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 1, strings.Count(log.String(), "a sweep of the table"))
	})
}
