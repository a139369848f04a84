package demo

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watching is a Watcher of one function.
type watching func(ctx context.Context, d *Demo) error

func (w watching) Watch(ctx context.Context, d *Demo) error { return w(ctx, d) }

func TestRun_KeepsEveryPromise(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Run(t.Context(), Options{Orders: 60, Rate: -1, Dir: dir}, nil)
	require.NoError(t, err)
	require.False(t, s.Broken(), "%+v", s)
	require.Equal(t, 52, s.OrdersCommitted)
	require.Equal(t, 8, s.OrdersRolledBack)
	require.Greater(t, s.EventsCommitted, s.OrdersCommitted)
	require.Equal(t, s.EventsCommitted, s.EventsDelivered)
	require.Positive(t, s.EventsRolledBack)
	require.Positive(t, s.Latency.P50)
	require.GreaterOrEqual(t, s.Latency.P99, s.Latency.P50)
	require.GreaterOrEqual(t, s.Latency.Max, s.Latency.P99)
	require.Positive(t, s.FirstEventMS)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "the temporary folder is removed")
}

// TestRun_SummaryKeys holds the names that scripts rely on.
func TestRun_SummaryKeys(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Summary{})
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(text, &keys))
	for _, name := range []string{
		"orders_committed", "orders_rolled_back", "events_committed", "events_delivered", "missing", "phantom",
		"doubled", "applied_twice", "out_of_order", "latency_ms",
	} {
		require.Contains(t, keys, name)
	}
	for _, name := range []string{"p50", "p99", "max"} {
		require.Contains(t, keys["latency_ms"], name)
	}
}

// TestPromise_OutageAndCrash keeps all promises through a broker's outage and a crash of the consumers.
func TestPromise_OutageAndCrash(t *testing.T) {
	t.Parallel()
	s, err := Run(t.Context(), Options{Orders: 150, Rate: 75, BreakBroker: true, CrashConsumers: true, Dir: t.TempDir()}, nil)
	require.NoError(t, err)
	require.False(t, s.Broken(), "%+v", s)
	require.Equal(t, s.EventsCommitted, s.EventsDelivered)
	require.Positive(t, s.DuplicatesSkipped, "the crash makes Kafka deliver again")
	require.Greater(t, s.Latency.Max, 200.0, "the outage is seen in the latencies")
}

// TestPromiseP4_LostAnswers cuts the connections right after the broker has taken records, again and
// again, so that the answers are lost: the producer must find out and not write twice.
func TestPromiseP4_LostAnswers(t *testing.T) {
	t.Parallel()
	cuts := 0
	w := watching(func(ctx context.Context, d *Demo) error {
		cut := make(chan struct{}, 1)
		d.broker.cluster.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			d.broker.cluster.KeepControl()
			select {
			case cut <- struct{}{}:
			default:
			}
			return nil, nil, false // the broker goes on and answers nobody
		})
		for range 5 {
			select {
			case <-cut:
				d.StopBroker()
				cuts++
			case <-ctx.Done():
				return nil
			}
			pause(ctx, 20*time.Millisecond)
			if err := d.StartBroker(ctx); err != nil {
				return err
			}
			pause(ctx, 300*time.Millisecond)
		}
		return nil
	})
	s, err := Run(t.Context(), Options{Rate: 40, Linger: true, Dir: t.TempDir()}, w)
	require.NoError(t, err)
	require.Equal(t, 5, cuts)
	require.False(t, s.Broken(), "%+v", s)
	require.Equal(t, s.EventsCommitted, s.EventsDelivered)
}

// TestPromiseP6_Poison: a dead event holds back its own order, and repaired it goes first.
func TestPromiseP6_Poison(t *testing.T) {
	t.Parallel()
	w := watching(func(ctx context.Context, d *Demo) error {
		if err := d.Poison(ctx); err != nil {
			return err
		}
		dead := await(ctx, t, d, func(s *Snapshot) bool { return s.DeadEvent != nil && s.Held > 0 })
		await(ctx, t, d, func(s *Snapshot) bool { return s.Delivered > dead.Delivered+20 }) // the others flow
		if err := d.Repair(ctx); err != nil {
			return err
		}
		await(ctx, t, d, func(s *Snapshot) bool { return s.Dead == 0 && s.Held == 0 && s.Failed == 0 })
		if err := d.Poison(ctx); err != nil {
			return err
		}
		await(ctx, t, d, func(s *Snapshot) bool { return s.DeadEvent != nil })
		if err := d.Discard(ctx); err != nil {
			return err
		}
		await(ctx, t, d, func(s *Snapshot) bool { return s.DeadEvent == nil && s.Held == 0 })
		return nil
	})
	s, err := Run(t.Context(), Options{Rate: 40, Linger: true, Dir: t.TempDir()}, w)
	require.NoError(t, err)
	require.False(t, s.Broken(), "%+v", s)
	require.Equal(t, 1, s.Dead, "the discarded one, with its reason")
	require.Equal(t, s.EventsCommitted-1, s.EventsDelivered)
}

// await looks until the demo is as wanted; the test's own limit of time ends it.
func await(ctx context.Context, t *testing.T, d *Demo, wanted func(*Snapshot) bool) Snapshot {
	t.Helper()
	limit := time.Now().Add(time.Minute)
	for {
		s, err := d.Snapshot(ctx)
		if err == nil && wanted(&s) {
			return s
		}
		if time.Now().After(limit) || !pause(ctx, 10*time.Millisecond) {
			t.Errorf("waited in vain: %+v, %v", s, err)
			return s
		}
	}
}

// TestRun_NotDelivered: a run whose events did not all arrive in time says so and is not a success.
func TestRun_NotDelivered(t *testing.T) {
	t.Parallel()
	w := watching(func(ctx context.Context, d *Demo) error {
		await(ctx, t, d, func(s *Snapshot) bool { return s.Sent > 0 })
		_, err := d.orders.ExecContext(ctx, `UPDATE outbox_events SET status = 'NEW', next_retry_at = '2999-01-01T00:00:00.000Z'`)
		return err
	})
	s, err := Run(t.Context(), Options{Linger: true, Dir: t.TempDir(), settle: 300 * time.Millisecond}, w)
	require.NoError(t, err)
	require.Contains(t, s.Undelivered, "not everything was delivered")
	require.True(t, s.Broken())
}

// TestRun_PanicEndsTheRun: a panic of the demo's own is an error, after the watcher has ended.
func TestRun_PanicEndsTheRun(t *testing.T) {
	t.Parallel()
	ended := false
	_, err := Run(t.Context(), Options{Linger: true, Dir: t.TempDir()}, watching(func(ctx context.Context, d *Demo) error {
		d.spawn(func() error { panic("on purpose") })
		<-ctx.Done()
		ended = true
		return nil
	}))
	require.ErrorContains(t, err, "on purpose")
	require.True(t, ended)
}

func TestRun_NoFolder(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Options{Dir: "/nonexistent"}, nil)
	require.ErrorContains(t, err, "set TMPDIR")
}

func TestOptions_Plan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		want    plan
	}{
		"live":                         {Options{}, plan{orders: MaxOrders, rate: DefaultRate}},
		"only a time":                  {Options{For: 10 * time.Second}, plan{orders: MaxOrders, rate: DefaultRate, within: 8 * time.Second}},
		"few orders keep the pace":     {Options{Orders: 50, For: 10 * time.Second}, plan{orders: 50, rate: DefaultRate, within: 8 * time.Second}},
		"many are placed in half":      {Options{Orders: 500, For: 10 * time.Second}, plan{orders: 500, rate: 100, within: 8 * time.Second}},
		"many without a time":          {Options{Orders: 1000}, plan{orders: 1000, rate: 200}},
		"a rate is a rate":             {Options{Orders: 1000, Rate: 10}, plan{orders: 1000, rate: 10}},
		"as fast as the database":      {Options{Orders: 1000, Rate: -1}, plan{orders: 1000}},
		"no more than the demo stands": {Options{Orders: 10 * MaxOrders, Rate: 5}, plan{orders: MaxOrders, rate: 5}},
		"faults": {Options{For: 15 * time.Second, BreakBroker: true, CrashConsumers: true},
			plan{orders: MaxOrders, rate: DefaultRate, within: 12 * time.Second,
				breakAt: 5 * time.Second, breakFor: 3 * time.Second, crashAt: 7500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.options.plan())
		})
	}
}

func TestBook_LatenciesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBook()
	for i := range 3 * maxLatencies {
		b.sample(time.Duration(i))
	}
	require.LessOrEqual(t, len(b.latencies), maxLatencies)
	require.Len(t, b.recent, recentLatencies)
	p50, p99, longest := b.overall()
	n := float64(3 * maxLatencies)
	require.InDelta(t, n*0.5, float64(p50), n*0.02)
	require.InDelta(t, n*0.99, float64(p99), n*0.02)
	require.Equal(t, time.Duration(3*maxLatencies-1), longest)
}
