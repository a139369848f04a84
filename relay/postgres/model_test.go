package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

// world is a database in miniature: transactions that draw ids, write, prepare, commit in two steps (first
// visible, then its locks are released) or roll back, while an engine reads. Between any two statements
// of a read anything may happen.
type world struct {
	t      *rapid.T
	claims bool
	rows   []*modelRow // by id - 1; ids that nobody has used are nil
	open   []*modelTx
	keys   map[string]*modelTx // who holds the key's row lock
	moment int64               // grows with every commit
	xid    uint32
	txs    int
	// statusIndex: a start finds the first new row by index, as on tables that are not ours.
	statusIndex bool
	quiet       bool // nothing happens any more, and nothing fails
}

type modelRow struct {
	id    int64
	key   string
	tx    *modelTx
	state relay.State
}

type modelTx struct {
	name    string
	xid     uint32 // 0 before the first write
	visible int64  // the moment of its commit, 0 before
	drawn   []int64
	gone    bool // rolled back
	keys    []string
}

var errFault = errors.New("the connection broke")

// trace is for the account of a failed run.
func (w *world) trace(format string, args ...any) { w.t.Logf("trace: "+format, args...) }

func (w *world) begin() {
	w.txs++
	w.open = append(w.open, &modelTx{name: fmt.Sprintf("%d/%d/7", w.txs%5, w.txs)})
}

// draw takes an id for a key whose row lock the transaction gets or has.
func (w *world) draw(tx *modelTx, key string) {
	if holder := w.keys[key]; tx.visible > 0 || holder != nil && holder != tx {
		return
	}
	w.keys[key] = tx
	tx.keys = append(tx.keys, key)
	w.rows = append(w.rows, nil)
	id := int64(len(w.rows))
	tx.drawn = append(tx.drawn, id)
	w.trace("%s draws %d for %s", tx.name, id, key)
	if rapid.IntRange(0, 5).Draw(w.t, "unused") == 0 {
		return
	}
	if tx.xid == 0 {
		w.xid++
		tx.xid = w.xid
	}
	w.rows[id-1] = &modelRow{id: id, key: key, tx: tx, state: relay.StateNew}
}

func (w *world) unlock(tx *modelTx) {
	for _, key := range tx.keys {
		if w.keys[key] == tx {
			delete(w.keys, key)
		}
	}
}

// step does one thing that services do.
func (w *world) step() {
	if len(w.open) == 0 {
		w.begin()
		return
	}
	tx := rapid.SampledFrom(w.open).Draw(w.t, "tx")
	switch rapid.IntRange(0, 10).Draw(w.t, "step") {
	case 0, 1:
		w.begin()
	case 2, 3, 4:
		w.draw(tx, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "key"))
	case 5, 6:
		w.commit(tx)
	case 7:
		w.release(tx)
	case 8:
		if tx.visible == 0 {
			tx.gone = true
			w.trace("%s rolls back %v", tx.name, tx.drawn)
			w.unlock(tx)
			w.end(tx)
		}
	case 9: // as fast as transactions of one statement are
		w.commit(tx)
		w.release(tx)
	case 10:
		if tx.visible == 0 && tx.xid > 0 {
			w.trace("%s prepares", tx.name)
			tx.name = fmt.Sprintf("-1/%d/0", tx.xid)
		}
	}
}

// commit makes the transaction visible; release takes it out of the locks, if it is.
func (w *world) commit(tx *modelTx) {
	if tx.visible == 0 {
		w.moment++
		tx.visible = w.moment
		w.trace("%s commits %v", tx.name, tx.drawn)
		w.unlock(tx)
	}
}

func (w *world) release(tx *modelTx) {
	if tx.visible > 0 {
		w.trace("%s releases its locks", tx.name)
		w.end(tx)
	}
}

func (w *world) end(tx *modelTx) {
	w.open = slices.DeleteFunc(w.open, func(x *modelTx) bool { return x == tx })
}

func (w *world) churn() {
	if w.quiet {
		return
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "churn") {
		w.step()
	}
}

// visible is a row as of now.
func (w *world) visible(id int64) *modelRow {
	r := w.rows[id-1]
	if r == nil || r.tx.gone || r.tx.visible == 0 {
		return nil
	}
	return r
}

func (w *world) record(r *modelRow) record {
	rec := record{id: r.id, state: r.state, key: &r.key, size: 10}
	rec.event = relay.Event{Row: rowID(r.id), ID: fmt.Sprint(r.id), Key: &r.key, State: r.state}
	if r.state == relay.StateNew || r.state == relay.StateFailed {
		rec.kind = kindDue
	}
	return rec
}

// scan is a statement: one snapshot over a range of ids.
func (w *world) scan(lo, hi int64, most int, want func(*modelRow) bool) (recs []record) {
	w.churn()
	for id := max(lo, 1); id <= min(hi, int64(len(w.rows))) && len(recs) < most; id++ {
		if r := w.visible(id); r != nil && (want == nil || want(r)) {
			recs = append(recs, w.record(r))
		}
	}
	return recs
}

func (w *world) limited(recs []record, limit int) []record {
	due := 0
	for i := range recs {
		if recs[i].kind == kindDue {
			if due++; due > limit {
				recs[i].kind = kindOver
			}
		}
	}
	return recs
}

func isNew(r *modelRow) bool { return r.state == relay.StateNew }

// inLanes says whether the row is of the lanes that a round names.
func inLanes(lanes []bool, r *modelRow) bool {
	return lanes == nil || lanes[relay.LaneOf(r.key, int32(len(lanes)))]
}

// others makes rows of other lanes nobody's.
func others(lanes []bool, recs []record) []record {
	for i := range recs {
		if !inLanes(lanes, &modelRow{key: *recs[i].key}) {
			recs[i].kind, recs[i].key = kindOther, nil
		}
	}
	return recs
}

// read implements rows.
func (w *world) read(_ context.Context, q round) (a answers, err error) {
	if !w.quiet && rapid.IntRange(0, 15).Draw(w.t, "fault") == 0 {
		return a, errFault
	}
	a.now = time.Unix(1, 0)
	if q.locksFirst {
		a.locksFirst = w.locks()
	}
	if q.due != nil {
		failed := func(r *modelRow) bool { return r.state == relay.StateFailed && inLanes(q.lanes, r) }
		a.due = w.limited(w.scan(1, int64(len(w.rows)), q.due.page, failed), q.limit)
		a.dueFull = len(a.due) == q.due.page
	}
	if p := q.replay; p != nil {
		looked := w.scan(p.from, p.to, p.window, nil)
		a.replayed = p.to
		if len(looked) == p.window {
			a.replayed = looked[len(looked)-1].id
		}
		a.replay = w.limited(w.scan(p.from, a.replayed, q.limit+1, func(r *modelRow) bool { return isNew(r) && slices.Contains(p.keys, r.key) }), q.limit)
		if len(a.replay) > q.limit {
			a.replayed = a.replay[q.limit].id
		}
		w.trace("replay %+v: %v to %d", *p, idsOf(a.replay), a.replayed)
	}
	if f := q.forward; f != nil {
		a.forward = w.limited(others(q.lanes, w.scan(f.after+1, int64(len(w.rows))+10, f.window, nil)), q.limit)
		a.forwardEnd = len(a.forward) < f.window
		w.trace("forward after %d: %v", f.after, idsOf(a.forward))
	}
	if len(q.lookup) > 0 {
		w.churn()
		for _, s := range q.lookup {
			for id := max(s.lo, 1); id <= min(s.hi, int64(len(w.rows))) && len(a.lookup) <= q.looks; id++ {
				if r := w.visible(id); r != nil && (isNew(r) || !inLanes(q.lanes, r)) {
					a.lookup = append(a.lookup, w.record(r))
				}
			}
		}
		a.lookCut = len(a.lookup) > q.looks
		a.lookup = w.limited(others(q.lanes, a.lookup), q.limit)
		w.trace("lookup %v: %v cut %v", q.lookup, idsOf(a.lookup), a.lookCut)
	}
	if b := q.below; b != nil {
		for _, r := range w.scan(1, b.upTo, b.limit, func(r *modelRow) bool {
			_, busy := slices.BinarySearch(b.busy, r.id)
			return isNew(r) && !busy && !slices.Contains(b.blocked, r.key) && inLanes(q.lanes, r)
		}) {
			a.below = append(a.below, r.id)
		}
		if b.last {
			a.passed = w.scan(1, b.upTo, len(w.rows), func(r *modelRow) bool { return isNew(r) && slices.Contains(b.blocked, r.key) })
		}
	}
	if q.locks {
		a.locks = w.locks()
	}
	return a, nil
}

// locks is pg_locks after a snapshot that is a little older.
func (w *world) locks() *lockView {
	w.churn()
	v := &lockView{snapshot: snapshot{xmax: uint64(w.xid) + 1}}
	for _, tx := range w.open {
		if tx.visible == 0 && tx.xid > 0 {
			v.snapshot.running = append(v.snapshot.running, uint64(tx.xid))
		}
	}
	w.churn()
	for _, tx := range w.open {
		if len(tx.drawn) == 0 {
			continue
		}
		h := holder{name: tx.name}
		if tx.xid > 0 {
			h.xids = []uint32{tx.xid}
		}
		v.holders = append(v.holders, h)
	}
	w.trace("locks %v running %v", v.holders, v.snapshot.running)
	return v
}

// lowestNew is keeper.lowestNew.
func (w *world) lowestNew(lanes []bool) (cursor int64, early []string) {
	for _, r := range w.scan(1, int64(len(w.rows)), len(w.rows), nil) {
		cursor = r.id
	}
	view := w.locks()
	for _, r := range w.scan(1, cursor, 1, func(r *modelRow) bool { return isNew(r) && inLanes(lanes, r) }) {
		cursor = r.id - 1
	}
	return cursor, view.names()
}

func (w *world) time() time.Time { return time.Unix(1, 0) }

// claim implements rows.
func (w *world) claim(_ context.Context, picks []record, limit int, _ int64) (got []record, err error) {
	w.churn()
	for _, p := range picks {
		r := w.visible(p.id)
		if r == nil || r.state != relay.StateNew && r.state != relay.StateFailed || len(got) == limit || !w.quiet && rapid.IntRange(0, 5).Draw(w.t, "locked") == 0 {
			continue
		}
		r.state = relay.StateSending
		rec := w.record(r)
		rec.event.State, rec.state = relay.StateSending, relay.StateNew
		got = append(got, rec)
	}
	return got, nil
}
