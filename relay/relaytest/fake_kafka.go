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

	mu      sync.Mutex
	topics  map[string][][]FakeRecord // by topic and partition
	keyless uint32                    // where records without a key go next
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

// Create makes a topic with another number of partitions.
func (k *FakeKafka) Create(topic string, partitions int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.topics[topic] = make([][]FakeRecord, partitions)
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

// partition chooses where a record goes.
func (k *FakeKafka) partition(r *relay.Record) int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.topics[r.Topic] == nil {
		k.topics[r.Topic] = make([][]FakeRecord, k.partitions)
	}
	n := uint32(len(k.topics[r.Topic]))
	switch {
	case r.Partition != nil:
		return *r.Partition
	case r.Key == nil:
		k.keyless++
		return int32(k.keyless % n)
	}
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	return int32(h.Sum32() % n)
}
