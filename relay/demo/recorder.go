package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recorder reads every record of every topic from offset 0, as any reader with read_committed sees
// them, and keeps what the verdict needs.
type recorder struct {
	client *kgo.Client
	book   *book
	first  func() // called for each delivered event; cheap

	mu      sync.Mutex
	records []Record
	next    map[topicPartition]int64 // the offset after the last one read
	tally   *tally
	phantom int
	last    []Delivery // the newest last, at most lastDeliveries
}

type topicPartition struct {
	topic     string
	partition int32
}

// lastDeliveries is how many of the last events are kept for the view.
const lastDeliveries = 40

// Delivery is one delivered event for people.
type Delivery struct {
	Type, Key string
	Topic     string
	Partition int32
	Offset    int64
	Latency   time.Duration // from COMMIT to readable in Kafka; 0 for a repetition
}

// patience of clients with a broker that is gone: short, so that they are back soon after it is.
const (
	retryPause    = 250 * time.Millisecond
	metadataPause = 100 * time.Millisecond
)

// clientOptions are what every client of the demo shares.
func clientOptions(addr, id string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.ClientID("demo-" + id),
		kgo.RetryBackoffFn(func(int) time.Duration { return retryPause }),
		kgo.MetadataMinAge(metadataPause),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the ends of transactions: whoever has read them all stands at the end of the log
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
}

func newRecorder(addr string, b *book, first func()) (*recorder, error) {
	client, err := kgo.NewClient(append(clientOptions(addr, "recorder"),
		kgo.ConsumeRegex(), kgo.ConsumeTopics(`^[^_]`), kgo.ConsumeExcludeTopics(regexp.QuoteMeta(controlTopic)), // topics that begin with _ are Kafka's own
		kgo.MetadataMaxAge(10*time.Second), // finds a topic that nobody expected
	)...)
	if err != nil {
		return nil, fmt.Errorf("set up the recorder: %w", err)
	}
	return &recorder{client: client, book: b, first: first, next: map[topicPartition]int64{}, tally: newTally()}, nil
}

// run reads until ctx ends. Errors of a broker that is gone are waited out by the client.
func (r *recorder) run(ctx context.Context) {
	for {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		fetches.EachRecord(func(rec *kgo.Record) { r.note(rec, now) })
	}
}

func (r *recorder) note(rec *kgo.Record, now time.Time) {
	if rec.Attrs.IsControl() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.next[topicPartition{rec.Topic, rec.Partition}] = rec.Offset + 1
		return
	}
	var payload orderEvent
	_ = json.Unmarshal(rec.Value, &payload) // what is not ours has version 0 and is judged by its id
	out := Record{
		EventID: header(rec, "event_id"), Key: string(rec.Key), Version: payload.Version, Digest: digest(rec.Value),
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset,
	}
	latency, phantom := r.book.delivered(out.EventID, now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, out)
	r.next[topicPartition{rec.Topic, rec.Partition}] = rec.Offset + 1
	if phantom {
		r.phantom++
	} else if r.tally.add(&out) {
		r.first()
	}
	if len(r.last) == lastDeliveries {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, Delivery{
		Type: header(rec, "event_type"), Key: out.Key, Topic: out.Topic, Partition: out.Partition, Offset: out.Offset,
		Latency: latency,
	})
}

func header(rec *kgo.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// seen is the recorder's account so far.
type seen struct {
	delivered, doubled, outOfOrder, phantom int
	last                                    []Delivery
}

func (r *recorder) seen() seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return seen{
		delivered: len(r.tally.seen), doubled: r.tally.doubled, outOfOrder: r.tally.outOfOrder, phantom: r.phantom,
		last: append([]Delivery(nil), r.last...),
	}
}

// all returns every record read.
func (r *recorder) all() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Record(nil), r.records...)
}

// ends asks the broker where each partition of every topic ends for a reader with read_committed.
func (r *recorder) ends(ctx context.Context) (map[topicPartition]int64, error) {
	listed, err := kadm.NewClient(r.client).ListCommittedOffsets(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the ends of the topics: %w", err)
	}
	ends := map[topicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if !strings.HasPrefix(o.Topic, "_") && o.Topic != controlTopic {
			ends[topicPartition{o.Topic, o.Partition}] = o.Offset
		}
		if o.Err != nil {
			err = fmt.Errorf("ask for the end of %s/%d: %w", o.Topic, o.Partition, o.Err)
		}
	})
	return ends, err
}

// behind says whether a reader at next has records to read before ends.
func behind(next, ends map[topicPartition]int64) bool {
	for tp, end := range ends {
		if next[tp] < end {
			return true
		}
	}
	return false
}

// reached says whether everything up to ends was read.
func (r *recorder) reached(ends map[topicPartition]int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !behind(r.next, ends)
}

// ahead counts the records of the orders' topic that a reader at next has not read yet.
func (r *recorder) ahead(next map[topicPartition]int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for tp, end := range r.next {
		if tp.topic == topicName {
			n += int(max(end-next[tp], 0))
		}
	}
	return n
}
