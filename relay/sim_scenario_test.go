package relay_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/relay"
)

// scenario is what a seed stands for: the shape of the table and of the load, and which faults there
// are. Everything that happens at a certain event or call is drawn anew from the seed and the name of
// the thing, so that it does not depend on how goroutines are scheduled.
type scenario struct {
	seed uint64

	claim    relay.ClaimMode
	relays   int
	cursor   bool
	newHeads bool
	skew     time.Duration

	keys, writers, events int
	partitions            int32
	keyless               float64 // share of events without a key
	span                  time.Duration

	batch      int
	bytes      int64
	maxBlocked int
	patience   time.Duration
	drain      time.Duration
	onDead     string
	deadTopic  string
	attempts   int
	drained    bool // ends with runs until drained

	badEvents   float64 // share of events with trouble of their own
	silences    []window
	outages     []window // the partition answers ClassUnavailable
	relayFaults []window // every answer is ClassRelay
	dbOutages   []window
	flaky       float64 // share of records that fail for no fault of theirs
	dbFlaky     float64 // share of calls to the store that go wrong
	slowReads   float64
	slowMarks   float64 // and what one relay may send, another may not
	ends        float64 // how often a relay ends, per minute
	people      bool
	shuffle     bool

	// claim: lanes
	lanes   int32
	plain   bool // at least once: the broker fences nobody
	flows   int
	session time.Duration // how long the group waits for a silent relay
	pauses  float64       // how often a relay stands still, per minute
	unknown float64       // share of commits whose outcome is not known at first
}

// window is a span of time in which one partition (-1: all) is in trouble, as one relay (-1: all) sees it.
type window struct {
	partition int32
	relay     int
	from, to  time.Duration // since the start
}

func in(ws []window, slot int, partition int32, at time.Duration) (left time.Duration) {
	for _, w := range ws {
		if (w.partition < 0 || partition < 0 || w.partition == partition) && (w.relay < 0 || w.relay == slot) && at >= w.from && at < w.to {
			left = max(left, w.to-at)
		}
	}
	return left
}

func newScenario(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 0x9E3779B97F4A7C15))
	sometimes := func(p float64) bool { return r.Float64() < p }
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	s := scenario{
		seed: seed, claim: relay.ClaimSingle, relays: 1 + r.IntN(2), cursor: sometimes(0.5), newHeads: sometimes(0.2),
		skew: time.Duration(r.IntN(7200)-3600) * time.Second,
		keys: pick(1, 3, 8, 20), writers: pick(1, 3, 6), events: pick(30, 80, 150), partitions: int32(pick(1, 2, 4)),
		span:  time.Duration(pick(20, 60, 150)) * time.Second,
		batch: pick(1, 2, 3, 7, 20, 100), bytes: 1 << 20, maxBlocked: 1000,
		patience: time.Duration(pick(100, 300, 1000)) * time.Millisecond,
		drain:    time.Duration(pick(1, 5, 30)) * time.Second,
		onDead:   relay.OnDeadHold, attempts: pick(2, 3, 5), drained: sometimes(0.3), shuffle: sometimes(0.5),
	}
	if sometimes(0.25) {
		s.claim, s.relays, s.cursor = relay.ClaimRows, 1+r.IntN(3), false
	}
	if sometimes(0.3) {
		s.onDead = relay.OnDeadSkip
	}
	if sometimes(0.3) {
		s.deadTopic = "dead"
	}
	if sometimes(0.15) {
		s.maxBlocked = pick(1, 2, 4)
	}
	if sometimes(0.1) {
		s.bytes = 2000
	}
	if sometimes(0.3) {
		s.keyless = 0.2
	}
	s.drawFaults(r)
	return s
}

// newLaneScenario is a scenario with relays that share lanes and send in transactions.
func newLaneScenario(seed uint64) scenario {
	s := newScenario(seed)
	r := rand.New(rand.NewPCG(seed, 0x1A9E5))
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	s.claim, s.relays, s.cursor = relay.ClaimLanes, 1+r.IntN(4), r.IntN(2) == 0
	s.lanes, s.flows = int32(pick(1, 2, 5, 16)), 1+r.IntN(3)
	s.session = time.Duration(pick(3, 6, 10)) * time.Second
	if r.IntN(2) == 0 {
		s.pauses = float64(1 + r.IntN(5))
	}
	if r.IntN(4) == 0 { // verdicts that come when the lane is another's
		s.relays, s.pauses, s.badEvents, s.attempts, s.dbFlaky = 2+r.IntN(3), 12, 0.4, pick(1, 1, 5), 0
		s.slowMarks, s.ends, s.drained = 0.4, float64(r.IntN(4)), false
	}
	if r.IntN(2) == 0 {
		s.unknown = []float64{0.02, 0.1, 0.4}[r.IntN(3)]
	}
	return s
}

// newPlainLaneScenario is a scenario with relays that share lanes and send at least once. None stands still: one that
// goes on for longer than the group waits for it is what only transactions are safe from.
func newPlainLaneScenario(seed uint64) scenario {
	s := newLaneScenario(seed)
	s.plain, s.pauses, s.unknown = true, 0, 0
	return s
}

// parts says whether lanes may be given away with events in flight: their relay waits for an answer, of Kafka or of
// the database, only so long.
func (s *scenario) parts() bool {
	return s.plain && s.relays > 1 && (len(s.silences) > 0 || len(s.dbOutages) > 0 || s.dbFlaky > 0 || s.slowMarks > 0)
}

func (s *scenario) drawFaults(r *rand.Rand) {
	sometimes := func(p float64) bool { return r.Float64() < p }
	windows := func(n int, longest time.Duration) (ws []window) {
		for range n {
			w := window{partition: int32(r.IntN(int(s.partitions)+1)) - 1, relay: max(-1, r.IntN(2*s.relays)-s.relays), from: time.Duration(r.Int64N(int64(s.span + 10*time.Second)))}
			w.to = min(w.from+time.Duration(r.Int64N(int64(longest))), s.calm())
			ws = append(ws, w)
		}
		return ws
	}
	if sometimes(0.6) {
		s.badEvents = []float64{0.02, 0.1, 0.3}[r.IntN(3)]
	}
	if sometimes(0.5) {
		s.silences = windows(1+r.IntN(4), 2*time.Minute)
	}
	if sometimes(0.3) {
		s.outages = windows(1+r.IntN(3), time.Minute)
	}
	if sometimes(0.2) {
		s.relayFaults = windows(1+r.IntN(2), 30*time.Second)
	}
	if sometimes(0.2) {
		s.dbOutages = windows(1+r.IntN(3), 20*time.Second)
	}
	if sometimes(0.4) {
		s.flaky = []float64{0.01, 0.05, 0.2}[r.IntN(3)]
	}
	if sometimes(0.5) {
		s.dbFlaky = []float64{0.02, 0.1, 0.3}[r.IntN(3)]
	}
	if sometimes(0.3) {
		s.slowReads = []float64{0.1, 0.5}[r.IntN(2)]
	}
	if sometimes(0.5) {
		s.ends = float64(1 + r.IntN(8))
	}
	s.people = sometimes(0.6)
}

// calm is when the last fault is over. Runs until drained begin while there are faults.
func (s *scenario) calm() time.Duration {
	if s.drained {
		return s.span + time.Minute
	}
	return s.span + 10*time.Second
}

// ordered says whether the scenario promises order. With claims written there is order only while one
// relay holds every claim: a claim that was orphaned comes back after its successors.
func (s *scenario) ordered() bool {
	return s.claim == relay.ClaimSingle || s.claim == relay.ClaimLanes || s.relays == 1 && s.ends == 0 && s.dbFlaky == 0 && len(s.dbOutages) == 0 && !s.drained
}

// draw is the dice for one thing, named by parts.
func (s *scenario) draw(parts ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, parts...)
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}
