package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// write is one call of Write and what it left behind.
type write struct {
	planner
	report func(int, relay.Result)

	to      []*flight // by record; nil for those that were reported
	flights []*flight

	unfinished atomic.Int32
	done       chan struct{} // closed when every flight has ended
}

// rejectAll reports every record with the same failure.
func (w *write) rejectAll(f *relay.Failure) {
	for i := range w.recs {
		w.s.tell(w.report, i, relay.Result{Failure: f})
	}
}

// plan checks each record and puts it on the flight to its partition, or reports it.
func (w *write) plan(ctx context.Context) {
	s := w.s
	ctx, cancel := context.WithTimeout(ctx, s.opts.Patience) // bounds all that is looked up
	defer cancel()
	if left := s.unanswered(); left > s.cfg.BufferMemory {
		w.rejectAll(&relay.Failure{Class: relay.ClassUnavailable, Code: CodeBufferFull,
			Text: fmt.Sprintf("records that wait for an answer hold %d bytes, the limit is %d (buffer.memory)", left, s.cfg.BufferMemory),
			Hint: hintCluster})
		return
	}
	w.lookUp(ctx)
	w.to = make([]*flight, len(w.recs))
	for i := range w.recs {
		f, failure := w.assign(ctx, &w.recs[i])
		if failure != nil {
			w.refuse(i, failure)
			continue
		}
		w.to[i] = f
		f.size++
	}
	w.load()
}

func (s *Sink) unanswered() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// assign checks one record and finds its flight.
func (w *write) assign(ctx context.Context, r *relay.Record) (*flight, *relay.Failure) {
	p, partition, failure := w.place(ctx, r)
	if failure != nil {
		return nil, failure
	}
	f := p.flights[partition]
	if f == nil {
		f = &flight{w: w, to: target{r.Topic, partition}, topic: p.topic, limit: min(p.limit.bytes, maxBatch)}
		p.flights[partition] = f
		w.flights = append(w.flights, f)
	}
	return f, nil
}

// refuse reports a record and, if it was refused itself, holds back those of its key behind it.
func (w *write) refuse(i int, failure *relay.Failure) {
	w.hold(&w.recs[i], failure)
	w.s.tell(w.report, i, relay.Result{Failure: failure})
}

// load fills the flights. Records lie flight by flight in one allocation.
func (w *write) load() {
	total, headers := 0, 0
	for i, f := range w.to {
		if f != nil {
			total++
			headers += len(w.recs[i].Headers)
		}
	}
	sendings, todo := make([]sending, total), make([]*sending, total)
	kept := make([]kgo.RecordHeader, 0, headers)
	at := 0
	for _, f := range w.flights {
		f.todo = todo[at : at : at+f.size]
		at += f.size
	}
	at = 0
	now := time.Now()
	for i, f := range w.to {
		if f == nil {
			continue
		}
		r, x := &w.recs[i], &sendings[at]
		at++
		first := len(kept)
		for _, h := range r.Headers {
			kept = append(kept, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		x.flight, x.index, x.size = f, i, sizeOf(r)
		x.rec = kgo.Record{Key: r.Key, Value: r.Value, Headers: kept[first:len(kept):len(kept)],
			Timestamp: now, Topic: f.to.topic, Partition: f.to.partition, Context: x}
		f.bytes += int64(x.size)
		f.todo = append(f.todo, x)
	}
	w.to, w.recs = nil, nil
}

// launch starts the flights: all are buffered before anything is sent, so that a broker gets the shares
// of its partitions in one request.
func (w *write) launch() {
	if len(w.flights) == 0 {
		close(w.done)
		return
	}
	s := w.s
	w.unfinished.Store(int32(len(w.flights)))
	s.mu.Lock()
	if s.dropped.Load() {
		s.mu.Unlock()
		return
	}
	var c *client
	for _, f := range w.flights {
		c = s.use()
		f.client = c
		s.busy[f.to] = f
		s.bytes += f.bytes
	}
	s.mu.Unlock()
	for _, f := range w.flights {
		f.launch()
	}
	kick(c.Client)
}

// wait returns when all flights have ended, or those that have not have been silent for longer than the
// sink's patience, or ctx has ended, or after five times the patience.
func (w *write) wait(ctx context.Context) {
	patience := w.s.opts.Patience
	until := time.Now().Add(5 * patience)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := w.lastLaunch().Add(patience)
		if next.After(until) {
			next = until
		}
		rest := time.Until(next)
		if rest <= 0 {
			return
		}
		timer.Reset(rest)
	}
}

// lastLaunch is when the youngest round that is not answered was handed over.
func (w *write) lastLaunch() time.Time {
	var last int64
	for _, f := range w.flights {
		if !f.ended.Load() {
			last = max(last, f.since.Load())
		}
	}
	return time.Unix(0, last)
}
