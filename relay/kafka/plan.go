package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/relay"
)

// planner checks the records of one Write against what is known of their topics, and finds their
// partitions.
type planner struct {
	s    *Sink
	recs []relay.Record
	// owes says whether a partition takes no records now, for an answer it owes. It is called with s.mu
	// held, once a Write for each partition.
	owes func(target) bool

	plans map[string]*plan
	last  *plan // of the record before: topics come in runs
	held  map[topicKey]bool
}

type topicKey struct{ topic, key string }

// plan is what a write knows of one topic.
type plan struct {
	topic   *topicInfo
	limit   topicLimit
	flights []*flight // by partition
	busy    []bool    // by partition: owes an answer to an earlier write
	keyless int       // the partition that takes records without a key now, -1 for none
	bytes   int       // what it has taken
	doubted bool      // was looked up again by this write
}

// Sizes of batches, in bytes.
const (
	maxBatch     = 1 << 20  // a partition's batch, whatever larger limit its topic has
	keylessBatch = 64 << 10 // after so much, records without a key go to another partition
)

// lookUp finds what is known of the records' topics, in one request for all that are not known.
func (a *planner) lookUp(ctx context.Context) {
	a.plans = make(map[string]*plan)
	var names []string
	for i := range a.recs {
		name := a.recs[i].Topic
		if _, seen := a.plans[name]; !seen {
			a.plans[name] = nil
			names = append(names, name)
		}
	}
	known := a.s.topics.get(ctx, names)
	a.s.renewFor(known)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for _, t := range known {
		a.plans[t.name] = a.newPlan(t)
	}
}

// newPlan is called with s.mu held.
func (a *planner) newPlan(t *topicInfo) *plan {
	s := a.s
	p := &plan{topic: t, limit: s.limit(t), keyless: -1,
		flights: make([]*flight, t.partitions), busy: make([]bool, t.partitions)}
	for i := range p.busy {
		p.busy[i] = a.owes(target{t.name, int32(i)})
	}
	if p.topic.failure == nil && s.suspect[t.name] {
		p.topic = &topicInfo{name: t.name, at: t.at, failure: &relay.Failure{Class: relay.ClassUnavailable,
			Code: kerr.UnknownTopicID.Message, Text: "topic " + t.name + ": it was deleted and created again, and is being looked up anew"}}
	}
	return p
}

// renewFor starts over with a new client when a topic that was lost is there again.
func (s *Sink) renewFor(known []*topicInfo) {
	s.mu.Lock()
	c, back := s.client, ""
	for _, t := range known {
		if t.failure == nil && s.suspect[t.name] {
			back = t.name
		}
	}
	s.mu.Unlock()
	if back != "" {
		s.renew(c, "topic "+back+" is there again")
	}
}

// place checks one record and finds its partition.
func (a *planner) place(ctx context.Context, r *relay.Record) (*plan, int32, *relay.Failure) {
	p := a.last
	if p == nil || p.topic.name != r.Topic {
		p = a.plans[r.Topic]
		a.last = p
	}
	if len(a.held) > 0 && r.Key != nil && a.held[topicKey{r.Topic, string(r.Key)}] {
		return nil, 0, held(r.Topic)
	}
	if p.topic.failure != nil {
		return nil, 0, p.topic.failure
	}
	if failure := a.checkSize(ctx, p, r); failure != nil {
		return nil, 0, failure
	}
	partition, failure := a.choose(ctx, p, r)
	return p, partition, failure
}

// hold holds back what follows a record of a key that was refused itself.
func (a *planner) hold(r *relay.Record, failure *relay.Failure) {
	if r.Key == nil || failure.Class != relay.ClassPermanent && failure.Class != relay.ClassRetriable {
		return
	}
	if a.held == nil {
		a.held = make(map[topicKey]bool)
	}
	a.held[topicKey{r.Topic, string(r.Key)}] = true
}

// checkSize compares the record with the topic's and the client's limit. A compressed record may be
// smaller than it looks: the broker decides on those that only the topic's limit speaks against.
func (a *planner) checkSize(ctx context.Context, p *plan, r *relay.Record) *relay.Failure {
	size := batchOverhead + sizeOf(r)
	if size <= p.limit.bytes {
		return nil
	}
	if a.recheck(ctx, p); size <= p.limit.bytes {
		return nil
	}
	own := a.s.cfg.MaxRequestSize
	if a.s.cfg.Compression != "none" && size <= maxRecord && (own == 0 || size <= own) {
		return nil
	}
	return tooLargeFor(r.Topic, size, p.limit)
}

// choose finds the partition: the one asked for, else the key's, else one for records without a key.
func (a *planner) choose(ctx context.Context, p *plan, r *relay.Record) (int32, *relay.Failure) {
	partitions := p.topic.partitions
	switch {
	case r.Key == nil && p.topic.compacted():
		return 0, &relay.Failure{Class: relay.ClassPermanent, Code: kerr.InvalidRecord.Message,
			Text: "topic " + r.Topic + ": the record has no key, and the topic is compacted (cleanup.policy)", Hint: "give the event a key, or route it to another topic"}
	case r.Partition != nil:
		n := *r.Partition
		if n >= partitions {
			a.recheck(ctx, p)
			partitions = p.topic.partitions
		}
		if n < 0 || n >= partitions {
			return 0, &relay.Failure{Class: relay.ClassPermanent, Code: CodePartitionOutOfRange,
				Text: fmt.Sprintf("topic %s: partition %d does not exist, the topic has %d (0 to %d)", r.Topic, n, partitions, partitions-1),
				Hint: "correct the route's partition, or add partitions; then postrider events retry"}
		}
		return n, a.closed(p, n)
	case r.Key != nil:
		n := partitionOf(r.Key, partitions)
		return n, a.closed(p, n)
	}
	return a.chooseKeyless(p, r)
}

func (*planner) closed(p *plan, partition int32) *relay.Failure {
	if !p.busy[partition] {
		return nil
	}
	return &relay.Failure{Class: relay.ClassUnavailable, Code: relay.CodePartitionBusy, Hint: hintCluster,
		Text: fmt.Sprintf("topic %s: partition %d still owes an answer for earlier records", p.topic.name, partition)}
}

// chooseKeyless stays with a partition for a batch's worth and then takes the next that owes nothing.
func (a *planner) chooseKeyless(p *plan, r *relay.Record) (int32, *relay.Failure) {
	size := sizeOf(r)
	if p.keyless >= 0 && p.bytes+size <= keylessBatch {
		p.bytes += size
		return int32(p.keyless), nil
	}
	partitions := int(p.topic.partitions)
	start := int(a.s.keyless.Add(1) % uint32(partitions))
	for i := range partitions {
		if n := (start + i) % partitions; !p.busy[n] {
			p.keyless, p.bytes = n, size
			return int32(n), nil
		}
	}
	return 0, a.closed(p, int32(start))
}

// recheck looks a topic up again before a record is refused for what is known of it, once a write.
func (a *planner) recheck(ctx context.Context, p *plan) {
	if p.doubted {
		return
	}
	p.doubted = true
	t := a.s.topics.again(ctx, p.topic)
	if t.failure != nil || t == p.topic {
		return
	}
	p.topic, p.limit = t, a.s.limit(t)
	for int32(len(p.flights)) < t.partitions {
		p.flights, p.busy = append(p.flights, nil), append(p.busy, false)
	}
	for _, f := range p.flights {
		if f != nil {
			f.limit = min(p.limit.bytes, maxBatch)
		}
	}
}
