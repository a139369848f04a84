package relay

import (
	"math/rand/v2"
	"time"
)

// Backoff says how long a FAILED event waits before its next attempt, and after how many attempts it
// is given up. The zero value waits 1 s, doubling to 5 min, with a jitter of 20 %, for 16 attempts.
type Backoff struct {
	Initial time.Duration // first wait; defaults to 1 s
	Factor  float64       // growth a step; defaults to 2
	Max     time.Duration // longest wait; defaults to 5 min
	Jitter  float64       // share of the wait that is random, 0 to 1; negative means none; defaults to 0.2

	// Schedule, when set, replaces the exponential steps: the wait after the first, second, … failure.
	// After the last step the event is DEAD, so MaxAttempts is one more than its length.
	Schedule []time.Duration

	// MaxAttempts is the number of verdicts after which an event is DEAD; defaults to 16. Ignored with
	// a Schedule.
	MaxAttempts int
}

// Next returns the wait after the given number of failed attempts (1 for the first), and false when
// the event is to be given up. draw is a random number in [0, 1): tests pass a fixed one.
func (b Backoff) Next(attempts int, draw float64) (time.Duration, bool) {
	if len(b.Schedule) > 0 {
		if attempts > len(b.Schedule) {
			return 0, false
		}
		return b.Schedule[attempts-1], true
	}
	limit := b.MaxAttempts
	if limit <= 0 {
		limit = 16
	}
	if attempts >= limit {
		return 0, false
	}
	return b.wait(attempts, draw), true
}

func (b Backoff) wait(attempts int, draw float64) time.Duration {
	initial, factor, longest, jitter := b.Initial, b.Factor, b.Max, b.Jitter
	if initial <= 0 {
		initial = time.Second
	}
	if factor < 1 {
		factor = 2
	}
	if longest <= 0 {
		longest = 5 * time.Minute
	}
	switch {
	case jitter < 0:
		jitter = 0
	case jitter == 0:
		jitter = 0.2
	case jitter > 1:
		jitter = 1
	}
	d := float64(initial)
	for range attempts - 1 {
		if d *= factor; d >= float64(longest) {
			break
		}
	}
	d = min(d, float64(longest))
	// Jitter shortens only, so that Max stays the longest wait.
	return time.Duration(d * (1 - jitter*draw))
}

// pause is the relay's own waiting: for a database or a cluster that does not answer. It doubles from
// first to longest and is never counted against an event.
type pause struct {
	first, longest time.Duration
	last           time.Duration
}

func (p *pause) next() time.Duration {
	p.last = min(max(p.last*2, p.first), p.longest)
	return p.last - time.Duration(rand.Float64()*0.2*float64(p.last))
}

func (p *pause) reset() { p.last = 0 }
