package relaytest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// maxUnmarked is how many transactions of a FakeTransactions may be committed and not marked.
const maxUnmarked = 3

// FakeTransactions is a transactional producer on a FakeKafka: a Write's records come into their topics
// together with the note of them in the group, or not at all. What a read_committed reader sees is in the
// FakeKafka; aborted records are not.
type FakeTransactions struct {
	m *FakeMember
	o FakeSinkOptions
	// unknown says for how long the outcome of a commit is not known, which happened or did not.
	unknown func() (wait time.Duration, happened bool)

	turn chan struct{}
	room chan struct{} // a token for each transaction that may still be unmarked

	mu      sync.Mutex
	ended   chan struct{}
	running sync.WaitGroup

	silent map[place]fakeSilence // guarded by turn
}

// fakeSilence is that of a partition which did not answer in time: it is not asked before the time is over.
type fakeSilence struct {
	tries int
	until time.Time
}

var _ relay.Sink = (*FakeTransactions)(nil)

// Transactions makes a transactional producer for a member. unknown may be nil.
func (m *FakeMember) Transactions(o FakeSinkOptions, unknown func() (time.Duration, bool)) *FakeTransactions {
	if o.Patience <= 0 {
		o.Patience = time.Second
	}
	return &FakeTransactions{m: m, o: o, unknown: unknown, turn: make(chan struct{}, 1), room: make(chan struct{}, maxUnmarked),
		ended: make(chan struct{}), silent: map[place]fakeSilence{}}
}

// transaction is one attempt of a Write.
type transaction struct {
	s    *FakeTransactions
	recs []relay.Record
	at   []place
	left []int // of recs, those that were not reported
	tell func(int, relay.Result)
}

// Write implements relay.Sink. When ctx ends it does not wait for the transaction under way, which goes on.
func (s *FakeTransactions) Write(ctx context.Context, recs []relay.Record, report func(int, relay.Result)) {
	select {
	case s.turn <- struct{}{}:
	case <-s.ended:
		return
	}
	done := make(chan struct{})
	if !s.begin() {
		return
	}
	recs = append([]relay.Record(nil), recs...)
	go func() {
		defer s.running.Done()
		defer close(done)
		s.write(ctx, recs, report)
		<-s.turn
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// begin counts a Write, unless the producer has ended.
func (s *FakeTransactions) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEnded() {
		return false
	}
	s.running.Add(1)
	return true
}

func (s *FakeTransactions) write(ctx context.Context, recs []relay.Record, report func(int, relay.Result)) {
	t := &transaction{s: s, recs: recs, at: make([]place, len(recs)), tell: func(i int, r relay.Result) {
		if !s.isEnded() {
			report(i, r)
		}
	}}
	t.plan()
	for len(t.left) > 0 && !s.isEnded() {
		select {
		case s.room <- struct{}{}:
		case <-s.ended:
			return
		case <-ctx.Done():
			t.refuseAll(&relay.Failure{Class: relay.ClassUnavailable, Code: "CANCELLED", Text: "the relay stopped"})
			return
		}
		if !t.attempt() {
			<-s.room
		}
	}
}

// plan refuses what can be refused at once.
func (t *transaction) plan() {
	held := map[topicKey]bool{}
	for i := range t.recs {
		r := &t.recs[i]
		key := topicKey{r.Topic, string(r.Key)}
		var failure *relay.Failure
		switch {
		case r.Key != nil && held[key]:
			failure = heldBack(r.Topic)
		case t.s.o.Check != nil:
			failure = t.s.o.Check(r)
		}
		if failure == nil {
			t.at[i] = place{r.Topic, t.s.m.g.k.partition(r)}
			t.left = append(t.left, i)
			continue
		}
		if bars(failure) && r.Key != nil {
			held[key] = true
		}
		t.tell(i, relay.Result{Failure: failure})
	}
}

// owing lists the partitions that did not answer a moment ago.
func (s *FakeTransactions) owing() map[place]bool {
	owes := map[place]bool{}
	for at, silence := range s.silent {
		owes[at] = time.Now().Before(silence.until)
	}
	return owes
}

func (t *transaction) refuseAll(f *relay.Failure) {
	for _, i := range t.left {
		t.tell(i, relay.Result{Failure: f})
	}
	t.left = nil
}

// attempt sends what is left. It returns true when that was committed; else what could not be sent was
// reported and the rest is to be tried again, unless nothing is left.
func (t *transaction) attempt() (committed bool) {
	s := t.s
	before, owes := len(t.left), s.owing()
	t.drop(func(i int) *relay.Failure { return busy(owes, t.at[i]) })
	if len(t.left) < before {
		return false
	}
	var slowest time.Duration
	silent := map[place]bool{}
	for _, i := range t.left {
		if s.o.Silence != nil && s.o.Silence(t.at[i].topic, t.at[i].partition) > 0 {
			silent[t.at[i]] = true
		} else if s.o.Latency != nil {
			slowest = max(slowest, s.o.Latency(t.at[i].topic, t.at[i].partition))
		}
	}
	if len(silent) > 0 {
		s.wait(s.o.Patience)
		for at := range silent {
			tries := min(s.silent[at].tries+1, 3)
			s.silent[at] = fakeSilence{tries, time.Now().Add(time.Duration(tries) * time.Second)}
		}
		t.drop(func(i int) *relay.Failure {
			if silent[t.at[i]] {
				return &relay.Failure{Class: relay.ClassUnavailable, Code: "REQUEST_TIMED_OUT", Text: "no answer"}
			}
			return nil
		})
		return false
	}
	for _, i := range t.left {
		delete(s.silent, t.at[i])
	}
	s.wait(slowest)
	if t.refused() || s.isEnded() {
		return false
	}
	return t.commit()
}

// refused asks for each record's answer; any that is not well aborts.
func (t *transaction) refused() bool {
	if t.s.o.Answer == nil {
		return false
	}
	failures := map[int]*relay.Failure{}
	held := map[topicKey]bool{}
	for _, i := range t.left {
		r := &t.recs[i]
		key := topicKey{r.Topic, string(r.Key)}
		if r.Key != nil && held[key] {
			failures[i] = heldBack(r.Topic)
			continue
		}
		if f := t.s.o.Answer(r, t.at[i].partition); f != nil {
			failures[i] = f
			held[key] = r.Key != nil
		}
	}
	t.drop(func(i int) *relay.Failure { return failures[i] })
	return len(failures) > 0
}

// drop reports the records that a failure is found for.
func (t *transaction) drop(failure func(i int) *relay.Failure) {
	var left []int
	for _, i := range t.left {
		if f := failure(i); f != nil {
			t.tell(i, relay.Result{Failure: f})
		} else {
			left = append(left, i)
		}
	}
	t.left = left
}

// commit writes all that is left, if the group still knows the member as the owner of every lane.
func (t *transaction) commit() bool {
	s := t.s
	var late time.Duration
	happens := true
	if s.unknown != nil {
		late, happens = s.unknown()
	}
	results, ok := t.write(happens)
	s.wait(late)
	switch {
	case s.isEnded():
		return ok
	case !happens:
		return false // found not to have happened: tried again
	case !ok:
		t.refuseAll(&relay.Failure{Class: relay.ClassFenced, Code: "FENCED", Text: "the lane went to another relay"})
		return false
	}
	left := t.left
	t.left = nil
	for n, i := range left {
		t.tell(i, results[n])
	}
	return true
}

func (t *transaction) write(happens bool) (results []relay.Result, ok bool) {
	g, k := t.s.m.g, t.s.m.g.k
	g.mu.Lock()
	defer g.mu.Unlock()
	lanes := map[int32][]relay.SentRow{}
	for _, i := range t.left {
		if t.recs[i].Row != "" {
			lanes[t.recs[i].Lane] = nil
		}
	}
	if !happens || t.s.isEnded() || !t.s.m.holds(lanes) {
		return nil, false
	}
	for _, i := range t.left {
		r := t.recs[i]
		receipt := k.append(t.at[i].topic, t.at[i].partition, r)
		k.acked(receipt)
		results = append(results, relay.Result{Receipt: receipt})
		if r.Row != "" {
			lanes[r.Lane] = append(lanes[r.Lane], relay.SentRow{Row: r.Row, Event: r.Event, Receipt: receipt})
		}
	}
	notes := map[int32]*fakeProgress{}
	for lane, rows := range lanes {
		notes[lane] = &fakeProgress{rows}
		g.sent[lane] = append(g.sent[lane], notes[lane])
		t.s.m.keep(lane)
	}
	t.awaitMarks(results, notes)
	return results, true
}

// awaitMarks lets the results tell when their rows are marked; with the last the note is dropped. It is
// called with g.mu held.
func (t *transaction) awaitMarks(results []relay.Result, notes map[int32]*fakeProgress) {
	n := 0
	for _, note := range notes {
		n += len(note.rows)
	}
	if n == 0 {
		<-t.s.room
		return
	}
	var mu sync.Mutex
	marked := func() {
		mu.Lock()
		n--
		last := n == 0
		mu.Unlock()
		if last {
			<-t.s.room
			t.s.m.g.forget(notes)
		}
	}
	for k, i := range t.left {
		if t.recs[i].Row != "" {
			results[k].Marked = marked
		}
	}
}

// forget drops notes whose rows are marked.
func (g *FakeGroup) forget(notes map[int32]*fakeProgress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane, note := range notes {
		g.sent[lane] = slices.DeleteFunc(slices.Clone(g.sent[lane]), func(p *fakeProgress) bool { return p == note })
	}
}

func (s *FakeTransactions) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ended:
	}
}

func (s *FakeTransactions) isEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Close implements relay.Sink.
func (s *FakeTransactions) Close(context.Context) error {
	s.Kill()
	return nil
}

// Kill ends the producer as the death of its process does.
func (s *FakeTransactions) Kill() {
	s.mu.Lock()
	if !s.isEnded() {
		close(s.ended)
	}
	s.mu.Unlock()
	s.running.Wait()
}
