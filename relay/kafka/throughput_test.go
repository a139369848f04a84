package kafka

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// BenchmarkSink_Write measures records of 300 bytes in Writes of three sizes to 12 partitions of a real
// broker.
func BenchmarkSink_Write(b *testing.B) {
	addr := realKafka(b)
	onSizes(b, addr, 1, func(b *testing.B) relay.Sink { return open(b, parsed(b, properties(addr)), Options{}) })
}

// BenchmarkTransactions_Write is the same in transactions, of 8 lanes.
func BenchmarkTransactions_Write(b *testing.B) {
	addr := realKafka(b)
	onSizes(b, addr, 2*unmarked, func(b *testing.B) relay.Sink { return openTx(b, addr, newLanes(b, addr, 8), Options{}) })
}

// onSizes measures Writes of three sizes, after some that connect and learn the topic.
func onSizes(b *testing.B, addr string, before int, open func(b *testing.B) relay.Sink) {
	for _, size := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			topic := newTopic(b, addr, 12, nil)
			benchmarkWrite(b, open(b), before, benchmarkRecords(topic, size))
		})
	}
}

func benchmarkRecords(topic string, size int) []relay.Record {
	value := bytes.Repeat([]byte("x"), 170)
	recs := make([]relay.Record, size)
	for i := range recs {
		recs[i] = relay.Record{Topic: topic, Key: fmt.Appendf(nil, "order-%d", i), Value: value, Headers: []relay.Header{
			{Name: "event_id", Value: fmt.Appendf(nil, "%036d", i)}, {Name: "event_type", Value: []byte("OrderCreated")},
			{Name: "aggregate_type", Value: []byte("order")}},
			Row: relay.RowID(fmt.Sprint(i)), Event: uint64(i), Lane: int32(i % 8)}
	}
	return recs
}

func benchmarkWrite(b *testing.B, s relay.Sink, before int, recs []relay.Record) {
	var failed atomic.Int64
	report := func(_ int, r relay.Result) {
		switch {
		case r.Failure != nil:
			failed.Add(1)
		case r.Marked != nil:
			r.Marked()
		}
	}
	for range before {
		s.Write(b.Context(), recs, report)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Write(b.Context(), recs, report)
	}
	require.Zero(b, failed.Load())
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds(), "records/s")
}
