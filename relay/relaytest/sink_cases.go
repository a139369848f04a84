package relaytest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func sinkCases() []sinkCase {
	return []sinkCase{
		{name: "a receipt names where the record is", run: sinkReceipts},
		{name: "nothing to write is nothing to report", run: sinkNothing},
		{name: "Promise_P3 records of a key keep their order", run: sinkOrder},
		{name: "Promise_P11 bytes, tombstones and absent keys arrive as they are", run: sinkBytes},
		{name: "headers keep order, repeats and empty values", run: sinkHeaders},
		{name: "Case_O05 an explicit partition wins, and one that does not exist is refused alone", run: sinkPartitions},
		{name: "a key always has the same partition", run: sinkSamePartition},
		{name: "records without a key are spread", run: sinkKeyless},
		{name: "Case_P01 an oversize record is refused alone", run: sinkOversize},
		{name: "Case_O03 what follows a refused record of its key is held", run: sinkHeld},
		{name: "a topic that does not exist is no concern of others", run: sinkMissingTopic},
		{name: "a topic name that Kafka does not allow is refused for good", run: sinkIllegalTopic},
		{name: "many records in writes from two goroutines", run: sinkMany},
		{name: "Write ends with its context and Close drops the rest", run: sinkCancelled, stalls: true},
		{name: "Close is final", run: sinkClosed},
		{name: "Case_C10 a topic that does not answer does not hold up others", run: sinkStalled, stalls: true},
		{name: "Case_P09 nothing is reported as sent that was not acknowledged", run: sinkUnacknowledged, stalls: true},
	}
}

func sinkReceipts(b *sinkBed) {
	topic := b.h.Topic(b.T, 3, 0)
	var recs []relay.Record
	for i := range 50 {
		recs = append(recs, keyed(topic, fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i)))
	}
	found := map[relay.Receipt]string{}
	for i, r := range b.write(recs...).receipts() {
		found[r] = fmt.Sprintf("v%d", i)
	}
	require.Len(b, found, 50)
	for partition, held := range b.h.Read(b.T, topic) {
		for _, r := range held {
			at := relay.Receipt{Topic: topic, Partition: int32(partition), Offset: r.Offset}
			require.Equal(b, string(r.Value), found[at])
			delete(found, at)
		}
	}
	require.Empty(b, found)
}

func sinkNothing(b *sinkBed) { b.write() }

func sinkOrder(b *sinkBed) {
	topic := b.h.Topic(b.T, 4, 0)
	const keys, rounds = 7, 40
	for round := range rounds {
		var recs []relay.Record
		for k := range keys {
			recs = append(recs, keyed(topic, fmt.Sprint(k), fmt.Sprint(2*round)), keyed(topic, fmt.Sprint(k), fmt.Sprint(2*round+1)))
		}
		b.write(recs...).receipts()
	}
	next := map[string]int{}
	for _, held := range b.h.Read(b.T, topic) {
		for _, r := range held {
			require.Equal(b, fmt.Sprint(next[string(r.Key)]), string(r.Value), "key %s", r.Key)
			next[string(r.Key)]++
		}
	}
	require.Len(b, next, keys)
	for key, n := range next {
		require.Equal(b, 2*rounds, n, "key %s", key)
	}
}

func sinkBytes(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	odd := []byte{0, 0xff, '"', 0x80, '\n'}
	b.write(
		relay.Record{Topic: topic, Key: odd, Value: odd},
		relay.Record{Topic: topic, Key: []byte("gone"), Value: nil},
		relay.Record{Topic: topic, Key: []byte("empty"), Value: []byte{}},
		relay.Record{Topic: topic, Key: []byte{}, Value: []byte("empty key")},
		relay.Record{Topic: topic, Key: nil, Value: []byte("no key")},
	).receipts()
	held := b.h.Read(b.T, topic)[0]
	require.Len(b, held, 5)
	require.Equal(b, odd, held[0].Key)
	require.Equal(b, odd, held[0].Value)
	require.Nil(b, held[1].Value, "a null value is a tombstone")
	require.NotNil(b, held[2].Value, "an empty value is none")
	require.Empty(b, held[2].Value)
	require.NotNil(b, held[3].Key, "an empty key is a key")
	require.Empty(b, held[3].Key)
	require.Nil(b, held[4].Key)
}

func sinkHeaders(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	headers := []relay.Header{
		{Name: "z", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "z", Value: []byte("3")},
		{Name: "", Value: []byte("no name")}, {Name: "empty", Value: []byte{}}, {Name: "grüße", Value: []byte{0, 0xff}},
	}
	b.write(relay.Record{Topic: topic, Value: []byte("v"), Headers: headers}, keyed(topic, "k", "bare")).receipts()
	held := b.h.Read(b.T, topic)[0]
	require.Equal(b, headers, held[0].Headers)
	require.Empty(b, held[1].Headers)
}

func sinkPartitions(b *sinkBed) {
	topic := b.h.Topic(b.T, 3, 0)
	at := func(n int32, value string) relay.Record {
		r := keyed(topic, "same", value)
		r.Partition = &n
		return r
	}
	for _, n := range []int32{2, 0, 1} {
		require.Equal(b, n, b.write(at(n, "x")).receipts()[0].Partition)
	}
	w := b.write(keyed(topic, "a", "before"), at(3, "beyond"), keyed(topic, "b", "after"))
	failure := w.failure(1)
	require.Equal(b, relay.ClassPermanent, failure.Class)
	require.Contains(b, failure.Error(), "partition 3")
	require.Nil(b, w.result(0).Failure)
	require.Nil(b, w.result(2).Failure)
	require.Equal(b, relay.ClassPermanent, b.write(at(-1, "below")).failure(0).Class)
}

func sinkSamePartition(b *sinkBed) {
	topic := b.h.Topic(b.T, 5, 0)
	first := b.write(series(topic, "order-71", "a", 3)...).receipts()
	for _, r := range append(first, b.write(series(topic, "order-71", "b", 3)...).receipts()...) {
		require.Equal(b, first[0].Partition, r.Partition)
	}
}

func sinkKeyless(b *sinkBed) {
	topic := b.h.Topic(b.T, 4, 0)
	seen := map[int32]bool{}
	for range 40 {
		for _, r := range b.write(relay.Record{Topic: topic, Value: []byte("v")}).receipts() {
			seen[r.Partition] = true
		}
	}
	require.Greater(b, len(seen), 1)
}

func sinkOversize(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 100_000)
	var recs []relay.Record
	for i := range 101 {
		recs = append(recs, keyed(topic, fmt.Sprintf("k%d", i), "small"))
	}
	recs[50] = relay.Record{Topic: topic, Key: []byte("k50"), Value: bytes.Repeat([]byte("x"), 150_000)}
	w := b.write(recs...)
	for i := range recs {
		if i != 50 {
			require.Nil(b, w.result(i).Failure, "record %d: %v", i, w.result(i).Failure)
		}
	}
	failure := w.failure(50)
	require.Equal(b, relay.ClassPermanent, failure.Class)
	require.Equal(b, "MESSAGE_TOO_LARGE", failure.Code)
	require.Contains(b, failure.Text, topic)
	require.Contains(b, failure.Text, "limit 100000 (max.message.bytes)")
	require.NotEmpty(b, failure.Hint)
	require.Len(b, b.values(topic, 0), 100)
}

func sinkHeld(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 2_000)
	w := b.write(
		keyed(topic, "K", "before"),
		keyed(topic, "K", strings.Repeat("x", 3_000)),
		keyed(topic, "L", "other"),
		keyed(topic, "K", "after"),
		keyed(topic, "K", "last"),
	)
	require.Nil(b, w.result(0).Failure)
	require.Equal(b, relay.ClassPermanent, w.failure(1).Class)
	require.Nil(b, w.result(2).Failure)
	require.Equal(b, relay.ClassHeld, w.failure(3).Class)
	require.Equal(b, relay.ClassHeld, w.failure(4).Class)
	b.write(keyed(topic, "K", "later")).receipts() // a gate outlives the write elsewhere, not here
	require.Equal(b, []string{"before", "other", "later"}, b.values(topic, 0))
}

func sinkMissingTopic(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	w := b.write(keyed(topic, "a", "1"), keyed(topic+"-missing", "a", "2"), keyed(topic, "a", "3"))
	require.Nil(b, w.result(0).Failure)
	require.Nil(b, w.result(2).Failure)
	failure := w.failure(1)
	require.Equal(b, relay.ClassPermanent, failure.Class)
	require.Equal(b, "UNKNOWN_TOPIC_OR_PARTITION", failure.Code)
	require.Positive(b, failure.Grace, "the topic may be on its way")
	require.Contains(b, failure.Text, topic+"-missing")
}

func sinkIllegalTopic(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	w := b.write(keyed("no spaces", "a", "1"), keyed("", "a", "2"), keyed(strings.Repeat("x", 250), "a", "3"), keyed(topic, "a", "4"))
	for i := range 3 {
		require.Equal(b, relay.ClassPermanent, w.failure(i).Class)
		require.Zero(b, w.failure(i).Grace)
	}
	require.Nil(b, w.result(3).Failure)
}

func sinkMany(b *sinkBed) {
	topic := b.h.Topic(b.T, 3, 0)
	const writers, writes, records = 2, 10, 500
	var group sync.WaitGroup
	for g := range writers {
		group.Go(func() {
			for n := range writes {
				var recs []relay.Record
				for i := range records {
					recs = append(recs, keyed(topic, fmt.Sprintf("%d-%d", g, i%13), fmt.Sprintf("%06d", n*records+i)))
				}
				w := b.start(b.Context(), recs...)
				w.settle()
				w.receipts()
			}
		})
	}
	group.Wait()
	last, count := map[string]string{}, 0
	for _, held := range b.h.Read(b.T, topic) {
		for _, r := range held {
			require.Less(b, last[string(r.Key)], string(r.Value), "key %s", r.Key)
			last[string(r.Key)] = string(r.Value)
			count++
		}
	}
	require.Equal(b, writers*writes*records, count)
}

func sinkClosed(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	b.write(keyed(topic, "a", "1")).receipts()
	require.NoError(b, b.sink.Close(b.Context()))
	require.NoError(b, b.sink.Close(b.Context()), "a second Close does nothing")
	require.Zero(b, b.start(b.Context(), keyed(topic, "a", "2")).reported(), "nothing is reported once Close has returned")
	require.Equal(b, []string{"1"}, b.values(topic, 0))
}

func sinkCancelled(b *sinkBed) {
	topic := b.h.Topic(b.T, 1, 0)
	b.write(keyed(topic, "a", "0")).receipts()
	resume := b.h.Stall(b.T, topic)
	defer resume()
	ctx, cancel := context.WithTimeout(b.Context(), b.h.Patience/4)
	defer cancel()
	w := b.start(ctx, series(topic, "a", "x", 3)...)
	require.Zero(b, w.reported(), "the fate of the records is not known")
	require.ErrorIs(b, ctx.Err(), context.DeadlineExceeded)

	late := b.start(ctx, keyed(topic, "b", "y"))
	require.Equal(b, relay.ClassUnavailable, late.failure(0).Class, "what was never handed over goes back")

	closing, stop := context.WithTimeout(b.Context(), b.h.Patience/4)
	defer stop()
	require.Error(b, b.sink.Close(closing), "records are dropped")
	require.Zero(b, w.reported())
}

func sinkStalled(b *sinkBed) {
	hole, open := b.h.Topic(b.T, 1, 0), b.h.Topic(b.T, 1, 0)
	b.write(keyed(hole, "a", "0"), keyed(open, "a", "0")).receipts()
	resume := b.h.Stall(b.T, hole)
	defer resume()

	started := time.Now()
	w := b.start(b.Context(), keyed(hole, "a", "1"), keyed(open, "a", "1"), keyed(hole, "a", "2"), keyed(open, "a", "2"))
	require.Less(b, time.Since(started), 4*b.h.Patience, "Write has patience, not more")
	require.Equal(b, 2, w.reported(), "the open topic is answered, the other is not guessed at")
	require.Nil(b, w.result(1).Failure)
	require.Nil(b, w.result(3).Failure)

	for i := range 5 {
		more := b.write(keyed(hole, "a", "not now"), keyed(open, "a", fmt.Sprint(3+i)))
		require.Equal(b, relay.ClassUnavailable, more.failure(0).Class)
		require.Equal(b, relay.CodePartitionBusy, more.failure(0).Code)
		require.Nil(b, more.result(1).Failure)
	}
	require.Equal(b, 2, w.reported())

	resume()
	w.settle()
	w.receipts()
	b.write(keyed(hole, "a", "3")).receipts()
	require.Equal(b, []string{"0", "1", "2", "3"}, b.values(hole, 0))
	require.Len(b, b.values(open, 0), 8)
}

func sinkUnacknowledged(b *sinkBed) {
	topic := b.h.Topic(b.T, 2, 0)
	resume := b.h.Stall(b.T, topic)
	defer resume()
	w := b.start(b.Context(), keyed(topic, "a", "1"), keyed(topic, "b", "2"), keyed(topic, "c", "3"))
	for i := range 3 {
		if r, found := w.results[i]; found {
			require.NotNil(b, r.Failure, "nothing was acknowledged")
		}
	}
	resume()
	w.settle()
}
