package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

var (
	_ relay.Sink = (*Transactions)(nil)
	_ lanes      = (*Group)(nil)
)

// lanes is what transactions need of the group.
type lanes interface {
	// with runs f with the membership under which all the lanes are this relay's and open. While one is
	// being opened, or the generation was refused, it waits (bounded). errNotOwner when one is not.
	with(ctx context.Context, lanes []int32, f func(m member) error) error
	owns(lane int32) bool
	// stale tells that the broker refused the membership: with waits for the next one then.
	stale(m member)
	// doubt tells of an error that may mean that the control topic is gone.
	doubt(err error)
	control() (topic string, id [16]byte)
	metadata(lane int32) string
	noted(lane int32, offset int64)   // a progress record was acknowledged
	dropped(lane int32, offset int64) // it was aborted
	marked(lane int32, offset int64)  // the table shows all that it lists
	from(lane int32) int64            // the lowest that was noted, and neither dropped nor marked

	// carry puts what a transaction sent, by lane, into the metadata of the lanes; it is open until kept. 0 when
	// they do not take it: it is to be noted in records.
	carry(rows map[int32]string) (number uint64)
	kept(lanes []int32, number uint64)    // the transaction was committed
	uncarry(lanes []int32, number uint64) // it was aborted, or all its rows are marked
	carryNoMore()                         // a broker did not take so much metadata
	// committedList says whether the lists of a transaction that nothing can become of any more were committed. It may
	// also say no when none of the lanes has been this relay's ever since: it is its owners' then.
	committedList(ctx context.Context, lanes []int32, number uint64) (there bool, err error)

	// readCommitted calls each for the records of the lane in [from, to), once the log is stable up to there.
	readCommitted(ctx context.Context, lane int32, from, to int64, each func(*kgo.Record)) error
	run() string
}

// Transactions is a relay.Sink for one flow that sends exactly once: a Write is one Kafka transaction, with
// its records, a progress record in each of their lanes, and the group's offsets for these lanes. A reader of
// committed records sees all of it, or nothing; so does a relay that takes the lanes over.
//
// Nothing is reported before its fate is known. When the answer to a commit is lost, nothing can become of the
// transaction any more once its id was taken over, and then the progress record tells: it is there or it is not.
// Until that is answered nothing is reported, and nothing else is sent.
//
// Transactional ids are this run's own. A client that failed inside a transaction is replaced under a new id.
type Transactions struct {
	base *Sink // plans, and answers what is asked beside; no record goes through it
	g    lanes
	flow int

	turn chan struct{} // holds one token while a Write runs
	stop chan struct{} // closed when Close begins
	life context.Context
	end  context.CancelFunc
	idle chan *slot // those whose last transaction is marked, the one that waited longest first

	fences chan struct{} // holds one token for each transaction that is being ended beside

	mu     sync.Mutex
	number int // of the next transactional id
	slots  []*slot
	silent map[target]silence
	now    *batch // the Write under way, or nil
	closed bool
}

// unmarked is how many transactions of a flow may be committed while the table does not show them yet. Two
// keep a single broker busy; the third is for markers that have far to go.
const unmarked = 3

// maxFences is how many transactions are ended beside what goes on, at a time.
const maxFences = 8

// lastTry is how long Close tries to end a transaction that it has to leave.
const lastTry = 500 * time.Millisecond

// NewTransactions makes a sink for one flow of the group's relay. It connects when it is first used. Errors
// are those of a Config that did not come from Parse. Flows of one relay need different numbers.
func NewTransactions(cfg Config, o Options, g *Group, flow int) (*Transactions, error) {
	return newTransactions(cfg, o, g, flow)
}

func newTransactions(cfg Config, o Options, g lanes, flow int) (*Transactions, error) {
	base, err := NewSink(cfg, o)
	if err != nil {
		return nil, err
	}
	t := &Transactions{
		base: base, g: g, flow: flow,
		turn: make(chan struct{}, 1), stop: make(chan struct{}), idle: make(chan *slot, unmarked),
		fences: make(chan struct{}, maxFences), silent: map[target]silence{},
	}
	t.life, t.end = context.WithCancel(context.Background())
	for n := range unmarked {
		s := &slot{t: t, number: n}
		t.slots = append(t.slots, s)
		t.idle <- s
	}
	return t, nil
}

// Ping is Sink.Ping.
func (t *Transactions) Ping(ctx context.Context) error { return t.base.Ping(ctx) }

// CheckTopics is Sink.CheckTopics.
func (t *Transactions) CheckTopics(ctx context.Context, names []string) []Finding {
	return t.base.CheckTopics(ctx, names)
}

// Write implements relay.Sink. Writes take turns: a second one waits for the first to end. It also waits while
// three of the flow's transactions are not marked. All is reported when it returns, unless ctx has ended: the
// transaction under way is brought to its end then, and reported. On a closed sink it returns without
// reporting anything.
func (t *Transactions) Write(ctx context.Context, recs []relay.Record, report func(i int, r relay.Result)) {
	b := &batch{planner: planner{s: t.base, recs: recs, owes: t.owes}, t: t, report: report, at: make([]spot, len(recs)), told: make([]bool, len(recs))}
	b.waiting.Store(int64(len(recs)))
	select {
	case <-t.stop:
		return
	default:
	}
	select {
	case t.turn <- struct{}{}:
	case <-t.stop:
		return
	case <-ctx.Done():
		b.rejectAll(cancelled())
		return
	}
	if !t.base.begin() {
		<-t.turn
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.base.calls.Done()
		t.under(b)
		b.run(ctx)
		t.under(nil)
		<-t.turn
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (t *Transactions) under(b *batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = b
}

func cancelled() *relay.Failure {
	return &relay.Failure{Class: relay.ClassUnavailable, Code: CodeCancelled, Text: "the relay stopped before the record was sent"}
}

// Close implements relay.Sink. It is not to be called from a report. The error counts the records that were
// dropped: they were not committed, or their relay's successor will read that they were. It may take half a
// second longer than ctx to end what was open.
func (t *Transactions) Close(ctx context.Context) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	close(t.stop)
	t.mu.Unlock()
	select {
	case t.turn <- struct{}{}: // for good
	case <-ctx.Done():
	}
	t.mu.Lock()
	under := t.now
	if under == nil {
		under = &batch{}
	}
	left := under.waiting.Load()
	slots := t.slots
	t.slots = nil
	t.mu.Unlock()
	t.end()
	var closing sync.WaitGroup
	for _, s := range slots {
		closing.Go(s.close)
	}
	closing.Wait()
	if id, open := under.open.Load().(string); open && left > 0 {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
		_ = t.takeOver(within, id) // readers of committed records need not wait for its time to run out
		cancel()
	}
	_ = t.base.Close(t.life) // waits for all that may report
	if left > 0 {
		return fmt.Errorf("close the Kafka client: up to %d records are not answered: %w", left, context.Cause(ctx))
	}
	return nil
}

// Health never blocks on the network. A Write that gets nowhere for longer than the sink's patience counts for
// the topics of its records.
func (t *Transactions) Health() Health {
	h := t.base.Health()
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(topic string) {
		if !slices.Contains(h.Topics, topic) && len(h.Topics) < 10 {
			h.Topics = append(h.Topics, topic)
		}
	}
	for to, s := range t.silent {
		if now.Sub(s.until) > silenceLasts {
			delete(t.silent, to)
			continue
		}
		h.Unanswered++
		h.Oldest = max(h.Oldest, now.Sub(s.since))
		add(to.topic)
	}
	if t.now != nil {
		h.Bytes = t.now.bytes.Load()
		moved := t.now.moved.Load()
		if stuck := now.Sub(time.Unix(0, moved)); moved > 0 && stuck > t.base.opts.Patience {
			h.Oldest = max(h.Oldest, stuck)
			for _, topic := range t.now.names {
				add(topic)
			}
		}
	}
	slices.Sort(h.Topics)
	return h
}

// silenceLasts is how long a silence counts after it should have been asked about: nothing goes there any more.
const silenceLasts = 10 * time.Second

// silence is that of a partition.
type silence struct {
	since time.Time
	until time.Time // it is not asked before
	tries int
}

// owes says whether a partition did not answer a moment ago.
func (t *Transactions) owes(to target) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, silent := t.silent[to]
	return silent && time.Now().Before(s.until)
}

// fellSilent notes that a partition did not answer in time: it is asked again after one, two, then three
// seconds.
func (t *Transactions) fellSilent(to target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, again := t.silent[to]
	if !again {
		s.since = time.Now().Add(-t.base.opts.Patience)
	}
	s.tries = min(s.tries+1, 3)
	s.until = time.Now().Add(time.Duration(s.tries) * time.Second)
	t.silent[to] = s
}

// spoke ends silences.
func (t *Transactions) spoke(to target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.silent, to)
}
