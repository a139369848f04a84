package kafka

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/relay"
)

// BenchmarkSink_Write measures records of 300 bytes in Writes of 2000 to 12 partitions.
func BenchmarkSink_Write(b *testing.B) {
	addr := realKafka(b)
	adm := kadm.NewClient(plainClient(b, addr))
	name := fmt.Sprintf("bench-sink-%d", b.N)
	_, _ = adm.DeleteTopics(context.Background(), name)
	_, err := adm.CreateTopics(context.Background(), 12, 1, nil, name)
	require.NoError(b, err)
	defer func() { _, _ = adm.DeleteTopics(context.Background(), name) }()

	s := open(b, parsed(b, properties(addr)), Options{})
	value := bytes.Repeat([]byte("x"), 170)
	recs := make([]relay.Record, 2000)
	for i := range recs {
		id := fmt.Appendf(nil, "%036d", i)
		recs[i] = relay.Record{Topic: name, Key: fmt.Appendf(nil, "order-%d", i), Value: value, Headers: []relay.Header{
			{Name: "event_id", Value: id}, {Name: "event_type", Value: []byte("OrderCreated")},
			{Name: "aggregate_type", Value: []byte("order")}}}
	}
	b.SetBytes(int64(len(recs) * (sizeOf(&recs[0]))))
	var failed, sent atomic.Int64
	report := func(_ int, r relay.Result) {
		if r.Failure != nil {
			failed.Add(1)
		} else {
			sent.Add(1)
		}
	}
	s.Write(context.Background(), recs, report)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		s.Write(context.Background(), recs, report)
	}
	b.StopTimer()
	require.Zero(b, failed.Load())
	b.ReportMetric(float64(len(recs)*b.N)/b.Elapsed().Seconds(), "records/s")
}
