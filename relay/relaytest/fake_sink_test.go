package relaytest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
)

// fakeCluster gives the conformance suite of sinks what a fake cluster has no notion of by itself:
// topics that do not exist, limits of size, and topics that fall silent.
type fakeCluster struct {
	kafka *FakeKafka
	made  atomic.Int64

	mu     sync.Mutex
	limits map[string]int // by topic
	silent map[string]bool
}

func (c *fakeCluster) topic(_ *testing.T, partitions int32, maxBytes int) string {
	name := fmt.Sprintf("topic-%d", c.made.Add(1))
	c.kafka.Create(name, partitions)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[name] = maxBytes
	return name
}

func (c *fakeCluster) check(r *relay.Record) *relay.Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, exists := c.limits[r.Topic]
	refused := func(code, format string, args ...any) *relay.Failure {
		return &relay.Failure{Class: relay.ClassPermanent, Code: code, Text: fmt.Sprintf(format, args...), Hint: "mend it"}
	}
	switch {
	case r.Topic == "" || len(r.Topic) > 249 || strings.Contains(r.Topic, " "):
		return refused("INVALID_TOPIC_EXCEPTION", "no name for a topic")
	case !exists:
		f := refused("UNKNOWN_TOPIC_OR_PARTITION", "topic %s does not exist", r.Topic)
		f.Grace = time.Minute
		return f
	case r.Partition != nil && (*r.Partition < 0 || *r.Partition >= 3):
		return refused("PARTITION_OUT_OF_RANGE", "partition %d does not exist", *r.Partition)
	case limit > 0 && len(r.Value) > limit:
		return refused("MESSAGE_TOO_LARGE", "topic %s: limit %d (max.message.bytes)", r.Topic, limit)
	}
	return nil
}

func (c *fakeCluster) silence(topic string, _ int32) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent[topic] {
		return 10 * time.Millisecond
	}
	return 0
}

func (c *fakeCluster) stall(_ *testing.T, topic string) (resume func()) {
	set := func(silent bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.silent[topic] = silent
	}
	set(true)
	return func() { set(false) }
}

func (c *fakeCluster) read(_ *testing.T, topic string) [][]SinkRecord {
	var out [][]SinkRecord
	for _, p := range c.kafka.Records(topic) {
		var held []SinkRecord
		for _, r := range p {
			held = append(held, SinkRecord{Offset: r.Receipt.Offset, Key: r.Record.Key, Value: r.Record.Value, Headers: r.Record.Headers})
		}
		out = append(out, held)
	}
	return out
}

// TestFakeSink_Conformance holds the fake to what every Sink promises.
func TestFakeSink_Conformance(t *testing.T) {
	t.Parallel()
	const patience = 200 * time.Millisecond
	c := &fakeCluster{kafka: NewFakeKafka(1), limits: map[string]int{}, silent: map[string]bool{}}
	RunSink(t, SinkHarness{
		Open: func(t *testing.T) relay.Sink {
			s := c.kafka.Sink(FakeSinkOptions{Patience: patience, Check: c.check, Silence: c.silence, Shuffle: true})
			t.Cleanup(s.Kill)
			return s
		},
		Topic: c.topic, Read: c.read, Stall: c.stall, Patience: patience,
	})
}
