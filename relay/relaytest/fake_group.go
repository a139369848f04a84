package relaytest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// FakeGroup shares lanes as a Kafka consumer group does: members that stop beating are expelled after the
// session timeout, lanes move only once their owner has given them up, and what a member commits counts only
// while the group knows it.
type FakeGroup struct {
	k       *FakeKafka
	lanes   int32
	session time.Duration // how long a silent member stays
	rebal   time.Duration // how long a member may take to give up a lane

	mu      sync.Mutex
	members []*FakeMember // in the order of joining
	owner   map[int32]*FakeMember
	low     map[int32]string
	sent    map[int32][]*fakeProgress // committed and perhaps not marked
	changed chan struct{}             // closed, and made anew, with every change
	moves   int
}

// fakeProgress is what one transaction notes of one lane.
type fakeProgress struct{ rows []relay.SentRow }

// NewFakeGroup makes a group over so many lanes.
func NewFakeGroup(k *FakeKafka, lanes int32, session, rebalance time.Duration) *FakeGroup {
	return &FakeGroup{k: k, lanes: lanes, session: session, rebal: rebalance, owner: map[int32]*FakeMember{}, low: map[int32]string{},
		sent: map[int32][]*fakeProgress{}, changed: make(chan struct{})}
}

// FakeMember is one relay's part in a FakeGroup.
type FakeMember struct {
	g *FakeGroup
	k relay.LaneKeeper // set by Run

	// guarded by g.mu
	joined   bool
	expelled bool      // and does not know it yet
	paused   time.Time // until then it does not beat
	dead     bool
	ready    map[int32]bool // lanes that were taken
	cut      context.CancelFunc
}

var _ relay.Lanes = (*FakeMember)(nil)

// Member makes a relay's part.
func (g *FakeGroup) Member() *FakeMember {
	return &FakeMember{g: g, ready: map[int32]bool{}}
}

func (g *FakeGroup) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// Moves counts how often a lane got another owner.
func (g *FakeGroup) Moves() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moves
}

// want says which lanes a member is to have: an even share, keeping what it has. g.mu is held.
func (g *FakeGroup) want(m *FakeMember) (mine []int32) {
	n := int32(len(g.members))
	at := int32(slices.Index(g.members, m))
	if at < 0 {
		return nil
	}
	for lane := range g.lanes {
		if lane%n == at {
			mine = append(mine, lane)
		}
	}
	return mine
}

// Kill ends a member as the death of its process does: it says nothing, and is expelled in time.
func (m *FakeMember) Kill() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if m.dead {
		return
	}
	m.dead = true
	if m.cut != nil {
		m.cut()
	}
	time.AfterFunc(m.g.session, m.expel)
}

// Pause stops a member's beating for so long.
func (m *FakeMember) Pause(d time.Duration) {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.paused = time.Now().Add(d)
	time.AfterFunc(m.g.session, func() {
		m.g.mu.Lock()
		still := time.Now().Before(m.paused)
		m.g.mu.Unlock()
		if still {
			m.expel()
		}
	})
}

func (m *FakeMember) expel() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if !m.joined {
		return
	}
	m.leave()
	m.expelled = true
	m.g.notify()
}

// leave takes a member out. g.mu is held.
func (m *FakeMember) leave() {
	m.joined = false
	m.g.members = slices.DeleteFunc(m.g.members, func(o *FakeMember) bool { return o == m })
	for lane, o := range m.g.owner {
		if o == m {
			delete(m.g.owner, lane)
		}
	}
}

// holds says whether the group knows the member as the owner of all the lanes, and the member has taken them:
// what it began before it lost a lane must not pass for what it does since it has it again. g.mu is held.
func (m *FakeMember) holds(lanes map[int32][]relay.SentRow) bool {
	for lane := range lanes {
		if m.g.owner[lane] != m || !m.ready[lane] {
			return false
		}
	}
	return m.joined
}

// Run implements relay.Lanes.
func (m *FakeMember) Run(ctx context.Context, k relay.LaneKeeper) error {
	alive, cut := context.WithCancel(ctx)
	defer cut()
	g := m.g
	g.mu.Lock()
	m.cut, m.k = cut, k
	if m.dead {
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()
	for alive.Err() == nil {
		m.step(alive, k)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.dead {
		return nil
	}
	if m.joined {
		m.noteLow()
		m.leave()
		g.notify()
	}
	return nil
}

// noteLow keeps the low end of what is this member's. g.mu is held.
func (m *FakeMember) noteLow() {
	for lane, o := range m.g.owner {
		if o == m && m.ready[lane] {
			m.keep(lane)
		}
	}
}

// keep notes the low end of a lane. g.mu is held.
func (m *FakeMember) keep(lane int32) {
	if low, ok := m.k.Low(lane); ok {
		m.g.low[lane] = low
	}
}

// step does what is next, or waits.
func (m *FakeMember) step(ctx context.Context, k relay.LaneKeeper) {
	g := m.g
	g.mu.Lock()
	changed := g.changed
	if rest := time.Until(m.paused); rest > 0 {
		g.mu.Unlock()
		wait(ctx, nil, rest)
		return
	}
	if m.expelled {
		m.expelled = false
		lost := m.readyLanes()
		clear(m.ready)
		g.mu.Unlock()
		k.Lose(lost)
		return
	}
	if !m.joined {
		m.joined = true
		g.members = append(g.members, m)
		g.notify()
		g.mu.Unlock()
		return
	}
	want := g.want(m)
	var give []int32
	for lane, o := range g.owner {
		if o == m && !slices.Contains(want, lane) {
			give = append(give, lane)
		}
	}
	if len(give) > 0 {
		slices.Sort(give)
		m.give(ctx, k, give)
		return
	}
	var take []relay.TakenLane
	for _, lane := range want {
		if o := g.owner[lane]; o == nil || o == m && !m.ready[lane] {
			g.owner[lane] = m
			take = append(take, g.left(lane))
		}
	}
	g.mu.Unlock()
	if len(take) == 0 {
		wait(ctx, changed, time.Second)
		return
	}
	m.take(ctx, k, take)
}

// left is what earlier owners left of a lane. g.mu is held.
func (g *FakeGroup) left(lane int32) relay.TakenLane {
	t := relay.TakenLane{Lane: lane, Low: g.low[lane]}
	for _, p := range g.sent[lane] {
		t.Sent = append(t.Sent, p.rows...)
	}
	return t
}

func (m *FakeMember) take(ctx context.Context, k relay.LaneKeeper, lanes []relay.TakenLane) {
	err := k.Take(ctx, lanes)
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range lanes {
		if err != nil || g.owner[t.Lane] != m {
			continue
		}
		m.ready[t.Lane] = true
		g.moves++
		delete(g.sent, t.Lane) // marked by the taking
	}
	if err != nil {
		g.mu.Unlock()
		wait(ctx, nil, 100*time.Millisecond)
		g.mu.Lock()
		return
	}
	var late []int32
	for _, t := range lanes {
		if g.owner[t.Lane] != m {
			late = append(late, t.Lane)
		}
	}
	if len(late) > 0 {
		g.mu.Unlock()
		k.Lose(late)
		g.mu.Lock()
	}
}

// give is called with g.mu held and gives it back.
func (m *FakeMember) give(ctx context.Context, k relay.LaneKeeper, lanes []int32) {
	g := m.g
	for _, lane := range lanes {
		m.keep(lane)
	}
	g.mu.Unlock()
	within, cancel := context.WithTimeout(ctx, g.rebal)
	k.Give(within, lanes)
	cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		delete(m.ready, lane)
	}
	if m.dead || ctx.Err() != nil {
		return
	}
	for _, lane := range lanes {
		if g.owner[lane] == m {
			delete(g.owner, lane)
		}
	}
	g.notify()
}

// readyLanes lists what was taken. g.mu is held.
func (m *FakeMember) readyLanes() (lanes []int32) {
	for lane := range m.ready {
		lanes = append(lanes, lane)
	}
	slices.Sort(lanes)
	return lanes
}

func wait(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}
