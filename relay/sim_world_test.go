package relay_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// world is one run of a scenario: a table, a cluster, services that write, relays, people, and the
// ledger of what was committed.
type world struct {
	scenario
	t     *testing.T
	start time.Time
	db    *relaytest.FakeDB
	kafka *relaytest.FakeKafka
	group *relaytest.FakeGroup
	over  bool // the faults are over; written while no relay runs or under mu

	locks map[string]chan struct{} // of keys whose writers wait for each other

	mu        sync.Mutex
	failures  int
	commits   int
	ledger    map[string]commit // by event id
	asked     map[string]int    // answers that a record of the event was asked for
	verdicts  map[string]int    // that the event was told
	wasDead   map[string]bool
	givenUp   map[string]bool // discarded by a person
	sent      map[string]bool // were seen SENT in the table
	deleted   map[string]bool // by a person
	excused   map[string]int  // doubles that a crash accounts for
	unsettled map[string]int  // settles of unknown outcome
	calls     int
}

// commit is what the ledger knows of an event that was committed.
type commit struct {
	key    string // "" for none
	topic  string
	seq    int  // the order of commits
	serial bool // the key's writers wait for each other, so the order of commits is the order to keep
	at     time.Time
}

func newWorld(t *testing.T, s scenario) *world {
	w := &world{
		scenario: s, t: t, start: time.Now(), db: relaytest.NewFakeDB(), kafka: relaytest.NewFakeKafka(s.partitions),
		locks: map[string]chan struct{}{}, ledger: map[string]commit{}, asked: map[string]int{}, verdicts: map[string]int{},
		wasDead: map[string]bool{}, givenUp: map[string]bool{}, sent: map[string]bool{}, deleted: map[string]bool{}, excused: map[string]int{}, unsettled: map[string]int{},
	}
	w.db.Skew = s.skew
	if s.lanes > 0 {
		w.group = relaytest.NewFakeGroup(w.kafka, s.lanes, s.session, 10*time.Second)
	}
	for i := range s.keys {
		w.locks[fmt.Sprintf("k%d", i)] = make(chan struct{}, 1)
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// write is one service: transactions that commit or roll back, some of them late.
func (w *world) write(writer int) {
	each := w.events / w.writers
	pause := w.span / time.Duration(max(1, each))
	for i := range each {
		r := w.draw("tx", writer, i)
		time.Sleep(time.Duration(r.Int64N(int64(2 * pause))))
		w.transaction(writer, i)
	}
}

func (w *world) transaction(writer, i int) {
	r := w.draw("write", writer, i)
	n := r.IntN(w.keys)
	key, serial := fmt.Sprintf("k%d", n), n%3 != 2
	if serial {
		w.locks[key] <- struct{}{}
		defer func() { <-w.locks[key] }()
	}
	tx := w.db.Begin()
	written := map[string]commit{}
	for j := range 1 + r.IntN(3) {
		id := fmt.Sprintf("e%d-%d-%d", writer, i, j)
		c := commit{key: key, serial: serial}
		if r.Float64() < w.keyless {
			c.key, c.serial = "", false
		}
		c.topic = w.insert(tx, id, c)
		written[id] = c
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(3 * time.Second))))
		}
	}
	if r.IntN(6) == 0 {
		tx.Rollback()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	tx.Commit()
	for id, c := range written {
		// The events of a transaction have an order too: that of their ids, which end in their number.
		c.seq, c.at = 10*w.commits+int(id[len(id)-1]-'0'), time.Now()
		w.ledger[id] = c
	}
	w.commits++
}

func (w *world) insert(tx *relaytest.FakeTx, id string, c commit) (topic string) {
	row := relaytest.NewRow{EventID: id, AggregateID: c.key, Topic: fmt.Sprintf("t%d", w.draw("topic", id).IntN(2)),
		Payload: fmt.Appendf(nil, `{"id":%q}`, id)}
	switch w.trouble(id) {
	case badTopic:
		row.Topic = "no such name!"
	case malformed:
		tx.InsertMalformed(row, fmt.Errorf("headers: invalid JSON at 14"))
		return row.Topic
	}
	tx.Insert(row)
	return row.Topic
}

// trouble is what is wrong with an event.
type trouble int

const (
	none trouble = iota
	refusedForGood
	refusedSometimes
	refusedLocally
	noTopicYet
	badTopic
	malformed
)

func (w *world) trouble(id string) trouble {
	r := w.draw("trouble", id)
	if r.Float64() >= w.badEvents {
		return none
	}
	return trouble(1 + r.IntN(6))
}

// check is the sink's own look at a record.
func (w *world) check(r *relay.Record) *relay.Failure {
	id := eventID(r)
	if r.Topic == w.deadTopic {
		return nil
	}
	switch w.trouble(id) {
	case refusedLocally:
		return w.verdict(id, &relay.Failure{Class: relay.ClassPermanent, Code: "MESSAGE_TOO_LARGE", Text: "too large"})
	case noTopicYet:
		if !w.isOver() && w.now() < w.span/2 {
			return w.verdict(id, &relay.Failure{Class: relay.ClassPermanent, Code: "UNKNOWN_TOPIC_OR_PARTITION", Text: "no topic", Grace: time.Minute})
		}
	}
	return nil
}

// answer is what a partition says to a record.
func (w *world) answer(slot int, r *relay.Record, partition int32) *relay.Failure {
	id := eventID(r)
	w.mu.Lock()
	w.asked[r.Topic+id]++
	n, calm := w.asked[r.Topic+id], w.over
	w.mu.Unlock()
	dice := w.draw("answer", r.Topic, id, n)
	if !calm {
		switch {
		case in(w.outages, slot, partition, w.now()) > 0:
			return &relay.Failure{Class: relay.ClassUnavailable, Code: "NOT_ENOUGH_REPLICAS", Text: "outage"}
		case in(w.relayFaults, slot, -1, w.now()) > 0:
			return &relay.Failure{Class: relay.ClassRelay, Code: "CLUSTER_AUTHORIZATION_FAILED", Text: "no rights"}
		case dice.Float64() < w.flaky:
			return &relay.Failure{Class: relay.ClassUnavailable, Code: "REQUEST_TIMED_OUT", Text: "who knows"}
		}
	}
	switch how := w.trouble(id); {
	case r.Topic == w.deadTopic && how == refusedForGood && w.draw("dead letter", id).IntN(3) == 0:
		return &relay.Failure{Class: relay.ClassPermanent, Code: "INVALID_RECORD", Text: "not even here"}
	case r.Topic == w.deadTopic:
	case how == refusedForGood:
		return w.verdict(id, &relay.Failure{Class: relay.ClassPermanent, Code: "INVALID_RECORD", Text: "poison"})
	case !calm && w.slowMarks > 0 && slot == 0 && dice.IntN(2) == 0,
		how == refusedSometimes && n <= w.draw("times", id).IntN(7):
		return w.verdict(id, &relay.Failure{Class: relay.ClassRetriable, Code: "INVALID_RECORD", Text: "not now"})
	}
	return nil
}

func (w *world) verdict(id string, f *relay.Failure) *relay.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts[id]++
	return f
}

func (w *world) silence(slot int, partition int32) time.Duration {
	if w.isOver() {
		return 0
	}
	return in(w.silences, slot, partition, w.now())
}

func (w *world) latency(topic string, partition int32) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	return time.Duration(w.draw("latency", topic, partition, w.calls).IntN(30)) * time.Millisecond
}

// outcome says for how long a commit's outcome is not known, and what it is.
func (w *world) outcome() (wait time.Duration, happened bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	r := w.draw("outcome", w.calls)
	if w.over || r.Float64() >= w.unknown {
		return time.Duration(r.IntN(20)) * time.Millisecond, true
	}
	return time.Duration(r.IntN(8000)) * time.Millisecond, r.IntN(2) == 0
}

func (w *world) written(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	return w.draw("written", w.calls).IntN(n + 1)
}

func eventID(r *relay.Record) string {
	for _, h := range r.Headers {
		if h.Name == "event_id" {
			return string(h.Value)
		}
	}
	return ""
}

// hooks listens to the relays.
type hooks struct{ w *world }

func (hooks) Sent(*relay.Event, relay.Receipt, time.Duration, time.Duration) {}
func (hooks) Lost(int)                                                       {}
func (hooks) LanesOwned(int)                                                 {}
func (hooks) Fenced(int)                                                     {}
func (hooks) Reclaimed(int)                                                  {}

func (h hooks) Failed(e *relay.Event, f *relay.Failure, next relay.State) {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	if strings.HasPrefix(f.Code, "ROW_") || f.Code == "INVALID_TOPIC_EXCEPTION" {
		h.w.verdicts[e.ID]++ // those the relay finds itself
	}
	if next == relay.StateDead {
		h.w.wasDead[e.ID] = true
	}
}
