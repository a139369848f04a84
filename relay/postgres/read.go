package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/relay"
)

// reader asks the database what the engine wants to know.
type reader struct {
	db     *db
	layout *layout
	sql    *statements
	laned  *statements // for some lanes; nil with other claim modes
	own    *pids
	types  *pgtype.Map
	memory *memory // nil where the table keeps states itself
	clock  *clock

	reclaim, seldom pace
	// swell is how much larger JSON came out of the server than it is stored, as far as seen: values that
	// are stored compressed are weighed by it.
	swell float64
	// weighing counts the reads that still sum up what rows weigh, because a large one was met.
	weighing int
}

// weighReads is how many reads sum up what rows weigh after a large row was met.
const weighReads = 100

// pace keeps a read that no index serves well to a share of the time.
type pace struct {
	every time.Duration
	next  time.Time
}

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// ran notes a run; the pause is at least twenty times what it took.
func (p *pace) ran(now time.Time, took time.Duration) { p.next = now.Add(max(p.every, 20*took)) }

func newReader(d *db, l *layout, own *pids, c *clock) *reader {
	r := &reader{db: d, layout: l, sql: newStatements(l, false), own: own, types: pgtype.NewMap(), clock: c, swell: 1}
	if l.claim == relay.ClaimLanes {
		r.laned = newStatements(l, true)
	}
	r.reclaim.every = 250 * time.Millisecond
	if !l.own && !l.statusIndex {
		r.reclaim.every, r.seldom.every = time.Second, time.Second
	}
	if l.cols.Status == "" {
		r.memory = newMemory()
	}
	return r
}

// read answers a round in one transaction and one exchange with the server.
func (r *reader) read(ctx context.Context, q round) (answers, error) {
	a := answers{}
	var stmts []stmt
	sql := r.texts(q)
	if q.locksFirst {
		stmts = append(stmts, r.askLocks(&a.locksFirst))
	}
	began := time.Now()
	if q.due != nil {
		stmts = append(stmts, stmt{sql: "SELECT clock_timestamp()", read: func(rows pgx.Rows) error {
			var err error
			a.now, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
			a.now = a.now.UTC()
			r.clock.set(a.now)
			return err
		}})
		stmts = append(stmts, r.askDue(q, &a, began)...)
	}
	weighed := int64(float64(q.bytes) / r.swell)
	if p := q.replay; p != nil {
		stmts = append(stmts, stmt{sql: sql.replay, args: []any{p.from, p.to, q.limit, weighed, p.window, p.keys}, read: func(rows pgx.Rows) (err error) {
			a.replay, a.replayed, err = r.decoder(q).records(rows)
			if n := len(a.replay); n > q.limit {
				a.replayed = a.replay[n-1].id // the limit ended it, not the window: busy rows fill it too
			}
			return err
		}})
	}
	if f := q.forward; f != nil {
		text, args := r.askForward(q, weighed)
		stmts = append(stmts, stmt{sql: text, args: q.inLanes(args), read: func(rows pgx.Rows) (err error) {
			a.forward, _, err = r.decoder(q).records(rows)
			a.forwardEnd = len(a.forward) < f.window
			return err
		}})
	}
	if len(q.lookup) > 0 {
		stmts = append(stmts, r.askLookup(q, weighed, &a))
	}
	if b := q.below; b != nil {
		stmts = append(stmts, stmt{sql: sql.below, args: q.inLanes([]any{b.upTo, b.busy, b.blocked, b.limit}), read: func(rows pgx.Rows) (err error) {
			a.below, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		}})
		if b.last && len(b.blocked) > 0 {
			stmts = append(stmts, stmt{sql: sql.passed, args: []any{b.upTo, b.blocked}, read: func(rows pgx.Rows) (err error) {
				a.passed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (rec record, err error) {
					return rec, row.Scan(&rec.key, &rec.id)
				})
				return err
			}})
		}
	}
	if q.locks {
		stmts = append(stmts, r.askLocks(&a.locks))
	}
	if err := r.db.tx(ctx, stmts...); err != nil {
		return answers{}, fmt.Errorf("read due events: %w", err)
	}
	if f := q.forward; f != nil && r.plain(q) && holdsOver(a.forward) {
		r.weighing = weighReads
		return r.read(ctx, q) // a large row was left out that may have fitted
	}
	r.weigh(q, a)
	if r.memory != nil {
		for _, recs := range [][]record{a.replay, a.forward, a.lookup} {
			r.memory.apply(recs, time.Now())
		}
	}
	return a, nil
}

// texts are the statements of a round.
func (r *reader) texts(q round) *statements {
	if q.lanes != nil {
		return r.laned
	}
	return r.sql
}

// inLanes adds the parameter of statements for some lanes.
func (q *round) inLanes(args []any) []any {
	if q.lanes == nil {
		return args
	}
	return append(args, q.lanes)
}

// plain says whether the cheap read serves: rows have been small and all that it looks at may come. With some
// lanes the window is as large as it takes to find that many.
func (r *reader) plain(q round) bool {
	f := q.forward
	return r.sql.plain != "" && r.weighing == 0 && len(f.blocked) == 0 && (q.lanes != nil || f.window <= max(q.limit, minWindow))
}

func holdsOver(recs []record) bool {
	return slices.ContainsFunc(recs, func(rec record) bool { return rec.kind == kindOver })
}

// askForward chooses among the statements that read forward.
func (r *reader) askForward(q round, weighed int64) (text string, args []any) {
	f, sql := q.forward, r.texts(q)
	switch {
	case len(f.blocked) > 0:
		return sql.forwardBlocked, []any{f.after, q.limit, weighed, f.window, f.blocked}
	case r.plain(q):
		return sql.plain, []any{f.after, weighed / int64(min(f.window, max(q.limit, minWindow))), f.window}
	}
	return sql.forward, []any{f.after, q.limit, weighed, f.window}
}

func (r *reader) decoder(q round) *decoder {
	return &decoder{scans: r.layout.claim == relay.ClaimRows, most: q.limit, budget: q.bytes, types: r.types}
}

// weigh learns from how many rows had to be dropped or could have come.
func (r *reader) weigh(q round, a answers) {
	if q.forward != nil {
		r.weighing = max(0, r.weighing-1)
	}
	if p, _ := r.layout.catalog.column(r.layout.cols.Payload); p.kind != "json" && p.kind != "jsonb" || q.forward == nil {
		return
	}
	var got, over int64
	for _, rec := range a.forward {
		switch rec.kind {
		case kindDue:
			got += rec.size
		case kindOver:
			over++
		}
	}
	switch {
	case over > 0 && got > q.bytes*9/10:
		r.swell = min(r.swell*1.5, 1000)
	case over > 0 && got < q.bytes/2:
		r.swell = max(r.swell/1.5, 1)
	}
}

func (r *reader) askLookup(q round, weighed int64, a *answers) stmt {
	lows, highs := make([]int64, len(q.lookup)), make([]int64, len(q.lookup))
	for i, s := range q.lookup {
		lows[i], highs[i] = s.lo, s.hi
	}
	args := []any{lows, highs, q.limit, weighed}
	if q.lanes != nil {
		args = append(args, q.lanes, q.looks)
	}
	return stmt{sql: r.texts(q).lookup, args: args, read: func(rows pgx.Rows) (err error) {
		a.lookup, _, err = r.decoder(q).records(rows)
		a.lookCut = len(a.lookup) > q.looks
		return err
	}}
}

// askDue asks for retries and, where no index of their own finds them, for abandoned claims now and then.
func (r *reader) askDue(q round, a *answers, now time.Time) []stmt {
	var out []stmt
	ask := q.due
	add := func(p *pace, text string, args ...any) {
		if text == "" || p != nil && !p.due(now) {
			return
		}
		out = append(out, stmt{sql: text, args: q.inLanes(args), read: func(rows pgx.Rows) error {
			recs, _, err := r.decoder(q).records(rows)
			a.due = append(a.due, recs...)
			a.dueFull = a.dueFull || len(recs) >= ask.page
			if p != nil {
				p.ran(now, time.Since(now))
			}
			return err
		}})
	}
	var seldom *pace
	if !r.layout.own && !r.layout.statusIndex {
		seldom = &r.seldom
	}
	sql := r.texts(q)
	if ask.exact && sql.dueExact != "" {
		add(seldom, sql.dueExact, ask.page, q.limit, q.bytes, ask.blocked, ask.heads, ask.busy)
	} else {
		add(seldom, sql.due, ask.page, q.limit, q.bytes)
	}
	add(&r.reclaim, sql.reclaim, ask.page, q.limit, q.bytes)
	return out
}

func (r *reader) askLocks(into **lockView) stmt {
	return stmt{sql: r.sql.locks, args: []any{r.own.list()}, read: func(rows pgx.Rows) error {
		v := &lockView{}
		for rows.Next() {
			var snap, name, xids string
			if err := rows.Scan(&snap, &name, &xids); err != nil {
				return err
			}
			if name == "" {
				v.snapshot = parseSnapshot(snap)
				continue
			}
			h := holder{name: name}
			for x := range strings.SplitSeq(xids, ",") {
				if n, err := strconv.ParseUint(x, 10, 32); err == nil {
					h.xids = append(h.xids, uint32(n))
				}
			}
			v.holders = append(v.holders, h)
		}
		*into = v
		return rows.Err()
	}}
}

// claim takes rows in one statement, which is its own transaction.
func (r *reader) claim(ctx context.Context, picks []record, limit int, bytes int64) ([]record, error) {
	var got []record
	err := r.db.tx(ctx, stmt{sql: r.sql.claim, args: []any{idsOf(picks), limit, bytes}, read: func(rows pgx.Rows) (err error) {
		got, _, err = (&decoder{claimed: true, most: len(picks), budget: 1 << 62, types: r.types}).records(rows)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	return got, nil
}
