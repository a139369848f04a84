//go:build synctests

package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// scenario is what a seed stands for: the shape of the table, the load and the relays, and which faults there are.
// What happens at a certain request or call is drawn anew from the seed and the name of the thing.
type scenario struct {
	seed uint64

	relays, flows int
	lanes         int32
	brokers       int
	topics        int
	partitions    int32
	batch         int
	session       time.Duration
	drain         time.Duration
	attempts      int

	keys, writers, events int
	span                  time.Duration

	kills float64 // relays that are killed, a minute
}

func newScenario(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 0x51A1))
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	s := scenario{
		seed: seed, relays: 2, flows: 1 + r.IntN(2), lanes: int32(pick(4, 5, 8, 16)), brokers: pick(1, 2, 3),
		topics: 1 + r.IntN(3), partitions: int32(pick(1, 2, 4)), batch: pick(1, 3, 10, 100),
		session: 6 * time.Second, drain: 5 * time.Second, attempts: 3,
		keys: pick(1, 3, 8, 20), writers: pick(1, 3), events: pick(30, 80, 150),
		span: time.Duration(pick(5, 10, 20)) * time.Second, kills: 3,
	}
	return s
}

// draw is the dice for one thing, named by parts.
func (s *scenario) draw(parts ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, parts...)
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) }
