package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBackoff_Default(t *testing.T) {
	t.Parallel()
	var b Backoff
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300, 300, 300}
	for i, w := range want {
		got, more := b.Next(i+1, 0)
		require.True(t, more, "attempt %d", i+1)
		require.Equal(t, w*time.Second, got, "attempt %d", i+1)
	}
	_, more := b.Next(16, 0)
	require.False(t, more, "the 16th verdict is the last")
	_, more = b.Next(1000, 0)
	require.False(t, more)
}

// TestBackoff_Schedule is the second article's: 1 min, 5 min, 30 min, 2 h, then dead.
func TestBackoff_Schedule(t *testing.T) {
	t.Parallel()
	b := Backoff{Schedule: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}, MaxAttempts: 2, Jitter: 1}
	for i, want := range b.Schedule {
		got, more := b.Next(i+1, 0.99)
		require.True(t, more, "attempt %d: MaxAttempts does not cut a schedule", i+1)
		require.Equal(t, want, got, "attempt %d: steps are kept to", i+1)
	}
	_, more := b.Next(5, 0)
	require.False(t, more)
}

func TestBackoff_Jitter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jitter, draw float64
		want         time.Duration
	}{
		{0, 0.5, 9 * time.Second}, // the default share, 20 %
		{0, 0, 10 * time.Second},
		{-1, 0.99, 10 * time.Second},
		{0.5, 0.5, 7500 * time.Millisecond},
		{1, 0.5, 5 * time.Second},
		{7, 0.5, 5 * time.Second}, // more than all of it is all of it
	} {
		got, _ := Backoff{Initial: 10 * time.Second, Jitter: c.jitter}.Next(1, c.draw)
		require.Equal(t, c.want, got, "jitter %v draw %v", c.jitter, c.draw)
	}
}

// TestBackoff_OnlyShortens: whatever the settings, a wait is never longer than Max nor negative, and
// jitter never makes it longer than without.
func TestBackoff_OnlyShortens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Initial:     time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "initial")),
			Factor:      rapid.Float64Range(0, 10).Draw(t, "factor"),
			Max:         time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "max")),
			Jitter:      rapid.Float64Range(-1, 2).Draw(t, "jitter"),
			MaxAttempts: 1 << 30,
		}
		n := rapid.IntRange(1, 10_000).Draw(t, "attempts")
		draw := rapid.Float64Range(0, 0.999).Draw(t, "draw")
		plain := b
		plain.Jitter = -1
		longest, _ := plain.Next(n, 0)
		got, more := b.Next(n, draw)
		require.True(t, more)
		require.LessOrEqual(t, got, longest)
		require.GreaterOrEqual(t, got, time.Duration(0))
		limit := b.Max
		if limit == 0 {
			limit = 5 * time.Minute
		}
		require.LessOrEqual(t, longest, limit)
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	p := pause{first: 100 * time.Millisecond, longest: time.Second}
	for range 2 {
		for _, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			got := p.next()
			require.LessOrEqual(t, got, most*time.Millisecond)
			require.GreaterOrEqual(t, got, most*time.Millisecond*8/10)
		}
		p.reset()
	}
}
