package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/postrider/postrider/relay"
)

// picker collects the rows of one Fetch.
type picker struct {
	limit     int
	busy      map[int64]struct{}
	heads     map[string]int64 // by blocked key
	headsOnly bool
	parked    map[int64]parked
	now       time.Time

	ids       []int64
	keys      map[int64]sql.NullString // of ids
	abandoned map[int64]bool
	full      bool
}

func (s *Store) newPicker(f relay.Fetch) (*picker, error) {
	p := &picker{
		limit: max(f.Limit, 1), headsOnly: f.HeadsOnly, parked: s.parkedRows(), now: time.Now(),
		busy: make(map[int64]struct{}, len(f.Busy)), heads: make(map[string]int64, len(f.Blocked)),
		abandoned: map[int64]bool{}, keys: map[int64]sql.NullString{},
	}
	for _, id := range f.Busy {
		n, err := rowid(id)
		if err != nil {
			return nil, err
		}
		p.busy[n] = struct{}{}
	}
	for _, b := range f.Blocked {
		n, err := rowid(b.Head)
		if err != nil {
			return nil, err
		}
		p.heads[b.Key] = n
	}
	return p, nil
}

// verdict on a row that is due by its columns.
type verdict int

const (
	take verdict = iota
	isBusy
	isBlocked
)

// look judges a row. failed says that it was tried before: the head of a blocked key comes only as a
// failed row whose time has come.
func (p *picker) look(id int64, key sql.NullString, failed bool) verdict {
	if _, busy := p.busy[id]; busy {
		return isBusy
	}
	r := p.parked[id]
	if r.dead || p.now.Before(r.due) {
		return isBusy
	}
	head, shut := int64(0), false
	if key.Valid {
		head, shut = p.heads[key.String]
	}
	if shut && (head != id || !failed && r.attempts == 0) || p.headsOnly && !shut {
		return isBlocked
	}
	return take
}

// first says whether no earlier row of the same key is due with id.
func (p *picker) first(id int64) bool {
	key := p.keys[id]
	for _, other := range p.ids {
		if other == id {
			return true
		}
		if key.Valid && p.keys[other] == key {
			return false
		}
	}
	return true
}

// pick finds rows whose next attempt is due, abandoned ones, and then new ones in order.
func (s *Store) pick(ctx context.Context, tx *sql.Tx, p *picker, f relay.Fetch) error {
	l := s.layout()
	if f.HeadsOnly {
		return s.pickHeads(ctx, tx, p)
	}
	if where := l.retryWhere(); where != "" {
		if err := s.scan(ctx, tx, l.rest, where, p, nil); err != nil {
			return err
		}
	}
	if where := l.abandonedWhere(s.claimTimeout.Milliseconds()); where != "" {
		before := len(p.ids)
		if err := s.scan(ctx, tx, l.rest, where, p, nil); err != nil {
			return err
		}
		for _, id := range p.ids[before:] {
			p.abandoned[id] = true
		}
	}
	return s.scan(ctx, tx, l.fresh, l.freshWhere(), p, func() bool { return len(f.Reopened) > 0 })
}

// pickHeads looks at the heads of blocked keys alone.
func (s *Store) pickHeads(ctx context.Context, tx *sql.Tx, p *picker) error {
	heads := make([]int64, 0, len(p.heads))
	for _, id := range p.heads {
		heads = append(heads, id)
	}
	among := "rowid IN (" + list(heads) + ") AND "
	if retry := s.layout().retryWhere(); retry != "" {
		return s.scan(ctx, tx, s.layout().table, among+retry, p, nil)
	}
	return s.scan(ctx, tx, s.layout().table, among+s.layout().freshWhere(), p, func() bool { return true })
}

// scan walks rows in order until the limit is full. Each scan takes up to the limit, since the lowest
// rows of all scans together are what counts. With reopened it is the scan of new rows, which may
// begin at the floor.
func (s *Store) scan(ctx context.Context, tx *sql.Tx, from, where string, p *picker, reopened func() bool) error {
	start, began := int64(0), time.Now()
	if reopened != nil {
		if start = s.floor.start(reopened(), began); start > 0 {
			where += fmt.Sprintf(" AND rowid > %d", start)
		}
	}
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT rowid, %s, %s FROM %s WHERE %s%s ORDER BY rowid",
		s.layout().key, s.layout().tried(), from, where, s.inLanes()))
	if err != nil {
		return err
	}
	defer rows.Close()
	taken, passed, last, prefix := 0, 0, int64(0), true
	for rows.Next() {
		var id int64
		var key sql.NullString
		var tried bool
		if err := rows.Scan(&id, &key, &tried); err != nil {
			return err
		}
		v := p.look(id, key, reopened == nil || tried)
		if prefix = prefix && v == isBlocked; prefix {
			passed, last = passed+1, id
		}
		if v != take {
			continue
		}
		if taken++; taken > p.limit {
			p.full = true
			break
		}
		p.ids, p.keys[id] = append(p.ids, id), key
	}
	if reopened != nil {
		s.floor.walked(start, passed, last, began, time.Now())
	}
	return rows.Err()
}

// list writes numbers for IN, through JSON so that there is no limit on how many.
func list(ids []int64) string {
	text, _ := json.Marshal(ids) // numbers always encode
	return "SELECT value FROM json_each(" + lit(string(text)) + ")"
}
