package relay

import (
	"slices"
	"sync"
)

// gate keeps each key in order: while one event of a key is in doubt, later ones of that key wait and
// all other keys pass.
//
// The order hangs on one rule. Once anything of a key was refused or handed back, the key is shut, and
// it opens only when nothing of it is in doubt and nothing of it is busy (read and not settled). Up to
// then the reader leaves the key's rows alone, so everything that was read of it has come back by the
// time its rows are due again, and they come from the oldest on. Were a key opened while later rows of
// it were still under way between reader and sender, those would pass rows that had been handed back.
// Therefore busy rows, doubts and openings are kept under one lock.
type gate struct {
	mu       sync.Mutex
	skipDead bool // on_dead: skip
	busy     map[RowID]struct{}
	keys     map[string]*keyState // keys with a busy row, shut, or opened and not told to the Store
	shut     int                  // how many of keys are shut
	reopened []string             // keys that have opened since the last snapshot
	waits    []wait               // of events handed back because their destination does not answer
	unsure   map[RowID]struct{}   // rows in doubt of which only the table knows what they are
	blocked  []Blocked            // cache for snapshots, with resting; nil after a change
	resting  []RowID              // heads of blocked that must not come
	opened   func()               // called when a key reopened; must not call back
	flying   map[int32]int        // busy rows by lane (claim: lanes)
	lanes    int32                // 0 with other claim modes
	leaving  map[int32]bool       // lanes that are not this relay's any more, while rows of theirs are busy
	landed   chan struct{}        // closed when a lane has no busy row any more, then made anew
}

// keyState is what the gate knows of one key.
type keyState struct {
	busy     int // rows read and not settled or handed back
	shut     bool
	reopened bool    // named in gate.reopened: its rows from first on are due again
	first    RowID   // the oldest row that was in doubt or handed back while the key was shut
	back     uint64  // the first in the order of reading that was handed back meanwhile; 0 for none
	doubts   []doubt // in the order of reading; the first is the head, the only one that may be sent
}

func newGate(onDead string, lanes int32, opened func()) *gate {
	return &gate{
		skipDead: onDead == OnDeadSkip,
		keys:     map[string]*keyState{},
		busy:     map[RowID]struct{}{},
		unsure:   map[RowID]struct{}{},
		opened:   opened,
		lanes:    lanes,
		flying:   map[int32]int{},
		leaving:  map[int32]bool{},
		landed:   make(chan struct{}),
	}
}

// load shuts the keys of rows that were in doubt before this relay started, oldest first, so that a
// restart does not let their successors pass (case O01).
func (g *gate) load(ds []Doubt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range ds {
		kind := doubtFailed
		if d.State == StateDead {
			kind = doubtDead
		}
		g.put(d.Key, doubt{row: d.Row, kind: kind})
	}
}

// snapshot fills what a Fetch needs to know and takes the reopened keys with it. When the Fetch fails
// they go back by restore.
func (g *gate) snapshot(f *Fetch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.blocked == nil {
		g.list()
	}
	f.Blocked = g.blocked
	f.Busy = make([]RowID, 0, len(g.busy)+len(g.resting))
	for row := range g.busy {
		f.Busy = append(f.Busy, row)
	}
	for _, row := range g.resting {
		if _, busy := g.busy[row]; !busy {
			f.Busy = append(f.Busy, row)
		}
	}
	if f.HeadsOnly {
		return
	}
	for _, key := range g.reopened {
		k := g.keys[key]
		f.Reopened = append(f.Reopened, Blocked{Key: key, Head: k.first})
		k.reopened = false
		g.forget(key, k)
	}
	g.reopened = nil
}

// list fills the cache. A head that only waits in memory is NEW in the table and looks due there, so it
// is named as busy too.
func (g *gate) list() {
	g.blocked, g.resting = make([]Blocked, 0, g.shut), nil
	for key, k := range g.keys {
		if !k.shut {
			continue
		}
		g.blocked = append(g.blocked, Blocked{Key: key, Head: k.head()})
		if !k.headMayCome() {
			g.resting = append(g.resting, k.head())
		}
	}
}

// restore takes back what a Fetch that failed was told.
func (g *gate) restore(reopened []Blocked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range reopened {
		k := g.key(b.Key)
		if k.shut || k.reopened {
			k.first = olderOf(k.first, b.Head)
			continue
		}
		k.reopened, k.first = true, b.Head
		g.reopened = append(g.reopened, b.Key)
	}
}

// take marks rows as busy. An answer of the Store rests on a snapshot: where a key has shut and opened
// again meanwhile, its rows in the answer are ahead of those that were handed back, so it shuts again
// until they have come back too.
func (g *gate) take(evs []*Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range evs {
		g.busy[e.Row] = struct{}{}
		if g.lanes > 0 {
			g.flying[e.lane]++
		}
		if e.Key == nil {
			continue
		}
		k := g.key(*e.Key)
		k.busy++
		if k.reopened {
			k.reopened = false
			g.reopened = slices.DeleteFunc(g.reopened, func(key string) bool { return key == *e.Key })
			g.close(k, k.first)
		}
	}
}

// passes says whether the event may be sent now: its key is open, or it is the key's head itself.
func (g *gate) passes(e *Event) bool {
	if e.Key == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[*e.Key]
	return !k.shut || len(k.doubts) > 0 && k.doubts[0].row == e.Row && k.doubts[0].kind != doubtPending
}

// oldest says whether no earlier event of the key is in doubt or was handed back. Only then may a verdict on the event go
// into the table: were a later event FAILED or DEAD there while an earlier one is still NEW, a relay
// that starts anew would hold the earlier behind the later.
func (g *gate) oldest(e *Event) bool {
	if e.Key == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[*e.Key]
	place := e.read
	if i := k.find(e.Row); i >= 0 {
		place = k.doubts[i].read // a head keeps the place it had when it was first read
	}
	return (len(k.doubts) == 0 || k.doubts[0].read >= place) && (k.back == 0 || k.back >= place)
}

// hold shuts the key of an event that is about to be handed back.
func (g *gate) hold(e *Event) {
	if e.Key == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[*e.Key]
	g.close(k, e.Row)
	if k.back == 0 || e.read < k.back {
		k.back = e.read
	}
}

// handBack frees a row that was read and not sent: it comes again once its key opens.
func (g *gate) handBack(e *Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, e.Row)
	defer g.down(e.lane)
	if e.Key == nil {
		return
	}
	k := g.keys[*e.Key]
	k.busy--
	k.drop(func(d *doubt) bool {
		// A claimed row is NEW again, whatever it was before.
		return d.row == e.Row && (d.kind == doubtPending || e.Claim != "" && d.kind != doubtAway)
	})
	g.close(k, e.Row)
	g.open(*e.Key, k)
}

// settled frees a row whose outcome is in the table.
func (g *gate) settled(e *Event, s State) {
	if s == StateNew {
		g.handBack(e)
		return
	}
	g.release(e, func(k *keyState) {
		if s == StateSent || s == StateDead && g.skipDead {
			k.drop(func(d *doubt) bool { return d.row == e.Row })
		}
	})
}

// lost frees a row that was not as read when its outcome came. If it is in doubt it stays so until the
// table was asked: it may have been our own mark, of a try whose reply was lost.
func (g *gate) lost(e *Event, s State) {
	if s == StateNew || s == StateDead && g.skipDead {
		g.settled(e, s)
		return
	}
	g.release(e, func(k *keyState) {
		if i := k.find(e.Row); i >= 0 {
			k.doubts[i].kind = doubtFailed
			g.unsure[e.Row] = struct{}{}
		}
	})
}

func (g *gate) release(e *Event, change func(*keyState)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, e.Row)
	defer g.down(e.lane)
	if e.Key == nil {
		return
	}
	k := g.keys[*e.Key]
	k.busy--
	if k.shut {
		change(k)
		g.blocked = nil
	}
	g.open(*e.Key, k)
}

// key must be called with the lock held, as all below.
func (g *gate) key(key string) *keyState {
	k := g.keys[key]
	if k == nil {
		k = &keyState{}
		g.keys[key] = k
	}
	return k
}

func (g *gate) close(k *keyState, row RowID) {
	g.blocked = nil
	if k.shut {
		k.first = olderOf(k.first, row)
		return
	}
	k.shut, k.first = true, row
	g.shut++
}

// open opens a shut key once nothing of it is in doubt or busy.
func (g *gate) open(key string, k *keyState) {
	if k.shut && k.busy == 0 && len(k.doubts) == 0 {
		k.shut, k.reopened, k.back = false, true, 0
		g.shut--
		g.blocked = nil
		g.reopened = append(g.reopened, key)
		if g.opened != nil {
			g.opened()
		}
	}
	g.forget(key, k)
}

func (g *gate) forget(key string, k *keyState) {
	if k.busy == 0 && !k.shut && !k.reopened {
		delete(g.keys, key)
	}
}

// size is the number of shut keys.
func (g *gate) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// quiet says whether nothing is under way: no row is read and not settled, and no key is about to have
// its rows read again. What is FAILED or DEAD in the table does not count.
func (g *gate) quiet() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.busy)+len(g.reopened)+len(g.waits)+len(g.unsure) == 0
}
