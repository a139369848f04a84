package relay

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// gateModel drives a gate as reader, sender and settler do, over a table that is scanned by a cursor:
// what the cursor has passed comes again only when the gate says so. The model knows what each row has
// been through, and holds that no row is handed over before all earlier rows of its key are done.
type gateModel struct {
	g    *gate
	rows []*modelRow // by id - 1
	at   int         // the cursor: rows before it were looked at
	due  map[RowID]bool

	reading  *Fetch // a Fetch under way, with what it will answer
	answer   []Event
	back     func() // undoes the reading in the table when the Fetch fails
	batches  [][]Event
	late     []*Event
	settling []settling
	reads    uint64
	now      time.Time
}

type modelRow struct {
	id    RowID
	key   string
	state State
	held  bool // DEAD and not discarded
}

const modelTopic = "t"

func (m *gateModel) row(id RowID) *modelRow {
	n, _ := strconv.Atoi(string(id))
	return m.rows[n-1]
}

func (m *gateModel) write(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
	m.rows = append(m.rows, &modelRow{id: RowID(strconv.Itoa(len(m.rows) + 1)), key: key, state: StateNew})
}

// startRead takes the snapshots of gate and table.
func (m *gateModel) startRead(t *rapid.T) {
	if m.reading != nil {
		t.Skip("one Fetch at a time")
	}
	f := &Fetch{HeadsOnly: rapid.IntRange(0, 9).Draw(t, "heads only") == 0}
	m.g.expire(m.now)
	m.g.snapshot(f)
	wasAt, wasDue := m.at, map[RowID]bool{}
	for id := range m.due {
		wasDue[id] = true
	}
	m.reading, m.back = f, func() { m.at, m.due = wasAt, wasDue }
	limit := rapid.IntRange(1, 4).Draw(t, "limit")
	for _, b := range f.Reopened {
		head, _ := strconv.Atoi(string(b.Head))
		for i := head - 1; i < m.at; i++ {
			if m.rows[i].key == b.Key {
				m.due[m.rows[i].id] = true
			}
		}
	}
	blocked := map[string]RowID{}
	for _, b := range f.Blocked {
		_, twice := blocked[b.Key]
		require.False(t, twice, "a key is named once")
		blocked[b.Key] = b.Head
	}
	for i, r := range m.rows {
		if len(m.answer) == limit {
			break
		}
		head, shut := blocked[r.key]
		isHead := shut && head == r.id
		if i >= m.at {
			if f.HeadsOnly && !isHead {
				continue
			}
			m.at = i + 1
		} else if !m.due[r.id] && r.state != StateFailed {
			continue
		}
		if shut && !isHead || f.HeadsOnly && !isHead || slices.Contains(f.Busy, r.id) {
			continue // a blocked row is passed over
		}
		if r.state == StateNew || r.state == StateFailed {
			delete(m.due, r.id)
			key := r.key
			m.answer = append(m.answer, Event{Row: r.id, Key: &key, State: r.state})
		}
	}
}

func (m *gateModel) endRead(t *rapid.T) {
	if m.reading == nil {
		t.Skip("no Fetch under way")
	}
	f, evs := m.reading, m.answer
	m.reading, m.answer = nil, nil
	if rapid.IntRange(0, 5).Draw(t, "the Fetch fails") == 0 {
		m.back()
		m.g.restore(f.Reopened)
		return
	}
	for i := range evs {
		m.reads++
		evs[i].read = m.reads
	}
	m.g.take(pointers(evs))
	if len(evs) > 0 {
		m.batches = append(m.batches, evs)
	}
}

// send is what the sender does with one batch.
func (m *gateModel) send(t *rapid.T) {
	if len(m.batches) == 0 {
		t.Skip("no batch")
	}
	evs := m.batches[0]
	m.batches = m.batches[1:]
	refused := map[string]bool{}
	var failed []*Event
	for i := range evs {
		e := &evs[i]
		if !m.g.passes(e) {
			m.handBack(e)
			continue
		}
		m.mayBeSent(t, e, evs)
		how := rapid.IntRange(0, 9).Draw(t, "result")
		switch {
		case refused[*e.Key]:
			failed = append(failed, e)
		case how < 5:
			m.settle(e, StateSent)
		case how < 7:
			refused[*e.Key] = true // what is late holds the rest of its key in the partition
			m.g.pend(e)
			m.late = append(m.late, e)
		default:
			refused[*e.Key] = true
			failed = append(failed, e)
		}
	}
	for _, e := range failed {
		m.fail(t, e)
	}
}

// mayBeSent holds the order: all earlier rows of the key are done, or in the same Write before it.
func (m *gateModel) mayBeSent(t *rapid.T, e *Event, batch []Event) {
	for _, r := range m.rows {
		if r.id == e.Row {
			return
		}
		with := slices.ContainsFunc(batch, func(o Event) bool { return o.Row == r.id && o.read < e.read })
		acked := slices.ContainsFunc(m.settling, func(s settling) bool { return s.event.Row == r.id && s.out.State == StateSent })
		if r.key == *e.Key && !with && !acked && (r.state == StateNew || r.state == StateFailed || r.state == StateDead && r.held) {
			t.Fatalf("row %s of key %s is handed over, row %s is %s", e.Row, r.key, r.id, r.state)
		}
	}
}

func (m *gateModel) fail(t *rapid.T, e *Event) {
	switch how := rapid.IntRange(0, 4).Draw(t, "failure"); {
	case !m.g.oldest(e) || how == 4:
		m.handBack(e) // behind one in doubt, or held by the sink
	case how == 3:
		m.g.away(e, modelTopic, m.now.Add(awayFor))
		m.handBack(e)
	case how == 2:
		m.g.fail(e, true)
		m.settle(e, StateDead)
	default:
		m.g.fail(e, false)
		m.settle(e, StateFailed)
	}
}

func (m *gateModel) handBack(e *Event) {
	m.g.hold(e)
	m.g.handBack(e)
}

func (m *gateModel) settle(e *Event, s State) {
	m.settling = append(m.settling, settling{event: e, out: Outcome{Row: e.Row, State: s}})
}

func (m *gateModel) lateAnswer(t *rapid.T) {
	if len(m.late) == 0 {
		t.Skip("nothing is late")
	}
	i := rapid.IntRange(0, len(m.late)-1).Draw(t, "which")
	e := m.late[i]
	m.late = slices.Delete(m.late, i, i+1)
	if rapid.Bool().Draw(t, "acknowledged") {
		m.settle(e, StateSent)
	} else {
		m.fail(t, e)
	}
	m.g.answered(modelTopic)
}

// mark writes the oldest outcome; its reply may be lost, and then the row is not as read when the
// outcome is written again.
func (m *gateModel) mark(t *rapid.T) {
	if len(m.settling) == 0 {
		t.Skip("nothing to settle")
	}
	s := m.settling[0]
	m.settling = m.settling[1:]
	r := m.row(s.event.Row)
	r.state, r.held = s.out.State, s.out.State == StateDead && !m.g.skipDead
	if rapid.IntRange(0, 4).Draw(t, "the reply is lost") == 0 {
		m.g.lost(s.event, s.out.State)
	} else {
		m.g.settled(s.event, s.out.State)
	}
}

// act is a person who discards or retries a dead row.
func (m *gateModel) act(t *rapid.T) {
	for _, r := range m.rows {
		if r.state == StateDead && r.held {
			r.held = false
			if rapid.Bool().Draw(t, "retry") {
				r.state = StateFailed
			}
			return
		}
	}
	t.Skip("nothing is dead")
}

func (m *gateModel) ask(*rapid.T) {
	asked := m.g.held(1000)
	still := slices.DeleteFunc(slices.Clone(asked), func(id RowID) bool {
		r := m.row(id)
		return r.state != StateFailed && !(r.state == StateDead && r.held)
	})
	m.g.answer(asked, still)
}

func (m *gateModel) wait(*rapid.T) { m.now = m.now.Add(awayFor / 2) }

// check holds what must be true of the gate between any two steps.
func (m *gateModel) check(t *rapid.T) {
	shut := 0
	for key, k := range m.g.keys {
		busy := 0
		for row := range m.g.busy {
			if m.row(row).key == key {
				busy++
			}
		}
		require.Equal(t, busy, k.busy, "busy rows of key %s", key)
		require.Equal(t, k.reopened, slices.Contains(m.g.reopened, key))
		require.False(t, k.shut && k.reopened)
		require.True(t, k.shut || len(k.doubts) == 0, "an open key has no doubts")
		require.True(t, k.shut || k.busy > 0 || k.reopened, "key %s is kept for nothing", key)
		require.True(t, slices.IsSortedFunc(k.doubts, func(a, b doubt) int { return int(a.read) - int(b.read) }))
		if k.shut {
			shut++
		}
	}
	require.Equal(t, shut, m.g.shut)
}

// TestGate_Model runs random histories of reading, sending and settling against the gate.
func TestGate_Model(t *testing.T) {
	t.Parallel()
	for _, onDead := range []string{OnDeadHold, OnDeadSkip} {
		t.Run(onDead, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				m := &gateModel{g: newGate(onDead, 0, nil), due: map[RowID]bool{}, now: time.Unix(0, 0)}
				t.Repeat(map[string]func(*rapid.T){
					"write": m.write, "write more": m.write, "start read": m.startRead, "end read": m.endRead, "send": m.send,
					"late answer": m.lateAnswer, "mark": m.mark, "mark more": m.mark, "act": m.act, "ask": m.ask, "wait": m.wait, "": m.check,
				})
				m.finish(t)
			})
		})
	}
}

// finish lets everything succeed: all rows must be sent or given up, and the gate must be empty.
func (m *gateModel) finish(t *rapid.T) {
	for range 10 * (len(m.rows) + 10) {
		m.now = m.now.Add(awayFor)
		if m.reading == nil {
			m.startReadAll()
		}
		evs := m.answer
		m.reading, m.answer = nil, nil
		for i := range evs {
			m.reads++
			evs[i].read = m.reads
		}
		m.g.take(pointers(evs))
		m.batches = append(m.batches, evs)
		for _, batch := range m.batches {
			for i := range batch {
				if e := &batch[i]; m.g.passes(e) {
					m.mayBeSent(t, e, batch)
					m.settle(e, StateSent)
				} else {
					m.handBack(e)
				}
			}
		}
		m.batches = nil
		for _, e := range m.late {
			m.settle(e, StateSent)
		}
		m.late = nil
		for _, s := range m.settling {
			r := m.row(s.event.Row)
			r.state = s.out.State
			m.g.settled(s.event, s.out.State)
		}
		m.settling = nil
		for _, r := range m.rows {
			r.held = false
		}
		m.ask(t)
	}
	for _, r := range m.rows {
		require.True(t, r.state == StateSent || r.state == StateDead, "row %s of key %s is %s", r.id, r.key, r.state)
	}
	require.Empty(t, m.g.keys)
	require.True(t, m.g.quiet())
}

func (m *gateModel) startReadAll() {
	f := &Fetch{}
	m.g.expire(m.now)
	m.g.snapshot(f)
	m.reading = f
	for _, b := range f.Reopened {
		head, _ := strconv.Atoi(string(b.Head))
		for i := head - 1; i < m.at; i++ {
			if m.rows[i].key == b.Key {
				m.due[m.rows[i].id] = true
			}
		}
	}
	for i, r := range m.rows {
		seen := i < m.at && !m.due[r.id] && r.state != StateFailed
		m.at = max(m.at, i+1)
		j := slices.IndexFunc(f.Blocked, func(b Blocked) bool { return b.Key == r.key })
		if seen || slices.Contains(f.Busy, r.id) || j >= 0 && f.Blocked[j].Head != r.id {
			continue
		}
		if r.state == StateNew || r.state == StateFailed {
			delete(m.due, r.id)
			key := r.key
			m.answer = append(m.answer, Event{Row: r.id, Key: &key, State: r.state})
		}
	}
}

func pointers(evs []Event) []*Event {
	out := make([]*Event, len(evs))
	for i := range evs {
		out[i] = &evs[i]
	}
	return out
}

func keyed(row RowID, key string, read uint64) *Event { return &Event{Row: row, Key: &key, read: read} }

func taken(g *gate, evs ...*Event) {
	for _, e := range evs {
		g.take([]*Event{e})
	}
}

func reopened(g *gate) []Blocked {
	var f Fetch
	g.snapshot(&f)
	return f.Reopened
}

// TestGate_OpensWhenAllIsBack walks through the race that the gate's rule is made for.
func TestGate_OpensWhenAllIsBack(t *testing.T) {
	t.Parallel()
	wakes := 0
	g := newGate(OnDeadHold, 0, func() { wakes++ })
	one, two := keyed("1", "k", 1), keyed("2", "k", 2)
	taken(g, one, two)                // two is in the batch behind
	g.away(one, "t", time.Unix(3, 0)) // the partition of one is busy
	g.hold(one)
	g.handBack(one)
	g.answered("t") // the partition answers, nothing is in doubt any more
	require.Empty(t, reopened(g), "two is still under way")
	require.False(t, g.passes(two), "and must not pass one")
	g.hold(two)
	g.handBack(two)
	require.Equal(t, 1, wakes)
	require.Equal(t, []Blocked{{Key: "k", Head: "1"}}, reopened(g))
	require.Empty(t, g.keys)
}

// TestGate_AnswerOlderThanOpening: a Fetch that began before the key was shut must not bring its later
// rows past those that were handed back meanwhile.
func TestGate_AnswerOlderThanOpening(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	one, two := keyed("1", "k", 1), keyed("2", "k", 2)
	taken(g, one)
	require.Empty(t, reopened(g)) // the Fetch that will bring two takes its snapshot
	g.hold(one)
	g.handBack(one)
	taken(g, two)
	require.False(t, g.passes(two))
	require.Empty(t, reopened(g))
	g.hold(two)
	g.handBack(two)
	require.Equal(t, []Blocked{{Key: "k", Head: "1"}}, reopened(g))
}

// TestGate_LateRowBelowHead: a row that was committed late, and handed back because a later one is in
// doubt, must be looked for below that one.
func TestGate_LateRowBelowHead(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	nine, ten := keyed("9", "k", 2), keyed("10", "k", 1)
	taken(g, ten, nine)
	g.fail(ten, false)
	require.False(t, g.passes(nine))
	g.hold(nine)
	g.handBack(nine)
	g.settled(ten, StateSent)
	require.Equal(t, []Blocked{{Key: "k", Head: "9"}}, reopened(g))
}

// TestCase_O01_GateAfterRestart: rows that were in doubt before the start hold their keys.
func TestCase_O01_GateAfterRestart(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	g.load([]Doubt{{Row: "1", Key: "k", State: StateFailed}, {Row: "2", Key: "k", State: StateDead}, {Row: "3", Key: "l", State: StateDead}})
	require.Equal(t, 2, g.size())
	var f Fetch
	g.snapshot(&f)
	require.ElementsMatch(t, []Blocked{{Key: "k", Head: "1"}, {Key: "l", Head: "3"}}, f.Blocked)
	require.Empty(t, f.Busy)
	head, next := keyed("1", "k", 1), keyed("4", "k", 2)
	taken(g, head, next)
	require.True(t, g.passes(head))
	require.False(t, g.passes(next))
	g.settled(head, StateSent)
	g.hold(next)
	g.handBack(next)
	require.Empty(t, reopened(g), "row 2 is still dead")
	g.answer([]RowID{"2", "3"}, []RowID{"3"}) // a person discarded row 2
	require.Equal(t, []Blocked{{Key: "k", Head: "1"}}, reopened(g))
	require.Equal(t, 1, g.size())
}

// TestGate_RestingHeadIsBusy: the head of a key that waits in memory is NEW in the table and must not
// come again before its wait is over.
func TestGate_RestingHeadIsBusy(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	e := keyed("7", "k", 1)
	taken(g, e)
	g.away(e, "t", time.Unix(3, 0))
	g.hold(e)
	g.handBack(e)
	var f Fetch
	g.snapshot(&f)
	require.Equal(t, []RowID{"7"}, f.Busy)
	g.expire(time.Unix(2, 0))
	require.Empty(t, reopened(g))
	g.expire(time.Unix(3, 0))
	require.Equal(t, []Blocked{{Key: "k", Head: "7"}}, reopened(g))
}

// TestGate_FailedHeadWaits: a head that is FAILED in the table keeps its key shut when its wait is over,
// and comes when the table brings it.
func TestGate_FailedHeadWaits(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, func() { t.Error("the key opened") })
	g.load([]Doubt{{Row: "1", Key: "k", State: StateFailed}})
	head := keyed("1", "k", 1)
	head.State = StateFailed
	taken(g, head)
	g.away(head, "t", time.Unix(3, 0))
	g.hold(head)
	g.handBack(head)
	var f Fetch
	g.snapshot(&f)
	require.Equal(t, []RowID{"1"}, f.Busy)
	g.answered("t")
	f = Fetch{}
	g.snapshot(&f)
	require.Empty(t, f.Busy)
	require.Equal(t, []Blocked{{Key: "k", Head: "1"}}, f.Blocked)
	again := keyed("1", "k", 9)
	taken(g, again)
	require.True(t, g.passes(again))
	require.True(t, g.oldest(again), "its own having been handed back is no reason against a verdict")
}

// TestGate_LostMark: only the table knows what a row is whose mark may have been written by a try of
// which nothing was heard.
func TestGate_LostMark(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	e := keyed("1", "k", 1)
	taken(g, e)
	g.fail(e, false)
	g.lost(e, StateFailed)
	require.Equal(t, 1, g.size(), "it may be FAILED by our own mark")
	require.True(t, g.mustAsk())
	require.False(t, g.quiet())
	require.Equal(t, []RowID{"1"}, g.held(10))
	g.answer([]RowID{"1"}, []RowID{"1"})
	require.False(t, g.mustAsk())
	require.Equal(t, 1, g.size())
	g.answer([]RowID{"1"}, nil)
	require.Zero(t, g.size())
}

// TestGate_OnDead: a dead event holds its key or lets it go, and not before it is marked.
func TestGate_OnDead(t *testing.T) {
	t.Parallel()
	for onDead, opens := range map[string]int{OnDeadHold: 0, OnDeadSkip: 1} {
		g := newGate(onDead, 0, nil)
		e, next := keyed("1", "k", 1), keyed("2", "k", 2)
		taken(g, e, next)
		g.fail(e, true)
		require.False(t, g.passes(next), onDead)
		g.hold(next)
		g.handBack(next)
		require.Empty(t, reopened(g), "the row is not marked yet")
		g.settled(e, StateDead)
		require.Len(t, reopened(g), opens, onDead)
	}
}

// TestGate_VerdictBehind: what was handed back first is judged first.
func TestGate_VerdictBehind(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	one, two, three := keyed("1", "k", 1), keyed("2", "k", 2), keyed("3", "k", 3)
	taken(g, one, two, three)
	g.hold(two)
	g.handBack(two)
	require.True(t, g.oldest(one))
	require.False(t, g.oldest(three), "two is NEW and comes first")
	g.fail(one, false)
	require.True(t, g.oldest(one))
	require.False(t, g.oldest(three))
	require.True(t, g.oldest(&Event{Row: "4"}), "without a key nothing comes before")

	g = newGate(OnDeadHold, 0, nil)
	taken(g, one, two)
	g.pend(one)
	g.pend(two)
	g.away(one, "t", time.Unix(3, 0)) // the answer for one comes late: it was not written
	g.hold(one)
	g.handBack(one)
	g.answered("t")
	require.False(t, g.oldest(two), "one is NEW, though it is in doubt no more")
}

// TestGate_FailedFetch: what a Fetch was told must be told again when it fails.
func TestGate_FailedFetch(t *testing.T) {
	t.Parallel()
	g := newGate(OnDeadHold, 0, nil)
	e := keyed("1", "k", 1)
	taken(g, e)
	g.hold(e)
	g.handBack(e)
	first := reopened(g)
	require.Len(t, first, 1)
	require.Empty(t, reopened(g))
	g.restore(first)
	require.Equal(t, first, reopened(g))
	require.Empty(t, g.keys)
}

// TestOlderOf covers ids of every kind.
func TestOlderOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want RowID }{
		{"9", "10", "9"}, {"10", "9", "9"}, {"10", "10", "10"}, {"123", "99", "99"}, {"99", "123", "99"},
		{"b", "a", "b"}, {"10", "a", "10"}, {"-1", "5", "-1"}, {"", "5", ""},
	} {
		require.Equal(t, c.want, olderOf(c.a, c.b), fmt.Sprintf("%q %q", c.a, c.b))
	}
}
