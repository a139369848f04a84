//go:build synctests

package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// scenario is what a seed stands for: the shape of the table, the load and the relays, and which faults there are.
// What happens at a certain request or call is drawn anew from the seed and the name of the thing.
type scenario struct {
	seed uint64

	atLeastOnce   bool
	relays, flows int
	lanes         int32
	brokers       int
	topics        int
	partitions    int32
	batch         int
	session       time.Duration
	drain         time.Duration
	attempts      int
	onDead        string
	deadTopic     bool

	keys, writers, events int
	span                  time.Duration
	slowTx                float64 // share of rows after which their transaction takes its time
	bad                   float64 // share of events with trouble of their own
	people                bool
	skew                  time.Duration // of the database's clock
	jumps                 []jump

	kills, stops, pauses float64 // a minute and relay

	latency   time.Duration
	tolls     []toll  // what the network may take
	share     float64 // of requests that it takes something of
	aims      []int16 // requests that it takes more of
	aimShare  float64
	holes     []hole
	strangers float64 // share of transactional ids that somebody else takes over once the answer to a commit was lost

	smallNotes      bool    // brokers take little metadata with offsets, so that progress goes into records
	restarts, moves float64 // of brokers, of leaders and coordinators, a minute
	refusals        []refusal

	dbFlaky, dbSlow float64 // shares of calls
	dbOutages       []window
}

// jump is a step of the database's clock, as a relay sees it whose own clock was set.
type jump struct{ at, by time.Duration }

// window is a span of time since the start.
type window struct{ from, to time.Duration }

func (w window) has(at time.Duration) bool { return at >= w.from && at < w.to }

// hole is a window in which all requests of a kind, or all answers to them, meet the same fate.
type hole struct {
	window
	key    int16
	toll   toll
	answer bool
}

// refusal is what brokers say to a kind of request for a while.
type refusal struct {
	window
	key       kmsg.Key
	err       *kerr.Error
	topic     string // "" for all
	partition int32  // -1 for all
	share     float64
}

func newScenario(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 0x51A1))
	d := dice{r}
	s := scenario{
		seed: seed, relays: d.pick(2, 2, 3, 4), flows: 1 + r.IntN(2), lanes: int32(d.pick(4, 5, 8, 16)), brokers: d.pick(1, 2, 3),
		topics: 1 + r.IntN(3), partitions: int32(d.pick(1, 2, 4)), batch: d.pick(1, 3, 10, 100),
		session: 6 * time.Second, drain: time.Duration(d.pick(1, 5)) * time.Second, attempts: 3, onDead: relay.OnDeadHold,
		keys: d.pick(1, 3, 8, 20), writers: d.pick(1, 3), events: d.pick(30, 80, 150),
		span: time.Duration(d.pick(8, 15, 25)) * time.Second, latency: time.Duration(d.pick(0, 1, 5, 30)) * time.Millisecond,
	}
	s.smallNotes = d.sometimes(0.5)
	s.deadTopic = d.sometimes(0.2)
	if d.sometimes(0.25) {
		s.onDead = relay.OnDeadSkip
	}
	if d.sometimes(0.3) {
		s.slowTx = 0.2
	}
	s.drawProcesses(d)
	if s.atLeastOnce = d.sometimes(0.15); s.atLeastOnce && d.sometimes(0.5) { // how lanes move without a fence
		s.kills, s.pauses, s.stops = 0, 0, 6
		s.slowTx = 0 // a service that keeps the database for longer than the drain may take accounts for doubles
		return s
	}
	s.drawDatabase(d)
	if d.sometimes(0.5) {
		s.bad = []float64{0.03, 0.1, 0.3}[r.IntN(3)]
		s.people = d.sometimes(0.5)
	}
	if d.sometimes(0.6) {
		s.drawNetwork(d)
	}
	if d.sometimes(0.4) {
		for range 1 + r.IntN(4) {
			s.holes = append(s.holes, s.newHole(d))
		}
	}
	if d.sometimes(0.3) {
		s.strangers = 0.5
	}
	if d.sometimes(0.4) {
		s.restarts, s.moves = float64(r.IntN(8)), float64(r.IntN(30))
	}
	if d.sometimes(0.5) {
		for range 1 + r.IntN(5) {
			s.refusals = append(s.refusals, s.newRefusal(d))
		}
	}
	return s
}

func (s *scenario) drawProcesses(d dice) {
	if d.sometimes(0.6) {
		s.kills = float64(d.pick(1, 3, 6))
	}
	if d.sometimes(0.5) {
		s.stops = float64(d.pick(1, 3, 6))
	}
	if d.sometimes(0.4) {
		s.pauses = float64(d.pick(2, 5, 10))
	}
}

func (s *scenario) drawDatabase(d dice) {
	s.skew = time.Duration(d.IntN(7200)-3600) * time.Second
	if d.sometimes(0.2) {
		s.jumps = append(s.jumps, jump{d.upTo(s.span), time.Duration(d.IntN(3605)-5) * time.Second})
	}
	if d.sometimes(0.3) {
		s.dbFlaky = []float64{0.02, 0.1, 0.3}[d.IntN(3)]
	}
	if d.sometimes(0.2) {
		s.dbSlow = 0.2
	}
	if d.sometimes(0.2) {
		s.dbOutages = append(s.dbOutages, s.newWindow(d, 10*time.Second))
	}
}

// drawNetwork chooses which requests suffer, and how.
func (s *scenario) drawNetwork(d dice) {
	for t := lost; t <= slow; t++ {
		if d.sometimes(0.5) {
			s.tolls = append(s.tolls, t)
		}
	}
	if len(s.tolls) == 0 {
		return
	}
	s.share = []float64{0, 0.002, 0.01, 0.05}[d.IntN(4)]
	s.aimShare = []float64{0.03, 0.1, 0.3}[d.IntN(3)]
	for range 1 + d.IntN(3) {
		s.aims = append(s.aims, int16(targets[d.IntN(len(targets))]))
	}
}

// targets are the requests that faults are aimed at.
var targets = []kmsg.Key{kmsg.EndTxn, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.JoinGroup,
	kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetFetch, kmsg.OffsetCommit, kmsg.Fetch, kmsg.ListOffsets, kmsg.LeaveGroup, kmsg.FindCoordinator}

// newHole is, more often than not, one that leaves it open what became of commits.
func (s *scenario) newHole(d dice) hole {
	h := hole{window: s.newWindow(d, 8*time.Second), key: int16(kmsg.EndTxn), toll: []toll{lost, half, silent}[d.IntN(3)], answer: d.sometimes(0.7)}
	if d.sometimes(0.4) {
		h.key = int16(targets[d.IntN(len(targets))])
	}
	return h
}

// answers are what brokers may say that is no verdict on a record.
var answers = []struct {
	key  kmsg.Key
	errs []*kerr.Error
}{
	{kmsg.Produce, []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NotLeaderForPartition,
		kerr.KafkaStorageError, kerr.ConcurrentTransactions, kerr.TopicAuthorizationFailed, kerr.OutOfOrderSequenceNumber}},
	{kmsg.InitProducerID, []*kerr.Error{kerr.ConcurrentTransactions, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress}},
	{kmsg.AddPartitionsToTxn, []*kerr.Error{kerr.ConcurrentTransactions, kerr.CoordinatorNotAvailable, kerr.NotCoordinator}},
	{kmsg.TxnOffsetCommit, []*kerr.Error{kerr.ConcurrentTransactions, kerr.RequestTimedOut, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
		kerr.IllegalGeneration, kerr.RebalanceInProgress}},
	{kmsg.EndTxn, []*kerr.Error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.UnknownServerError}},
	{kmsg.OffsetFetch, []*kerr.Error{kerr.UnstableOffsetCommit, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress}},
	{kmsg.OffsetCommit, []*kerr.Error{kerr.RequestTimedOut, kerr.NotCoordinator, kerr.IllegalGeneration}},
	{kmsg.JoinGroup, []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable}},
	{kmsg.Heartbeat, []*kerr.Error{kerr.NotCoordinator, kerr.UnknownMemberID, kerr.IllegalGeneration}},
	{kmsg.Fetch, []*kerr.Error{kerr.KafkaStorageError, kerr.NotLeaderForPartition}},
	{kmsg.ListOffsets, []*kerr.Error{kerr.KafkaStorageError, kerr.NotLeaderForPartition}},
}

func (s *scenario) newRefusal(d dice) refusal {
	a := answers[d.IntN(len(answers))]
	f := refusal{window: s.newWindow(d, 8*time.Second), key: a.key, err: a.errs[d.IntN(len(a.errs))], partition: -1,
		share: []float64{0.1, 0.5, 1}[d.IntN(3)]}
	if a.key == kmsg.Produce && d.sometimes(0.7) {
		f.topic, f.partition = topicName(d.IntN(s.topics)), int32(d.IntN(int(s.partitions)))
	}
	return f
}

func (s *scenario) newWindow(d dice, longest time.Duration) window {
	from := d.upTo(s.span)
	return window{from, min(s.span, from+d.upTo(longest))}
}

// ordered says whether the order of a key is promised. Without transactions brokers let a relay write that has lost its
// lanes and does not know it yet.
func (s *scenario) ordered() bool {
	return !s.atLeastOnce || s.calm()
}

// calm says that nothing happens to a relay but that it is killed or stopped.
func (s *scenario) calm() bool {
	return s.pauses == 0 && len(s.tolls) == 0 && len(s.holes) == 0 && len(s.refusals) == 0 && s.restarts == 0 && s.moves == 0 && s.dbFlaky == 0 && s.dbSlow == 0 && len(s.dbOutages) == 0
}

// dice are what a seed throws.
type dice struct{ *rand.Rand }

func (d dice) sometimes(p float64) bool { return d.Float64() < p }
func (d dice) pick(of ...int) int       { return of[d.IntN(len(of))] }

func (d dice) upTo(longest time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(longest) + 1))
}

// after is a wait for something that happens so often a minute.
func (d dice) after(aMinute float64) time.Duration {
	if aMinute <= 0 {
		return time.Hour
	}
	return time.Duration(d.ExpFloat64() / aMinute * float64(time.Minute))
}

// draw is the dice for one thing, named by parts.
func (s *scenario) draw(parts ...any) dice {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, parts...)
	return dice{rand.New(rand.NewPCG(s.seed, h.Sum64()))}
}
