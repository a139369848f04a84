package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// A flight is the share of one Write that goes to one partition. It is handed to the client library in
// rounds, and each round is exactly one batch, so that a broker takes or refuses a round as a whole and
// the next one starts only after the answer. That is what keeps the order of a key when a record is
// refused: the library fails a partition's buffered records together with a refused batch, but a record
// that reached it a moment later would start afresh and overtake them.
//
// A refused round is sent again in halves until the guilty record stands alone. Only that one bears the
// verdict, and later records of its key are held back.
//
// One goroutine works on a flight at a time: the Write that starts it, then the callback of a round's
// last answer, then the goroutine that this callback starts.
type flight struct {
	w      *write
	to     target
	topic  *topicInfo
	limit  int // bytes of a round
	size   int // records at the start
	bytes  int64
	client *client

	todo  []*sending // not answered, in order; the round stands at the front
	round int        // records handed over
	bad   int        // records at the front of todo that were refused together; 0 when none is suspected
	shut  bool       // the round's batch takes no more; guarded by the library's lock on the topic

	left  atomic.Int32 // records of the round that wait for their callback
	since atomic.Int64 // when the round was handed over, Unix nanoseconds
	ended atomic.Bool
}

// sending is one record on its way. It is its record's context: the way from the library's callback
// and partitioner back to it.
type sending struct {
	rec    kgo.Record
	flight *flight
	tx     *transaction
	index  int // in the caller's slice
	size   int // bytes, the batch's frame left out

	opens   bool // the first of its round: may open a batch
	refused bool // turned away by the partitioner: not sent
	lost    bool // turned away because the library does not know the partition yet
	err     error
}

var _ context.Context = (*sending)(nil)

// Deadline, Done, Err and Value are those of the background context: a record on its way cannot be
// called back.
func (*sending) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*sending) Done() <-chan struct{}       { return nil }
func (*sending) Err() error                  { return nil }
func (*sending) Value(any) any               { return nil }

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// kick sends what is buffered now. Flush is the library's way to end its waiting for more; its own
// waiting is not wanted, hence the context that has ended.
func kick(c *kgo.Client) { _ = c.Flush(ended) }

// launch hands the next round to the library. It is sent with the next kick. False when the sink has
// been dropped.
func (f *flight) launch() bool {
	s := f.w.s
	n := f.next()
	s.mu.Lock()
	if s.dropped.Load() {
		s.mu.Unlock()
		return false
	}
	s.calls.Add(n)
	s.mu.Unlock()

	f.round, f.shut = n, false
	f.left.Store(int32(n))
	f.since.Store(time.Now().UnixNano())
	round, c := f.todo[:n], f.client
	for i, x := range round {
		x.opens, x.refused, x.lost, x.err = i == 0, false, false, nil
		c.TryProduce(context.Background(), &x.rec, s.settle)
	}
	return true
}

// next says how many records the next round has: at least one, what fits a batch, and half of those
// that were refused together.
func (f *flight) next() int {
	most := len(f.todo)
	if f.bad > 0 {
		most = max(1, f.bad/2)
	}
	n, size := 0, batchOverhead
	for n < most && (n == 0 || size+f.todo[n].size+inBatch <= f.limit) {
		size += f.todo[n].size + inBatch
		n++
	}
	return n
}

// settled is the library's callback for one record.
func (s *Sink) settled(r *kgo.Record, err error) {
	defer s.calls.Done()
	x := r.Context.(*sending)
	f := x.flight
	if x.err = err; err == nil {
		f.w.report(x.index, relay.Result{Receipt: relay.Receipt{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}})
		// Nothing of an answered record is kept while others of its write wait.
		r.Key, r.Value, r.Headers = nil, nil, nil
	}
	if f.left.Add(-1) == 0 && !s.dropped.Load() {
		f.landed()
	}
}

// landed is called when a round is answered. It must not block the library's callbacks, so whatever is
// more than the end of the flight gets a goroutine.
func (f *flight) landed() {
	clean := f.round == len(f.todo)
	for _, x := range f.todo[:f.round] {
		clean = clean && x.err == nil
	}
	if clean {
		f.finish()
		return
	}
	f.w.s.calls.Add(1) // the callback that runs this is counted, so the count is not zero
	go func() {
		defer f.w.s.calls.Done()
		f.judge()
		if len(f.todo) == 0 {
			f.finish()
			return
		}
		if f.launch() {
			kick(f.client.Client)
		}
	}()
}

// judge takes the answered records of a round out of todo and reports those that are refused.
func (f *flight) judge() {
	answered := f.todo[:f.round]
	rest := make([]*sending, 0, len(f.todo))
	var first *sending // the first that was sent and not acknowledged
	failed := 0
	for _, x := range answered {
		if x.err == nil {
			continue
		}
		rest = append(rest, x)
		if !x.refused {
			failed++
			if first == nil {
				first = x
			}
		}
	}
	f.bad = max(0, f.bad-(len(answered)-len(rest)))
	f.todo = append(rest, f.todo[f.round:]...)
	switch {
	case first == nil && len(rest) > 0 && rest[0].lost:
		f.client.ForceMetadataRefresh()
		f.fail(errPartitionUnknown)
	case first == nil: // all acknowledged, or turned away because the batch had left
	case !placedBatch(first.err):
		f.fail(first.err)
	case failed > 1:
		f.bad = failed
	default:
		f.bad = 0
		f.refuse(first)
	}
}

// errPartitionUnknown: the topic was given partitions that the client library has not heard of yet.
var errPartitionUnknown = errors.New("the partition is new, and its leader is still being looked up")

func placedBatch(err error) bool {
	p, _ := place(err)
	return p.batch
}

// refuse reports the record that a broker refused alone, and holds back those of its key behind it.
func (f *flight) refuse(x *sending) {
	s := f.w.s
	failure := f.verdict(x)
	s.tell(f.w.report, x.index, relay.Result{Failure: failure})
	kept := f.todo[:0]
	for _, y := range f.todo {
		switch {
		case y == x:
		case x.rec.Key != nil && y.rec.Key != nil && bytes.Equal(x.rec.Key, y.rec.Key):
			s.tell(f.w.report, y.index, relay.Result{Failure: held(f.to.topic)})
		default:
			kept = append(kept, y)
		}
	}
	clear(f.todo[len(kept):])
	f.todo = kept
}

// verdict says why x was refused.
func (f *flight) verdict(x *sending) *relay.Failure {
	return f.w.s.verdict(f.topic, batchOverhead+x.size, x.err)
}

// verdict says why a record that stood alone in its batch was refused. A broker's answer about size names
// neither the size nor the limit, and may come from a limit that was lowered since it was looked up.
func (s *Sink) verdict(t *topicInfo, size int, err error) *relay.Failure {
	if !errors.Is(err, kerr.MessageTooLarge) {
		return s.failure(t.name, err)
	}
	limit := s.limit(s.topics.latest(t))
	if size <= limit.bytes {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Patience)
		defer cancel()
		if t := s.topics.load(ctx, []string{t.name})[0]; t.failure == nil {
			limit = s.limit(t)
		}
	}
	if size > limit.bytes {
		return tooLargeFor(t.name, size, limit)
	}
	failure := s.failure(t.name, err)
	failure.Text = fmt.Sprintf("topic %s: record is %d bytes, more than the broker takes", t.name, size)
	return failure
}

// fail reports all that is left of the flight with the same failure: the trouble is not one record's.
func (f *flight) fail(err error) {
	s := f.w.s
	failure := s.failure(f.to.topic, err)
	s.doubt(f, err, failure)
	for _, x := range f.todo {
		s.tell(f.w.report, x.index, relay.Result{Failure: failure})
	}
	f.todo = nil
}

// doubtTopic draws the consequences of an error for what is believed of a topic. It says whether the topic
// is gone, or another one: clients that wrote to it must not do so again.
func (s *Sink) doubtTopic(name string, err error) (lost bool) {
	s.topics.expire(name)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.UnknownTopicID) && !errors.Is(err, kerr.InconsistentTopicID) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspect[name] = true
	return true
}

// doubt draws the consequences of an error for what the sink believes.
func (s *Sink) doubt(f *flight, err error, failure *relay.Failure) {
	if s.doubtTopic(f.to.topic, err) {
		return
	}
	f.client.ForceMetadataRefresh()
	if failure.Class != relay.ClassRelay {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Patience)
	defer cancel()
	if _, _, err := f.client.ProducerID(ctx); err != nil && ctx.Err() == nil {
		s.renew(f.client, "the producer id was refused: "+err.Error())
	}
}

// finish opens the partition for the next Write.
func (f *flight) finish() {
	s := f.w.s
	s.mu.Lock()
	delete(s.busy, f.to)
	s.bytes -= f.bytes
	s.leave(f.client)
	if s.empty != nil && len(s.busy) == 0 {
		s.closeEmpty()
	}
	s.mu.Unlock()
	f.ended.Store(true)
	if f.w.unfinished.Add(-1) == 0 {
		close(f.w.done)
	}
}

// held is the failure of a record behind a refused one of its key.
func held(topic string) *relay.Failure {
	return &relay.Failure{Class: relay.ClassHeld, Code: CodeHeld, Text: "topic " + topic + ": an earlier record of the same key was refused"}
}
