package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// stormKey is one key as a relay keeps it: what is still to be sent, in order.
type stormKey struct {
	name    string
	topic   string
	next    int // the first number that is not settled
	waiting int // records under way
	results map[int]relay.Result
}

// TestPromise_P3_StormOfFaults writes counters of many keys while leaders move, connections break, brokers
// answer late or with errors, and some records are refused. As a relay does, it offers again from the
// first that was not acknowledged, and skips what is refused for good. Then the log is read: every number
// is there, and first occurrences are in order.
func TestPromise_P3_StormOfFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			storm(t, seed)
		})
	}
}

func storm(t *testing.T, seed uint64) {
	k := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(4, "s1", "s2"))
	bootstrap := k.ListenAddrs()[0]
	wire := newLink()
	s := open(t, parsed(t, properties(bootstrap, "request.timeout.ms", "1000", "socket.connection.setup.timeout.ms", "300", "retry.backoff.max.ms", "200")),
		Options{Dial: wire.dial, Patience: 100 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	forgetful := seed%2 == 0 // brokers forget producers: what was written and not answered comes twice
	weather := make(chan struct{})
	go func() {
		defer close(weather)
		blow(ctx, k, wire, forgetful, rand.New(rand.NewPCG(seed, 1)))
	}()

	const numbers = 250
	keys := make([]*stormKey, 25)
	for i := range keys {
		keys[i] = &stormKey{name: fmt.Sprintf("key-%d", i), topic: fmt.Sprint("s", 1+i%2)}
	}
	w := &stormWriter{t: t, s: s, random: rand.New(rand.NewPCG(seed, 2)), keys: keys, numbers: numbers, acked: map[string]bool{}}
	deadline := time.Now().Add(60 * time.Second)
	for !w.done() {
		require.True(t, time.Now().Before(deadline), "the storm is over, and records are left")
		if !w.round(t.Context()) {
			select { // all keys wait for answers
			case <-w.answered:
			case <-time.After(time.Second):
			}
		}
	}
	<-weather
	doubled := w.check(readAll(t, bootstrap, "s1"), readAll(t, bootstrap, "s2"))
	if !forgetful {
		require.Zero(t, doubled, "Promise_P4")
	}
}

// blow makes trouble until ctx ends, then calms down.
func blow(ctx context.Context, k *kfake.Cluster, wire *link, forgetful bool, random *rand.Rand) {
	answers := []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.LeaderNotAvailable, kerr.ThrottlingQuotaExceeded}
	if forgetful {
		answers = append(answers, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID)
	}
	addrs := k.ListenAddrs()
	for ctx.Err() == nil {
		switch random.IntN(6) {
		case 0:
			k.ShufflePartitionLeaders()
		case 1:
			wire.set(linkCut, addrs[random.IntN(len(addrs))])
		case 2:
			wire.set(linkHole, addrs[random.IntN(len(addrs))])
		case 3, 4:
			k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: answers[random.IntN(len(answers))], Count: 1 + random.IntN(3)})
		default:
			wire.set(linkUp, "")
		}
		select {
		case <-time.After(time.Duration(random.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	wire.set(linkUp, "")
}

type stormWriter struct {
	t       *testing.T
	s       *Sink
	random  *rand.Rand
	keys    []*stormKey
	numbers int

	mu       sync.Mutex
	acked    map[string]bool
	answered chan struct{}
}

func (w *stormWriter) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		if k.next < w.numbers {
			return false
		}
	}
	return true
}

// refusable numbers carry a partition that does not exist: they are refused for good.
func refusable(number int) bool { return number%97 == 96 }

// round offers a few numbers of each key that waits for nothing. False when there is none.
func (w *stormWriter) round(ctx context.Context) bool {
	var recs []relay.Record
	var of []*stormKey
	var number []int
	beyond := int32(99)
	w.mu.Lock()
	w.answered = make(chan struct{}, 1)
	for _, k := range w.keys {
		if k.waiting > 0 {
			continue
		}
		k.results = map[int]relay.Result{}
		for n := k.next; n < min(w.numbers, k.next+1+w.random.IntN(12)); n++ {
			r := record(k.topic, k.name, strconv.Itoa(n))
			if refusable(n) {
				r.Partition = &beyond
			}
			recs, of, number = append(recs, r), append(of, k), append(number, n)
			k.waiting++
		}
	}
	answered := w.answered
	w.mu.Unlock()
	if len(recs) == 0 {
		return false
	}
	w.s.Write(ctx, recs, func(i int, r relay.Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.result(of[i], number[i], r)
		select {
		case answered <- struct{}{}:
		default:
		}
	})
	return true
}

// result is called with mu held. A refusal may be reported before earlier records of its key are
// answered, so a key is judged once all its answers are there.
func (w *stormWriter) result(k *stormKey, number int, r relay.Result) {
	k.results[number] = r
	if k.waiting--; k.waiting > 0 {
		return
	}
	stopped := false
	for n, from := k.next, k.next; n < from+len(k.results); n++ {
		f := k.results[n].Failure
		switch {
		case f == nil && stopped:
			w.t.Errorf("%s %d is acknowledged behind one that failed", k.name, n)
		case f == nil:
			w.acked[k.name+" "+strconv.Itoa(n)] = true
			k.next = n + 1
		case refusable(n) && f.Class == relay.ClassPermanent && !stopped:
			k.next, stopped = n+1, true // skipped, as a person would; what stands behind it was held
		case refusable(n) && f.Class == relay.ClassPermanent, f.Class == relay.ClassUnavailable, f.Class == relay.ClassHeld:
			stopped = true
		default:
			w.t.Errorf("%s %d: %v", k.name, n, f)
		}
	}
}

// check returns how many records are there more than once.
func (w *stormWriter) check(topics ...[][]relaytest.SinkRecord) int {
	first := map[string]int{}
	seen := map[string]bool{}
	doubled := 0
	for _, partitions := range topics {
		for _, held := range partitions {
			for _, r := range held {
				number, err := strconv.Atoi(string(r.Value))
				require.NoError(w.t, err)
				name := string(r.Key) + " " + string(r.Value)
				if seen[name] {
					doubled++
					continue
				}
				seen[name] = true
				require.GreaterOrEqual(w.t, number, first[string(r.Key)], "%s overtakes", name)
				first[string(r.Key)] = number + 1
			}
		}
	}
	for name := range w.acked {
		require.True(w.t, seen[name], "%s was acknowledged and is not there", name)
	}
	refused := w.numbers / 97
	require.Len(w.t, seen, len(w.keys)*(w.numbers-refused))
	w.t.Logf("%d records, %d doubled", len(seen), doubled)
	return doubled
}
