package relaytest

import (
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// FakeKafka is a cluster in memory: topics that hold what was written to them. Its methods may be
// called from several goroutines.
type FakeKafka struct {
	partitions int32

	mu     sync.Mutex
	topics map[string][][]FakeRecord // by topic and partition
}

// FakeRecord is a record in a topic.
type FakeRecord struct {
	Record  relay.Record
	Receipt relay.Receipt
	At      time.Time
	Acked   bool // the producer was told
}

// NewFakeKafka makes a cluster whose topics come into being when they are first written to, with so
// many partitions each.
func NewFakeKafka(partitions int32) *FakeKafka {
	return &FakeKafka{partitions: partitions, topics: map[string][][]FakeRecord{}}
}

// Records returns a topic's records, by partition in the order of their offsets.
func (k *FakeKafka) Records(topic string) [][]FakeRecord {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([][]FakeRecord, len(k.topics[topic]))
	for i, p := range k.topics[topic] {
		out[i] = slices.Clone(p)
	}
	return out
}

// Topics lists the topics.
func (k *FakeKafka) Topics() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name := range k.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Header returns the value of a record's first header of that name.
func (r FakeRecord) Header(name string) string {
	for _, h := range r.Record.Headers {
		if h.Name == name {
			return string(h.Value)
		}
	}
	return ""
}

func (k *FakeKafka) append(topic string, partition int32, r relay.Record) relay.Receipt {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.topics[topic] == nil {
		k.topics[topic] = make([][]FakeRecord, k.partitions)
	}
	p := k.topics[topic][partition]
	at := relay.Receipt{Topic: topic, Partition: partition, Offset: int64(len(p))}
	k.topics[topic][partition] = append(p, FakeRecord{Record: r, Receipt: at, At: time.Now()})
	return at
}

func (k *FakeKafka) acked(r relay.Receipt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.topics[r.Topic][r.Partition][r.Offset].Acked = true
}

func (k *FakeKafka) partition(r *relay.Record) int32 {
	if r.Partition != nil {
		return *r.Partition
	}
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	if r.Key == nil {
		_, _ = h.Write(r.Value)
	}
	return int32(h.Sum32() % uint32(k.partitions))
}
