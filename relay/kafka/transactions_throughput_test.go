package kafka

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// BenchmarkTransactions_Write measures records of 300 bytes in Writes of three sizes to 12 partitions of a real
// broker, of 8 lanes.
func BenchmarkTransactions_Write(b *testing.B) {
	addr := realKafka(b)
	for _, size := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkTransactions(b, addr, size) })
	}
}

func benchmarkTransactions(b *testing.B, addr string, size int) {
	topic := newTopic(b, addr, 12, nil)
	s := openTx(b, addr, newLanes(b, addr, 8), Options{})
	value := bytes.Repeat([]byte("x"), 170)
	recs := make([]relay.Record, size)
	for i := range recs {
		recs[i] = relay.Record{Topic: topic, Key: fmt.Appendf(nil, "order-%d", i), Value: value, Headers: []relay.Header{
			{Name: "event_id", Value: fmt.Appendf(nil, "%036d", i)}, {Name: "event_type", Value: []byte("OrderCreated")},
			{Name: "aggregate_type", Value: []byte("order")}},
			Row: relay.RowID(fmt.Sprint(i)), Event: uint64(i), Lane: int32(i % 8)}
	}
	var failed atomic.Int64
	report := func(_ int, r relay.Result) {
		if r.Failure != nil {
			failed.Add(1)
		} else {
			r.Marked()
		}
	}
	for range 2 * unmarked {
		s.Write(b.Context(), recs, report) // connects, and learns the topic
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Write(b.Context(), recs, report)
	}
	require.Zero(b, failed.Load())
	b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "records/s")
}
