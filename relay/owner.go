package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// owner is the relay's LaneKeeper: it knows which lanes are its own and sees to it that what is read, sent
// and marked of a lane happens while it is. Without lanes (other claim modes) everything is its own.
type owner struct {
	n     int32 // lanes; 0 with other claim modes
	flows int32 // with other claim modes keys are spread over these
	store LaneStore
	gate  *gate
	wake  func()
	hooks Hooks
	log   *slog.Logger
	most  int // doubts that may be loaded

	// reading holds a token while a Fetch is under way and until its rows are known to be busy, and while
	// the lanes change: no Fetch sees half of a change, and no change overlooks rows that were just read.
	reading chan struct{}
	stale   bool // the Store may read other lanes than mine; guarded by reading

	mu    sync.Mutex
	mine  map[int32]string // by lane, where its reading began; what is here, the Store reads
	turns int              // changes of mine
	since time.Time        // of the last
}

func newOwner(o Options, g *gate, wake func(), most int) *owner {
	store, _ := o.Store.(LaneStore)
	return &owner{
		n: o.LaneCount, flows: int32(len(o.Flows)), store: store, gate: g, wake: wake, hooks: o.Hooks, log: o.Logger, most: most,
		reading: make(chan struct{}, 1), mine: map[int32]string{}, since: time.Now(),
	}
}

// place gives an event its lane; without lanes, its flow, for which a cheaper hash will do.
func (w *owner) place(e *Event) {
	text := string(e.Row)
	if e.Key != nil {
		text = *e.Key
	}
	switch {
	case w.n > 1:
		e.lane = LaneOf(text, w.n)
	case w.n == 0 && w.flows > 1:
		e.lane = int32(HashEvent(text) % uint64(w.flows))
	}
}

// has says whether the event is this relay's to send and to judge.
func (w *owner) has(e *Event) bool {
	if w.n == 0 {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine := w.mine[e.lane]
	return mine
}

// lanes lists the lanes that are this relay's, in order.
func (w *owner) lanes() []int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]int32, 0, len(w.mine))
	for lane := range w.mine {
		out = append(out, lane)
	}
	slices.Sort(out)
	return out
}

// idle says that there is nothing to read: all lanes are other relays'.
func (w *owner) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0 && len(w.mine) == 0
}

// standing is how long lanes must have had no change before those that are not this relay's count as
// another's: a relay that died keeps its lanes for the session timeout.
const standing = 15 * time.Second

// waiting says that lanes may still come, so that having nothing to do means nothing.
func (w *owner) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int32(len(w.mine)) < w.n && time.Since(w.since) < standing
}

// Take implements LaneKeeper.
func (w *owner) Take(ctx context.Context, lanes []TakenLane) error {
	began := time.Now()
	numbers := make([]int32, len(lanes))
	for i := range lanes {
		numbers[i] = lanes[i].Lane
	}
	// What was in flight when these lanes were lost before must have come down.
	if err := w.gate.lanesIdle(ctx, numbers); err != nil {
		return fmt.Errorf("wait for answers of an earlier time: %w", err)
	}
	w.gate.forgetLanes(numbers)
	marked := 0
	for i := range lanes {
		n, err := w.markSent(ctx, lanes[i].Sent)
		if err != nil {
			return fmt.Errorf("mark what lane %d had sent: %w", lanes[i].Lane, err)
		}
		marked += n
	}
	if err := w.read(ctx, lanes); err != nil {
		return err
	}
	said := []any{"lanes", numbers}
	if marked > 0 {
		said = append(said, "marked", marked) // events that the owner before had sent and not marked
	}
	w.log.Info("lanes taken over", append(said, lasted(began)...)...)
	w.hooks.Reclaimed(marked)
	w.hooks.LanesOwned(len(w.lanes()))
	w.wake()
	return nil
}

// read adds lanes to those that are read, with the gates that their rows in doubt keep shut.
func (w *owner) read(ctx context.Context, lanes []TakenLane) error {
	select {
	case w.reading <- struct{}{}:
		defer func() { <-w.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// A lane that comes back after it was lost must be read anew: first the Store learns of the loss.
	if err := w.sync(ctx); err != nil {
		return err
	}
	own := w.own()
	added := map[int32]bool{}
	for _, l := range lanes {
		own = append(own, OwnLane{Lane: l.Lane, Low: l.Low})
		added[l.Lane] = true
	}
	w.stale = true // until all of this has come about
	if err := w.store.Own(ctx, own); err != nil {
		return fmt.Errorf("read the lanes: %w", err)
	}
	ds, err := readDoubts(ctx, w.store, w.most)
	if err != nil {
		return err
	}
	w.gate.load(slices.DeleteFunc(ds, func(d Doubt) bool { return !added[LaneOf(d.Key, w.n)] }))
	w.stale = false
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lanes {
		w.mine[l.Lane] = l.Low
	}
	w.turns, w.since = w.turns+1, time.Now()
	return nil
}

// own lists the lanes for the Store.
func (w *owner) own() []OwnLane {
	w.mu.Lock()
	defer w.mu.Unlock()
	var own []OwnLane
	for lane, low := range w.mine {
		own = append(own, OwnLane{Lane: lane, Low: low})
	}
	slices.SortFunc(own, func(a, b OwnLane) int { return int(a.Lane - b.Lane) })
	return own
}

// markSent marks rows that an earlier owner had sent and perhaps not marked, and counts them.
func (w *owner) markSent(ctx context.Context, sent []SentRow) (marked int, err error) {
	const most = 2000 // rows a statement
	for part := range slices.Chunk(sent, most) {
		by := make(map[RowID]*SentRow, len(part))
		rows := make([]RowID, len(part))
		for i := range part {
			rows[i], by[part[i].Row] = part[i].Row, &part[i]
		}
		left, err := w.store.Unsettled(ctx, rows)
		if err != nil {
			return marked, err
		}
		var outs []Outcome
		for _, u := range left {
			if s := by[u.Row]; s != nil && s.Event == HashEvent(u.EventID) {
				outs = append(outs, Outcome{Row: u.Row, EventID: u.EventID, From: u.State, State: StateSent, Receipt: s.Receipt})
			}
		}
		if len(outs) == 0 {
			continue
		}
		w.logRevived(outs)
		if _, err := w.store.Settle(ctx, outs); err != nil {
			return marked, err
		}
		marked += len(outs)
	}
	return marked, nil
}

// Low implements LaneKeeper. The Store's position is that of the lanes it reads, so it holds for a lane only
// if that was among them all the while.
func (w *owner) Low(lane int32) (low string, ok bool) {
	before, mine := w.turn(lane)
	if !mine {
		return "", false
	}
	low = w.store.Low()
	after, _ := w.turn(lane)
	return low, low != "" && before == after
}

func (w *owner) turn(lane int32) (turn int, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine = w.mine[lane]
	return w.turns, mine
}

// Give implements LaneKeeper.
func (w *owner) Give(ctx context.Context, lanes []int32) {
	began := time.Now()
	w.drop(lanes)
	if err := w.gate.lanesIdle(ctx, lanes); err != nil {
		w.log.Warn("lanes are given up with events in flight", "lanes", lanes, "took", time.Since(began).String())
		return
	}
	w.log.Info("lanes given up", append([]any{"lanes", lanes}, lasted(began)...)...)
}

// Lose implements LaneKeeper.
func (w *owner) Lose(lanes []int32) {
	if len(lanes) == 0 {
		return
	}
	w.log.Warn("lanes lost: another relay may have them", "lanes", lanes)
	w.hooks.Fenced(len(lanes))
	w.drop(lanes)
}

// drop ends the work on lanes: first nothing of them is sent any more, then a Fetch that is under way is waited
// for. The Store learns of it before the next.
func (w *owner) drop(lanes []int32) {
	w.mu.Lock()
	for _, lane := range lanes {
		delete(w.mine, lane)
	}
	w.turns, w.since = w.turns+1, time.Now()
	w.mu.Unlock()
	w.reading <- struct{}{} // a Fetch ends in the time that the Store gives it
	defer func() { <-w.reading }()
	w.stale = true
	w.gate.leave(lanes)
	w.hooks.LanesOwned(len(w.lanes()))
}

// sync lets the Store read what is this relay's. It is called with the token of reading.
func (w *owner) sync(ctx context.Context) error {
	if !w.stale {
		return nil
	}
	if err := w.store.Own(ctx, w.own()); err != nil {
		return fmt.Errorf("read the lanes: %w", err)
	}
	w.stale = false
	return nil
}
