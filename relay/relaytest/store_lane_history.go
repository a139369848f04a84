package relaytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// laneHistoryRun is two relays that pass lanes between them while writers write.
type laneHistoryRun struct {
	*bed
	rnd     *rand.Rand
	relays  [2]*client
	owner   [suiteLanes]int // which of the relays, -1 for none
	low     [suiteLanes]string
	step    int
	first   map[string]string // by key, the last event that came for the first time
	seen    map[string]relay.Event
	sent    map[string]bool
	markAt  map[string]int // by event id, the step of its first mark
	reports []lowReport

	mu        sync.Mutex
	committed map[string]bool
	writing   bool
}

// lowReport is what Low said of some lanes, and which keys had closed gates then, or gates of whose opening the
// Store had not been told.
type lowReport struct {
	step  int
	low   int64
	lanes []int32
	waits map[string]bool
}

// laneHistory lets writers commit, roll back and commit late while two relays read, fail, hand back and
// settle, and while lanes move between them or lie idle. A lane moves as the relay moves it: what was in
// flight is settled, the other relay is told the position and loads the gates.
func laneHistory(b *bed) {
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	h := &laneHistoryRun{
		bed: b, rnd: rand.New(rand.NewPCG(seed, 99)), first: map[string]string{}, seen: map[string]relay.Event{},
		sent: map[string]bool{}, markAt: map[string]int{}, committed: map[string]bool{}, writing: true,
	}
	h.write(seed)
	for i := range h.relays {
		h.relays[i] = b.openLaneless(func(o *relay.StoreOptions) { o.Relay = fmt.Sprintf("relay-%d", i) })
	}
	for n := range h.owner {
		h.owner[n] = h.rnd.IntN(2)
	}
	h.tell(0)
	h.tell(1)
	for deadline := time.Now().Add(2 * patience); !h.done(); h.step++ {
		if time.Now().After(deadline) {
			h.missing()
		}
		i := h.rnd.IntN(2)
		h.read(i)
		h.act(i)
		h.noteLow(i)
		if h.rnd.IntN(6) == 0 {
			h.move(int32(h.rnd.IntN(suiteLanes)))
		}
	}
	for id := range h.seen {
		require.True(b, h.committed[id], "phantom %s", id)
	}
	for _, c := range h.relays {
		require.Empty(b, c.fetch())
	}
	h.checkLows()
}

// write starts the writers. Each key has one of them, so its events have an order: that of their ids.
func (h *laneHistoryRun) write(seed uint64) {
	writers, each := 3, 50
	if h.h.Traits.OneWriter {
		writers, each = 2, 20
	}
	var wg sync.WaitGroup
	h.Cleanup(wg.Wait) // tables may be used again
	for w := range writers {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for i := range each {
				tx := h.table.Begin(h.T)
				var rows []NewRow
				for j := range 1 + rnd.IntN(3) {
					rows = append(rows, event(fmt.Sprintf("w%d-%04d-%d", w, i, j), fmt.Sprintf("k%d-%d", w, rnd.IntN(6))))
				}
				tx.Insert(rows...)
				if rnd.IntN(5) == 0 {
					tx.Rollback()
					continue
				}
				tx.Commit()
				h.mu.Lock()
				for _, r := range rows {
					h.committed[r.EventID] = true
				}
				h.mu.Unlock()
			}
		})
	}
	go func() {
		wg.Wait()
		h.mu.Lock()
		h.writing = false
		h.mu.Unlock()
	}()
}

func (h *laneHistoryRun) done() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.writing && len(h.sent) == len(h.committed)
}

func (h *laneHistoryRun) missing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.committed {
		if _, came := h.seen[id]; !came {
			h.Errorf("event %s was committed and never came", id)
		}
	}
	require.Fail(h, "not everything came")
}

// tell calls Own for one relay.
func (h *laneHistoryRun) tell(i int) {
	h.Helper()
	var own []relay.OwnLane
	for n, o := range h.owner {
		if o == i {
			own = append(own, relay.OwnLane{Lane: int32(n), Low: h.low[n]})
		}
	}
	h.relays[i].own(own...)
}

func (h *laneHistoryRun) read(i int) {
	h.Helper()
	for _, e := range h.relays[i].fetchOnce(1+h.rnd.IntN(20), int64(1000+h.rnd.IntN(5000))).Events {
		require.Equal(h, i, h.owner[lane(*e.Key)], "event %s is of another relay's lane", e.ID)
		require.False(h, h.sent[e.ID], "an event that was sent came again")
		if _, again := h.seen[e.ID]; !again {
			require.Less(h, h.first[*e.Key], e.ID, "key %s: an event was overtaken", *e.Key)
			h.first[*e.Key] = e.ID
		}
		h.seen[e.ID] = e
	}
}

func (h *laneHistoryRun) act(i int) {
	h.Helper()
	h.relays[i].actAtRandom(h.rnd)
	h.noteMarks(i)
}

// noteMarks remembers what was settled since the last time.
func (h *laneHistoryRun) noteMarks(i int) {
	c := h.relays[i]
	for _, id := range c.marked {
		if _, again := h.markAt[id]; !again {
			h.markAt[id] = h.step
		}
		if !slices.ContainsFunc(c.blocked, func(b relay.Blocked) bool { return b.Head == h.seen[id].Row }) {
			h.sent[id] = true
		}
	}
	c.marked = nil
}

// noteLow remembers what the relay says of its lanes.
func (h *laneHistoryRun) noteLow(i int) {
	h.Helper()
	text := h.relays[i].Low()
	if text == "" {
		return
	}
	digits, _, _ := strings.Cut(text, ",")
	low, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(h, err)
	require.LessOrEqual(h, len(text), 500)
	r := lowReport{step: h.step, low: low, waits: map[string]bool{}}
	for _, b := range slices.Concat(h.relays[i].blocked, h.relays[i].reopened) {
		r.waits[b.Key] = true
	}
	for n, o := range h.owner {
		if o == i {
			r.lanes = append(r.lanes, int32(n))
			h.low[n] = text
		}
	}
	h.reports = append(h.reports, r)
}

// move gives a lane to the other relay, or to none for a while.
func (h *laneHistoryRun) move(n int32) {
	h.Helper()
	from := h.owner[n]
	to := h.rnd.IntN(2)
	if from == to {
		return
	}
	if from >= 0 {
		c := h.relays[from]
		h.noteLow(from)
		h.owner[n] = -1
		h.tell(from)
		for _, e := range sortedByID(values(c.busy)) {
			if lane(*e.Key) == n {
				c.sent(e.ID)
			}
		}
		mine := func(b relay.Blocked) bool { return lane(b.Key) == n }
		c.blocked = slices.DeleteFunc(slices.Clone(c.blocked), mine)
		c.reopened = slices.DeleteFunc(slices.Clone(c.reopened), mine)
		h.noteMarks(from)
		if h.rnd.IntN(3) == 0 {
			return // nobody has it for a while
		}
	}
	h.owner[n] = to
	h.tell(to)
	c := h.relays[to]
	ds, err := c.Doubts(h.ctx, 1000)
	require.NoError(h, err)
	for _, d := range ds {
		require.Equal(h, to, h.owner[lane(d.Key)])
		if lane(d.Key) == n && c.headOf(d.Key) == "" {
			c.blocked = append(c.blocked, relay.Blocked{Key: d.Key, Head: d.Row})
		}
	}
}

// checkLows holds that no row of a lane lay below a position that its owner named, unless it was marked by then or
// its key waited.
func (h *laneHistoryRun) checkLows() {
	h.Helper()
	if h.h.Traits.KeepsLow {
		require.NotEmpty(h, h.reports)
	}
	for id, e := range h.seen {
		row, err := strconv.ParseInt(string(e.Row), 10, 64)
		require.NoError(h, err)
		for _, r := range h.reports {
			if row < r.low && slices.Contains(r.lanes, lane(*e.Key)) && !r.waits[*e.Key] {
				require.LessOrEqual(h, h.markAt[id], r.step, "event %s in row %d was not settled when Low said %d", id, row, r.low)
			}
		}
	}
}
