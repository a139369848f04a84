package relaytest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

var _ relay.Sink = (*FakeSink)(nil)

// FakeSinkOptions script what a FakeSink meets. Nil functions: nothing goes wrong. They are called from
// several goroutines.
type FakeSinkOptions struct {
	Patience time.Duration // how long Write waits; defaults to 1 s
	// Check is asked about each record before it is sent; a failure is reported at once.
	Check func(r *relay.Record) *relay.Failure
	// Latency is how long a partition takes to answer. Nil: no time at all.
	Latency func(topic string, partition int32) time.Duration
	// Silence says how long a partition will not answer, from now on. 0: it answers.
	Silence func(topic string, partition int32) time.Duration
	// Answer is asked when a record's turn comes. ClassRetriable and ClassPermanent refuse the record and
	// hold back those of its key behind it; other classes fail all that is left for the partition.
	Answer func(r *relay.Record, partition int32) *relay.Failure
	// Written says how many of n records that fail with the partition, or are dropped at the end, were
	// written all the same.
	Written func(n int) int
	// Shuffle lets the answers of a partition come in another order than its records.
	Shuffle bool
}

// FakeSink is a producer on a FakeKafka. It obeys every sentence of relay.Sink.
type FakeSink struct {
	k *FakeKafka
	o FakeSinkOptions

	turn chan struct{} // holds a token while a Write runs

	mu      sync.Mutex
	busy    map[place]*fakeFlight
	dropped int
	ended   chan struct{} // closed: nothing is written or reported any more
	changed chan struct{} // closed, and made anew, when a flight ends
	running sync.WaitGroup
}

type place struct {
	topic     string
	partition int32
}

type topicKey struct{ topic, key string }

// Sink makes a producer.
func (k *FakeKafka) Sink(o FakeSinkOptions) *FakeSink {
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	return &FakeSink{k: k, o: o, turn: make(chan struct{}, 1), busy: map[place]*fakeFlight{},
		ended: make(chan struct{}), changed: make(chan struct{})}
}

// fakeFlight is the share of one Write that goes to one partition.
type fakeFlight struct {
	s      *FakeSink
	to     place
	recs   []relay.Record
	index  []int
	report func(int, relay.Result)
	left   *sync.WaitGroup
}

// Write implements relay.Sink.
func (s *FakeSink) Write(ctx context.Context, recs []relay.Record, report func(int, relay.Result)) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.isEnded() {
		return
	}
	if ctx.Err() != nil {
		for i := range recs {
			report(i, relay.Result{Failure: &relay.Failure{Class: relay.ClassUnavailable, Code: "CANCELLED", Text: "the relay stopped"}})
		}
		return
	}
	var left sync.WaitGroup
	flights := map[place]*fakeFlight{}
	held := map[topicKey]bool{}
	owes := s.owing()
	for i := range recs {
		r := recs[i] // the caller's memory is its own again when Write returns
		failure := s.check(&r, held)
		if failure == nil {
			to := place{r.Topic, s.k.partition(&r)}
			if failure = busy(owes, to); failure == nil {
				if flights[to] == nil {
					flights[to] = &fakeFlight{s: s, to: to, report: report, left: &left}
				}
				flights[to].recs = append(flights[to].recs, r)
				flights[to].index = append(flights[to].index, i)
				continue
			}
		}
		if bars(failure) && r.Key != nil {
			held[topicKey{r.Topic, string(r.Key)}] = true
		}
		report(i, relay.Result{Failure: failure})
	}
	s.launch(flights)
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	t := time.NewTimer(s.o.Patience)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	case <-s.ended:
	}
}

// bars says whether a failure holds back later records of the key.
func bars(f *relay.Failure) bool {
	return f.Class == relay.ClassRetriable || f.Class == relay.ClassPermanent
}

func (s *FakeSink) check(r *relay.Record, held map[topicKey]bool) *relay.Failure {
	if r.Key != nil && held[topicKey{r.Topic, string(r.Key)}] {
		return heldBack(r.Topic)
	}
	if s.o.Check == nil {
		return nil
	}
	return s.o.Check(r)
}

func heldBack(topic string) *relay.Failure {
	return &relay.Failure{Class: relay.ClassHeld, Code: "HELD", Text: "topic " + topic + ": an earlier record of the key was refused"}
}

// owing lists the partitions that owe an answer. A Write asks once: were a partition to answer between
// two records of a key, the second would be written without the first.
func (s *FakeSink) owing() map[place]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owes := map[place]bool{}
	for to := range s.busy {
		owes[to] = true
	}
	return owes
}

func busy(owes map[place]bool, to place) *relay.Failure {
	if !owes[to] {
		return nil
	}
	return &relay.Failure{Class: relay.ClassUnavailable, Code: relay.CodePartitionBusy, Text: "topic " + to.topic + ": owes an answer"}
}

func (s *FakeSink) launch(flights map[place]*fakeFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for to, f := range flights {
		if s.isEnded() { // since Write began
			s.dropped += len(f.recs)
			continue
		}
		s.busy[to] = f
		f.left.Add(1)
		s.running.Add(1)
		go f.fly()
	}
}

func (s *FakeSink) isEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// fly waits for the partition to answer and then answers for its records.
func (f *fakeFlight) fly() {
	defer f.s.running.Done()
	defer f.left.Done()
	defer f.finish()
	if f.s.o.Latency != nil {
		f.wait(f.s.o.Latency(f.to.topic, f.to.partition))
	}
	for f.s.o.Silence != nil && !f.s.isEnded() {
		d := f.s.o.Silence(f.to.topic, f.to.partition)
		if d <= 0 {
			break
		}
		f.wait(d)
	}
	results := f.land()
	if f.s.o.Shuffle {
		rand.Shuffle(len(results), func(a, b int) { results[a], results[b] = results[b], results[a] })
	}
	for _, r := range results {
		f.report(r.index, r.Result)
	}
}

func (f *fakeFlight) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.s.ended:
	}
}

// finish frees the partition for the next Write.
func (f *fakeFlight) finish() {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	delete(f.s.busy, f.to)
	close(f.s.changed)
	f.s.changed = make(chan struct{})
}

type fakeResult struct {
	relay.Result
	index int
}

// land writes what the partition takes, all at once.
func (f *fakeFlight) land() []fakeResult {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEnded() {
		s.dropped += len(f.recs)
		f.writeSome(f.recs, nil)
		return nil
	}
	var out []fakeResult
	held := map[string]bool{}
	for i := range f.recs {
		r := &f.recs[i]
		failure := (*relay.Failure)(nil)
		switch {
		case r.Key != nil && held[string(r.Key)]:
			failure = heldBack(r.Topic)
		case s.o.Answer != nil:
			failure = s.o.Answer(r, f.to.partition)
		}
		switch {
		case failure == nil:
			receipt := s.k.append(f.to.topic, f.to.partition, *r)
			s.k.acked(receipt)
			out = append(out, fakeResult{relay.Result{Receipt: receipt}, f.index[i]})
			continue
		case bars(failure):
			held[string(r.Key)] = r.Key != nil
		case failure.Class != relay.ClassHeld:
			f.writeSome(f.recs[i:], held)
			for _, at := range f.index[i:] {
				out = append(out, fakeResult{relay.Result{Failure: failure}, at})
			}
			return out
		}
		out = append(out, fakeResult{relay.Result{Failure: failure}, f.index[i]})
	}
	return out
}

// writeSome writes records whose producer is not told; none behind a refused one of its key.
func (f *fakeFlight) writeSome(recs []relay.Record, held map[string]bool) {
	if f.s.o.Written == nil {
		return
	}
	for _, r := range recs[:min(len(recs), f.s.o.Written(len(recs)))] {
		if r.Key == nil || !held[string(r.Key)] {
			f.s.k.append(f.to.topic, f.to.partition, r)
		}
	}
}

// Close implements relay.Sink.
func (s *FakeSink) Close(ctx context.Context) error {
	var err error
	for {
		s.mu.Lock()
		left, changed := len(s.busy), s.changed
		s.mu.Unlock()
		if left == 0 {
			break
		}
		select {
		case <-changed:
			continue
		case <-s.ended:
		case <-ctx.Done():
			err = errors.New("records are not answered")
		}
		break
	}
	s.Kill()
	return err
}

// Kill ends the producer as the death of its process does: nothing is reported any more.
func (s *FakeSink) Kill() {
	s.mu.Lock()
	if !s.isEnded() {
		close(s.ended)
	}
	s.mu.Unlock()
	s.running.Wait()
}

// Dropped counts the records that had no answer when the producer ended.
func (s *FakeSink) Dropped() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}
