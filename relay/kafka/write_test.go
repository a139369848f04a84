package kafka

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// What waits for an answer is bounded: beyond buffer.memory nothing more is taken, without waiting.
func TestSink_BufferMemoryBoundsWhatWaits(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "stalled", "open"))
	seed := k.ListenAddrs()[0]
	s := open(t, parsed(t, properties(seed, "buffer.memory", "1048576")), Options{Patience: 100 * time.Millisecond})
	require.Nil(t, send(t, s, record("open", "k", "v"))[0].Failure)
	resume := stall(k, "stalled")
	big := make([]relay.Record, 20)
	for i := range big {
		big[i] = record("stalled", "k", strings.Repeat("x", 100_000))
	}
	late := begin(t.Context(), s, big...)
	require.Zero(t, late.reported(), "one write is taken whole, whatever its size")
	require.Greater(t, s.Health().Bytes, int64(1<<20))
	started := time.Now()
	f := send(t, s, record("open", "k", "v"))[0].Failure
	require.Less(t, time.Since(started), 100*time.Millisecond)
	require.Equal(t, relay.ClassUnavailable, f.Class)
	require.Equal(t, CodeBufferFull, f.Code)
	require.Contains(t, f.Text, "the limit is 1048576 (buffer.memory)")
	resume()
	late.await(t, len(big))
	until(t, 5*time.Second, "nothing is kept of what was answered", func() bool { return s.Health().Bytes == 0 })
	require.Nil(t, send(t, s, record("open", "k", "v"))[0].Failure)
}

// A partition that answers, but slowly and for long, does not hold a Write for ever: five times the
// patience is the end, and the rest is reported as it comes.
func TestSink_WriteHasAnEnd(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	seed := k.ListenAddrs()[0]
	topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "1000"})
	k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		k.SleepControl(func() { time.Sleep(100 * time.Millisecond) }) // the broker's slowness
		return nil, nil, false
	})
	const patience = 500 * time.Millisecond
	s := open(t, parsed(t, properties(seed)), Options{Patience: patience})
	recs := make([]relay.Record, 30)
	for i := range recs {
		recs[i] = record(topic, "k", strings.Repeat("x", 800)) // a round each
	}
	started := time.Now()
	p := begin(t.Context(), s, recs...)
	took := time.Since(started)
	require.Less(t, took, 8*patience)
	require.Greater(t, took, 2*patience, "each answer renews the patience")
	require.Less(t, p.reported(), len(recs))
	p.await(t, len(recs))
	for i := range recs {
		require.Nil(t, p.result(i).Failure)
	}
	require.Len(t, readAll(t, seed, topic)[0], len(recs))
}

// Records of one write to many topics and partitions reach a broker in one request.
func TestSink_OneRequestForAWrite(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(6, "a", "b", "c"))
	seed := k.ListenAddrs()[0]
	s := open(t, parsed(t, properties(seed)), Options{})
	var recs []relay.Record
	for i := range 600 {
		recs = append(recs, record(string(rune('a'+i%3)), fmt.Sprint(i), "v"))
	}
	for _, r := range send(t, s, recs...) { // the client learns where the partitions are
		require.Nil(t, r.Failure)
	}
	var all atomic.Int64
	watch(k, func(kmsg.ProduceRequestTopic) { all.Add(1) })
	for range 10 {
		for _, r := range send(t, s, recs...) {
			require.Nil(t, r.Failure)
		}
	}
	// Ten requests of three topics; a timer of the library may split some where the machine is slow.
	require.LessOrEqual(t, all.Load(), int64(60))
}

// Close waits for answers, lets nothing new in, and leaves nothing behind, whoever writes meanwhile.
func TestSink_CloseWhileOthersWrite(t *testing.T) {
	t.Parallel()
	for round := range 10 {
		k := cluster(t, kfake.SeedTopics(3, "t"))
		s, err := NewSink(parsed(t, properties(k.ListenAddrs()[0])), Options{Patience: 50 * time.Millisecond})
		require.NoError(t, err)
		var closed atomic.Bool
		var acked atomic.Int64
		var writers sync.WaitGroup
		for g := range 4 {
			writers.Go(func() {
				for n := range 50 {
					s.Write(t.Context(), []relay.Record{record("t", fmt.Sprint(g), fmt.Sprint(n))}, func(_ int, r relay.Result) {
						if closed.Load() {
							t.Error("reported after Close had returned")
						}
						if r.Failure == nil {
							acked.Add(1)
						}
					})
				}
			})
		}
		time.Sleep(time.Duration(round) * time.Millisecond) // different moments, not a synchronisation
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round%3)*20*time.Millisecond)
		_ = s.Close(ctx)
		closed.Store(true)
		cancel()
		writers.Wait()
		written := 0
		for _, held := range readAll(t, k.ListenAddrs()[0], "t") {
			written += len(held)
		}
		require.GreaterOrEqual(t, int64(written), acked.Load())
	}
}

// Each codec's records come back as they were, and small ones cost little.
func TestSink_Compression(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	seed := k.ListenAddrs()[0]
	var largest atomic.Int64
	watch(k, func(rt kmsg.ProduceRequestTopic) { largest.Store(int64(len(rt.Partitions[0].Records))) })
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := newTopic(t, seed, 1, nil)
		props := properties(seed, "compression.type", codec)
		if codec != "none" && codec != "snappy" {
			props["compression."+codec+".level"] = "3"
		}
		s := open(t, parsed(t, props), Options{})
		value := strings.Repeat("abc", 10_000)
		for i, r := range send(t, s, record(topic, "k", value), record(topic, "k", "")) {
			require.Nil(t, r.Failure, i)
		}
		held := readAll(t, seed, topic)[0]
		require.Equal(t, value, string(held[0].Value), codec)
		require.Len(t, held, 2)
		require.Equal(t, codec != "none", largest.Load() < 10_000, codec)
	}
}

// The library is told never to give up and never to decide.
func TestSink_ClientOptions(t *testing.T) {
	t.Parallel()
	s := open(t, parsed(t, properties("a:1", "request.timeout.ms", "8000", "retry.backoff.ms", "10", "retry.backoff.max.ms", "80")), Options{})
	c := s.current().Client
	require.Equal(t, kgo.AllISRAcks(), c.OptValue(kgo.RequiredAcks))
	require.Equal(t, false, c.OptValue(kgo.DisableIdempotentWrite))
	require.Equal(t, time.Duration(0), c.OptValue(kgo.RecordDeliveryTimeout))
	require.Greater(t, c.OptValue(kgo.RecordRetries), int64(1<<40))
	require.Equal(t, 4*time.Second, c.OptValue(kgo.ProduceRequestTimeout))
	require.Equal(t, 4*time.Second, c.OptValue(kgo.RequestTimeoutOverhead))
	for tries, want := range map[int]time.Duration{0: 10, 1: 10, 2: 20, 3: 40, 4: 80, 5: 80, 1000: 80} {
		got := s.cfg.backoff(tries)
		require.InDelta(t, float64(want*time.Millisecond), float64(got), 0.2*float64(want*time.Millisecond)+1)
	}
}

// A Write that still looks topics up when Close gives up has nothing to report any more.
func TestSink_CloseWhileAWriteLooksTopicsUp(t *testing.T) {
	t.Parallel()
	wire := newLink()
	wire.set(linkHole, "")
	s, err := NewSink(parsed(t, properties("127.0.0.1:1")), Options{Dial: wire.dial, Patience: 300 * time.Millisecond})
	require.NoError(t, err)
	done := make(chan *pending)
	go func() { done <- begin(context.Background(), s, record("t", "k", "v"), record("not legal", "k", "v")) }()
	require.Eventually(t, func() bool { return len(s.turn) == 1 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.NoError(t, s.Close(ctx), "nothing was handed over, so nothing is dropped")
	require.Zero(t, (<-done).reported())
}

// Records without a key go where answers come from.
func TestSink_KeylessRecordsAvoidPartitionsThatOweAnswers(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(3, "t"))
	s := open(t, parsed(t, properties(k.ListenAddrs()[0])), Options{Patience: 100 * time.Millisecond})
	fault := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
	var late []*pending
	for range 30 {
		p := begin(t.Context(), s, relay.Record{Topic: "t", Value: []byte("v")})
		if p.reported() == 0 {
			late = append(late, p)
			continue
		}
		require.Nil(t, p.result(0).Failure)
	}
	require.Len(t, late, 1, "the first that met the silent partition closed it for others")
	fault.Remove()
	late[0].await(t, 1)
	require.Nil(t, late[0].result(0).Failure)
}

// While one partition is silent, the answered records of its Write are not kept in memory.
func TestSink_AnsweredRecordsAreLetGo(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "stalled", "open"))
	s := open(t, parsed(t, properties(k.ListenAddrs()[0])), Options{Patience: 100 * time.Millisecond})
	resume := stall(k, "stalled")
	value := make([]byte, 500_000)
	held := weak.Make(&value[0])
	recs := []relay.Record{{Topic: "open", Key: []byte("k"), Value: value}, record("stalled", "k", "v")}
	value = nil
	p := begin(t.Context(), s, recs...)
	require.Equal(t, 1, p.reported())
	require.Nil(t, p.result(0).Failure)
	clear(recs)
	require.Eventually(t, func() bool {
		runtime.GC()
		return held.Value() == nil
	}, 10*time.Second, 10*time.Millisecond)
	resume()
	p.await(t, 2)
}

// The library may send a round before all of it is buffered, and have the answer while the rest comes. A
// record that comes after a refusal must not be sent, or it would overtake.
func TestSink_ARoundIsOneBatchOrNothing(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "t"))
	refusePoison(k)
	s := open(t, parsed(t, properties(k.ListenAddrs()[0])), Options{})
	require.Nil(t, send(t, s, record("t", "k", "0"))[0].Failure)

	p := &pending{results: map[int]relay.Result{}, changed: make(chan struct{}, 1)}
	w := &write{planner: planner{s: s}, done: make(chan struct{}), report: func(i int, r relay.Result) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.results[i] = r
	}}
	w.unfinished.Store(1)
	f := &flight{w: w, to: target{"t", 0}, topic: &topicInfo{name: "t"}, client: s.client, round: 3, limit: maxBatch}
	s.client.flights++
	for i, value := range []string{poison, "1", "2"} {
		x := &sending{flight: f, index: i, opens: i == 0}
		x.rec = kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte(value), Context: x}
		f.todo = append(f.todo, x)
	}
	f.left.Store(3)
	s.calls.Add(3)
	s.client.TryProduce(t.Context(), &f.todo[0].rec, s.settle)
	kick(s.client.Client)
	require.Eventually(t, func() bool { return f.left.Load() == 2 }, 10*time.Second, time.Millisecond)
	s.client.TryProduce(t.Context(), &f.todo[1].rec, s.settle)
	s.client.TryProduce(t.Context(), &f.todo[2].rec, s.settle)
	<-w.done
	require.Equal(t, relay.ClassPermanent, p.result(0).Failure.Class)
	require.Equal(t, relay.ClassHeld, p.result(1).Failure.Class)
	require.Equal(t, relay.ClassHeld, p.result(2).Failure.Class)
	require.Len(t, readAll(t, k.ListenAddrs()[0], "t")[0], 1)
}
