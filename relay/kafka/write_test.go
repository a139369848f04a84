package kafka

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	require.Zero(t, s.Health().Bytes)
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
		k.SleepControl(func() { time.Sleep(60 * time.Millisecond) }) //nolint:forbidigo // the broker's slowness
		return nil, nil, false
	})
	const patience = 100 * time.Millisecond
	s := open(t, parsed(t, properties(seed)), Options{Patience: patience})
	recs := make([]relay.Record, 20)
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
		time.Sleep(time.Duration(round) * time.Millisecond) //nolint:forbidigo // different moments, not a synchronisation
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
