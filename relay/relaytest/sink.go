package relaytest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// SinkHarness says how RunSink reaches one cluster. Its functions are called from parallel tests.
type SinkHarness struct {
	// Open makes a sink with the Patience below. The suite closes it.
	Open func(t *testing.T) relay.Sink
	// Topic makes a topic of the test's own that takes records of up to maxBytes; 0 for the cluster's
	// default.
	Topic func(t *testing.T, partitions int32, maxBytes int) string
	// Read returns all that the topic holds, by partition, in the order of offsets.
	Read func(t *testing.T, topic string) [][]SinkRecord
	// Stall lets the topic's partitions leave records without an answer until resume is called. Nil
	// when that cannot be had: the cases that need it are skipped.
	Stall func(t *testing.T, topic string) (resume func())
	// Patience is how long the sinks' Write waits for what does not answer.
	Patience time.Duration
}

// SinkRecord is a record as a consumer finds it.
type SinkRecord struct {
	Offset     int64
	Key, Value []byte
	Headers    []relay.Header
}

// RunSink checks that a sink keeps what relay.Sink promises.
func RunSink(t *testing.T, h SinkHarness) {
	for _, c := range sinkCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.stalls && h.Stall == nil {
				t.Skip("the harness cannot stall a topic")
			}
			c.run(&sinkBed{T: t, h: h, sink: h.Open(t)})
		})
	}
}

type sinkCase struct {
	name   string
	run    func(*sinkBed)
	stalls bool
}

// sinkBed is what one case works with.
type sinkBed struct {
	*testing.T
	h    SinkHarness
	sink relay.Sink
}

// sinkWrite is one Write and its reports. A second report for a record fails the test.
type sinkWrite struct {
	bed  *sinkBed
	recs []relay.Record

	mu      sync.Mutex
	results map[int]relay.Result
	changed chan struct{}
}

// start calls Write in this goroutine and returns with it.
func (b *sinkBed) start(ctx context.Context, recs ...relay.Record) *sinkWrite {
	b.Helper()
	w := &sinkWrite{bed: b, recs: recs, results: map[int]relay.Result{}, changed: make(chan struct{}, 1)}
	// The caller may let go of a record as soon as it is reported.
	given := append([]relay.Record(nil), recs...)
	b.sink.Write(ctx, given, func(i int, r relay.Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		given[i] = relay.Record{}
		if _, twice := w.results[i]; twice {
			b.Errorf("record %d is reported twice", i)
		}
		w.results[i] = r
		select {
		case w.changed <- struct{}{}:
		default:
		}
	})
	return w
}

// write calls Write and expects a report of every record by its return.
func (b *sinkBed) write(recs ...relay.Record) *sinkWrite {
	b.Helper()
	w := b.start(b.Context(), recs...)
	require.Equal(b, len(recs), w.reported(), "every record is reported when Write returns")
	return w
}

func (w *sinkWrite) reported() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.results)
}

// settle waits until every record is reported.
func (w *sinkWrite) settle() {
	w.bed.Helper()
	deadline := time.After(patience)
	for w.reported() < len(w.recs) {
		select {
		case <-w.changed:
		case <-deadline:
			require.FailNow(w.bed, "records are not reported", "%d of %d", w.reported(), len(w.recs))
		}
	}
}

func (w *sinkWrite) result(i int) relay.Result {
	w.bed.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r, found := w.results[i]
	require.True(w.bed, found, "record %d is not reported", i)
	return r
}

// receipts expects that all are acknowledged.
func (w *sinkWrite) receipts() []relay.Receipt {
	w.bed.Helper()
	receipts := make([]relay.Receipt, len(w.recs))
	for i := range w.recs {
		r := w.result(i)
		require.Nil(w.bed, r.Failure, "record %d: %v", i, r.Failure)
		receipts[i] = r.Receipt
	}
	return receipts
}

// failure expects that record i is refused.
func (w *sinkWrite) failure(i int) *relay.Failure {
	w.bed.Helper()
	r := w.result(i)
	require.NotNil(w.bed, r.Failure, "record %d is acknowledged", i)
	require.Zero(w.bed, r.Receipt)
	return r.Failure
}

// values returns what one partition holds, as text.
func (b *sinkBed) values(topic string, partition int32) []string {
	b.Helper()
	var values []string
	for _, r := range b.h.Read(b.T, topic)[partition] {
		values = append(values, string(r.Value))
	}
	return values
}

// keyed makes a record.
func keyed(topic, key, value string) relay.Record {
	return relay.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
}

// series makes n records of one key with the values prefix0, prefix1, …
func series(topic, key, prefix string, n int) []relay.Record {
	recs := make([]relay.Record, n)
	for i := range recs {
		recs[i] = keyed(topic, key, fmt.Sprintf("%s%d", prefix, i))
	}
	return recs
}
