package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// oneBatch is the library's partitioner. The partition was chosen by the sink; what this adds is that a
// round of a flight stays one batch: a record that would open a second one is turned away, and so is
// every later one of its round. The library asks under the lock that adds to batches, so nothing gets
// in between.
type oneBatch struct{}

// ForTopic makes the partitioner of one topic.
func (oneBatch) ForTopic(string) kgo.TopicPartitioner { return &topicBatches{} }

type topicBatches struct {
	opening bool // the record that is asked for next would open a batch
}

var _ kgo.TopicPartitionerOnNewBatch = (*topicBatches)(nil)

// RequiresConsistency is always true: a key's partition does not depend on which leaders are there.
func (*topicBatches) RequiresConsistency(*kgo.Record) bool { return true }

// OnNewBatch is called when the record last asked for does not fit the open batch of its partition;
// the same record is asked for once more.
func (b *topicBatches) OnNewBatch() { b.opening = true }

// Partition returns the record's partition, or -1 to turn it away.
func (b *topicBatches) Partition(r *kgo.Record, n int) int {
	x := r.Context.(*sending)
	opening := b.opening
	b.opening = false
	x.lost = int(r.Partition) >= n
	if x.lost || x.flight.shut || opening && !x.opens {
		x.flight.shut, x.refused = true, true
		return -1
	}
	return int(r.Partition)
}
