package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// Rates of what goes on beside the reading.
const (
	keepEvery  = time.Second     // one step of the keeper
	saveEvery  = 5 * time.Second // writing of the low end
	sweepRows  = 5_000           // rows that one step of the sweep looks at by primary key
	sweepPause = time.Minute     // between two sweeps of the whole table
	sweepFinds = 1_000           // rows that one step of the sweep brings
)

// keeper does what must not be in the way of reading: it writes down where a later relay begins, and it
// sweeps for rows that the cursor missed.
type keeper struct {
	store    *Store
	saves    bool // the cursor table is there and may be written
	warnings []string

	saved   int64
	savedAt time.Time
	sweep   pace
	pause   time.Duration // between two sweeps of the whole table
	at      int64         // the sweep has come down to here; 0: at the top
	resting time.Time
	seen    atomic.Int64 // the sequence's last value

	stopOnce sync.Once
	cancel   context.CancelFunc
	done     chan struct{}
}

func newKeeper(s *Store) *keeper {
	return &keeper{store: s, sweep: pace{every: keepEvery}, pause: sweepPause}
}

const cursorTable = "outbox_cursor"

// cursorTableName is the cursor's table, beside the outbox.
func (k *keeper) cursorTableName() string {
	return quote(k.store.layout.catalog.schema) + "." + quote(cursorTable)
}

// start places the cursor: everything up to it is settled, or belongs to one of the transactions that are
// named.
func (k *keeper) start(ctx context.Context) (cursor int64, early []string, err error) {
	l := k.store.layout
	switch {
	case l.own:
		cursor, err = k.savedCursor(ctx)
		return cursor, nil, err
	case l.statusIndex:
		return k.lowestNew(ctx, nil)
	}
	return 0, nil, nil // reading forward past what is done is cheaper than a scan of the whole
}

// savedCursor is where the last relay of this name was. What it did not know of came later, with higher ids.
func (k *keeper) savedCursor(ctx context.Context) (int64, error) {
	readable, writable, err := k.cursorRights(ctx)
	if err != nil {
		return 0, err
	}
	if !readable {
		return 0, nil
	}
	// With lanes the low end is each lane's and is kept elsewhere; this one stays as it is.
	k.saves = writable && k.store.options.Claim != relay.ClaimLanes
	var low int64
	err = k.store.query(ctx, fmt.Sprintf("SELECT coalesce(max(low_id), 0) FROM %s WHERE name = $1::text", k.cursorTableName()), []any{k.name()}, &low)
	if err != nil {
		return 0, fmt.Errorf("read the cursor: %w", err)
	}
	last, err := k.lastValue(ctx)
	if err != nil {
		return 0, err
	}
	if last != nil && low > *last+1 { // the table was emptied and counts from the beginning again
		return 0, nil
	}
	k.saved = low
	return max(low-1, 0), nil
}

// cursorRights says what this user may do with the cursor's table; nothing when there is none.
func (k *keeper) cursorRights(ctx context.Context) (readable, writable bool, err error) {
	err = k.store.query(ctx, `SELECT coalesce(has_table_privilege(to_regclass($1::text), 'SELECT'), false),
		coalesce(has_table_privilege(to_regclass($1::text), 'INSERT') AND has_table_privilege(to_regclass($1::text), 'UPDATE'), false)`,
		[]any{k.cursorTableName()}, &readable, &writable)
	if err != nil {
		return false, false, fmt.Errorf("look for the cursor: %w", err)
	}
	return readable, writable, nil
}

// noteRights tells of a cursor that cannot be kept: each start then reads the history again.
func (k *keeper) noteRights(ctx context.Context) error {
	if o := k.store.options; !k.store.layout.own || o.ReadOnly || o.Claim == relay.ClaimLanes {
		return nil
	}
	readable, writable, err := k.cursorRights(ctx)
	if err != nil || readable && writable {
		return err
	}
	k.warnings = append(k.warnings, fmt.Sprintf("user %q may not read and write %s, so each start reads through the rows that were sent; "+
		"GRANT SELECT, INSERT, UPDATE ON %s TO %s (if it does not exist: postrider schema apply)",
		k.store.layout.catalog.user, cursorTable, k.cursorTableName(), quote(k.store.layout.catalog.user)))
	return nil
}

// lastValue is the last id that the sequence handed out, nil when it may not be read or there is none.
func (k *keeper) lastValue(ctx context.Context) (last *int64, err error) {
	s := k.store.layout.catalog.sequence
	if s == nil {
		return nil, nil
	}
	err = k.store.query(ctx, `SELECT CASE WHEN has_sequence_privilege($1::oid, 'SELECT') OR has_sequence_privilege($1::oid, 'USAGE')
		THEN pg_sequence_last_value($1::oid) END`, []any{s.oid}, &last)
	if err != nil {
		return nil, fmt.Errorf("read the sequence: %w", err)
	}
	return last, nil
}

// name is the cursor's name: one for each outbox name on each table.
func (k *keeper) name() string {
	name := k.store.options.Name
	if t := k.store.layout.catalog.table; t != "outbox_events" {
		name += "@" + t
	}
	return clip(name, 255)
}

// lowestNew asks the index of a table that is not ours for the first new row. Ids drawn later are above the
// last one that is there, and ids drawn earlier belong to the transactions that are still open. lanes are those
// to look at, nil for all.
func (k *keeper) lowestNew(ctx context.Context, lanes []bool) (cursor int64, early []string, err error) {
	l := k.store.layout
	id := l.col(l.cols.ID, "int8")
	var last, low *int64
	if err := k.store.query(ctx, fmt.Sprintf("SELECT max(%s)::int8 FROM %s t", id, l.table), nil, &last); err != nil {
		return 0, nil, fmt.Errorf("look for the last event: %w", err)
	}
	if last == nil {
		return 0, nil, nil
	}
	var view *lockView
	if err := k.store.db.tx(ctx, k.store.reader.askLocks(&view)); err != nil {
		return 0, nil, fmt.Errorf("look for open transactions: %w", err)
	}
	where, args := l.isNew(), []any(nil)
	if lanes != nil {
		where, args = where+" AND "+l.inLane(1), []any{lanes}
	}
	err = k.store.query(ctx, fmt.Sprintf("SELECT min(x.id)::int8 FROM (SELECT %s AS id FROM %s t WHERE %s OFFSET 0) x", id, l.table, where), args, &low)
	if err != nil {
		return 0, nil, fmt.Errorf("look for the first new event: %w", err)
	}
	cursor = *last
	if low != nil {
		cursor = min(cursor, *low-1)
	}
	return cursor, view.names(), nil
}

// run starts the keeper; stop ends it and waits.
func (k *keeper) run() {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel, k.done = cancel, make(chan struct{})
	go func() {
		defer close(k.done)
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				k.step(ctx)
			}
		}
	}()
}

func (k *keeper) stop() {
	k.stopOnce.Do(func() {
		if k.cancel == nil {
			return
		}
		k.cancel()
		<-k.done
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		k.save(ctx)
	})
}

// step is bounded work. Its errors are those of a database that does not answer, which the reading reports.
func (k *keeper) step(ctx context.Context) {
	if time.Since(k.savedAt) >= saveEvery {
		k.save(ctx)
	}
	if now := time.Now(); k.sweep.due(now) {
		k.sweepStep(ctx)
		k.sweep.ran(now, time.Since(now))
	}
}

// save writes the low end if it has moved.
func (k *keeper) save(ctx context.Context) {
	k.savedAt = time.Now()
	low := k.store.engine.low()
	if !k.saves || low == k.saved {
		return
	}
	err := k.store.db.tx(ctx, stmt{sql: fmt.Sprintf(`INSERT INTO %s (name, low_id) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET low_id = excluded.low_id, updated_at = clock_timestamp()`, k.cursorTableName()),
		args: []any{k.name(), low}})
	if err == nil {
		k.saved = low
	}
}

// forget takes back the low end of a relay of the whole table, which nobody else keeps up to date. It fails
// where there is none, or no right to it: then nobody begins there either.
func (k *keeper) forget(ctx context.Context) {
	_ = k.store.db.tx(ctx, stmt{sql: fmt.Sprintf("UPDATE %s SET low_id = 0 WHERE name = $1::text", k.cursorTableName()), args: []any{k.name()}})
}

// sweepStep looks at some rows below the cursor. What it finds twice, with the tracker's knowledge read in
// between, was missed.
func (k *keeper) sweepStep(ctx context.Context) {
	if k.restarted(ctx) {
		return
	}
	lanes, cursor, epoch := k.store.engine.sweepView()
	if lanes.none() {
		return
	}
	found, err := k.candidates(ctx, cursor, lanes.filter())
	if err != nil {
		return
	}
	// Known before the second read, not after it: a row that is settled between that read and the look at
	// the tracker would be in no place of the tracker and still look NEW.
	if found = k.unknown(found); len(found) == 0 {
		return
	}
	l := k.store.layout
	id := l.col(l.cols.ID, "int8")
	again, err := k.rows(ctx, fmt.Sprintf("SELECT %s::int8, %s FROM %s t WHERE %s = ANY ($1::int8[]) AND %s",
		id, l.key(), l.table, id, byID(l.overdue()+" AND "+l.itsTime())), idsOf(found))
	if err == nil {
		k.store.engine.sweptUp(k.unknown(again), epoch)
	}
}

// overdue is the condition for rows that a scan should have brought: NEW ones, and on the product's own table
// whatever a person left out of the index of failed rows.
func (l *layout) overdue() string {
	if !l.own {
		return l.isNew()
	}
	next := l.col(l.cols.NextRetryAt, "timestamptz")
	return fmt.Sprintf("(%s IS NULL OR %s = 'infinity') AND %s", next, next, l.open())
}

// candidates reads one portion: by the index of the status where there is one, else by primary key, from the
// cursor down, since what was missed lately is likeliest.
func (k *keeper) candidates(ctx context.Context, cursor int64, lanes []bool) ([]record, error) {
	l := k.store.layout
	id := l.col(l.cols.ID, "int8")
	in := func(args ...any) (string, []any) {
		if lanes == nil {
			return "", args
		}
		return " AND " + l.inLane(len(args)+1), append(args, lanes)
	}
	if l.statusIndex {
		mine, args := in(cursor)
		found, err := k.rows(ctx, fmt.Sprintf("SELECT %s::int8, %s FROM %s t WHERE %s AND %s <= $1::int8 AND %s%s ORDER BY %s + 0 LIMIT %d",
			id, l.key(), l.table, l.isNew(), id, l.itsTime(), mine, id, sweepFinds+20_000), args...)
		found = k.unknown(found)
		return found[:min(len(found), sweepFinds)], err
	}
	if k.at == 0 {
		if time.Since(k.resting) < k.pause {
			return nil, nil
		}
		k.at = cursor
	}
	var low *int64
	var n int
	err := k.store.query(ctx, fmt.Sprintf("SELECT min(x.id), count(*) FROM (SELECT %s::int8 AS id FROM %s t WHERE %s <= $1::int8 ORDER BY %s DESC LIMIT %d) x",
		id, l.table, id, id, sweepRows), []any{k.at}, &low, &n)
	if err != nil || low == nil {
		k.at, k.resting = 0, time.Now()
		return nil, err
	}
	mine, args := in(*low, k.at)
	found, err := k.rows(ctx, fmt.Sprintf("SELECT %s::int8, %s FROM %s t WHERE %s BETWEEN $1::int8 AND $2::int8 AND %s%s ORDER BY %s LIMIT %d",
		id, l.key(), l.table, id, byID(l.overdue()+" AND "+l.itsTime()), mine, id, sweepRows), args...)
	k.at = *low - 1
	if n < sweepRows {
		k.at, k.resting = 0, time.Now()
	}
	return k.unknown(found), err
}

// unknown returns those of the rows that are nowhere accounted for.
func (k *keeper) unknown(recs []record) []record {
	if m := k.store.reader.memory; m != nil {
		recs = slices.DeleteFunc(recs, func(r record) bool { return m.has(r.id) })
	}
	return k.store.engine.unknown(recs, k.store.databaseNow())
}

// restarted notices that the sequence counts from the beginning again (TRUNCATE … RESTART IDENTITY).
func (k *keeper) restarted(ctx context.Context) bool {
	last, err := k.lastValue(ctx)
	if err != nil || last == nil {
		return false
	}
	if before := k.seen.Swap(*last); *last >= before {
		return false
	}
	if k.store.options.Claim == relay.ClaimLanes {
		k.forget(ctx)
	}
	k.store.engine.reset(0, nil)
	k.at = 0
	return true
}

func (k *keeper) rows(ctx context.Context, sql string, args ...any) (recs []record, err error) {
	err = k.store.db.tx(ctx, stmt{sql: sql, args: args, read: func(rows pgx.Rows) error {
		recs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r record, err error) {
			r.state = relay.StateNew
			err = row.Scan(&r.id, &r.key)
			return r, err
		})
		return err
	}})
	return recs, err
}

// query reads one row.
func (s *Store) query(ctx context.Context, sql string, args []any, into ...any) error {
	return s.db.tx(ctx, stmt{sql: sql, args: args, read: func(rows pgx.Rows) error {
		if !rows.Next() {
			if rows.Err() != nil {
				return rows.Err()
			}
			return pgx.ErrNoRows
		}
		return rows.Scan(into...)
	}})
}
