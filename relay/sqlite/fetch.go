package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Fetch returns due events in the order of writing. It reads one snapshot; with ClaimRows it looks
// first, so that an idle relay keeps no writer waiting, and then reads and claims in one short write
// transaction.
func (s *Store) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	if s.laneless() {
		return relay.Fetched{}, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	got, err := s.readOrClaim(ctx, f)
	if err != nil && strings.Contains(err.Error(), "no such index") { // dropped, perhaps for a better one
		got, err = relay.Fetched{More: true}, s.look(ctx)
	}
	if err != nil {
		return relay.Fetched{}, fmt.Errorf("read events: %w", err)
	}
	return got, nil
}

func (s *Store) readOrClaim(ctx context.Context, f relay.Fetch) (got relay.Fetched, err error) {
	if s.layout().claim != relay.ClaimRows {
		err = s.inTx(ctx, s.read, f, func(tx *sql.Tx, p *picker) error {
			got, err = s.fetch(ctx, tx, p, f)
			return err
		})
		return got, err
	}
	due := false
	err = s.inTx(ctx, s.read, f, func(tx *sql.Tx, p *picker) error {
		p.limit = 1
		err := s.pick(ctx, tx, p, f)
		due = len(p.ids) > 0
		return err
	})
	if err != nil || !due {
		return got, err
	}
	err = s.inTx(ctx, s.write, f, func(tx *sql.Tx, p *picker) error {
		got, err = s.fetch(ctx, tx, p, f)
		return err
	})
	return got, err
}

// inTx runs do in a transaction of its own, with a fresh picker.
func (s *Store) inTx(ctx context.Context, db *sql.DB, f relay.Fetch, do func(*sql.Tx, *picker) error) error {
	p, err := s.newPicker(f)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: db == s.read})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(tx, p); err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Store) fetch(ctx context.Context, tx *sql.Tx, p *picker, f relay.Fetch) (relay.Fetched, error) {
	if err := s.pick(ctx, tx, p, f); err != nil {
		return relay.Fetched{}, err
	}
	slices.Sort(p.ids)
	if len(p.ids) > p.limit {
		p.ids, p.full = p.ids[:p.limit], true
	}
	if len(p.ids) == 0 {
		s.cut = 0
		return relay.Fetched{}, nil
	}
	got := relay.Fetched{More: p.full}
	cut, err := s.load(ctx, tx, p, p.ids, f.MaxBytes, &got)
	if err != nil {
		return relay.Fetched{}, err
	}
	if cut != 0 && cut == s.cut && p.first(cut) {
		// Smaller rows that are due again and again must not keep a big one away: it comes alone now.
		if _, err := s.load(ctx, tx, p, []int64{cut}, 0, &got); err != nil {
			return relay.Fetched{}, err
		}
	}
	got.More, s.cut = got.More || cut != 0, cut
	if s.layout().claim == relay.ClaimRows {
		if err := s.claim(ctx, tx, &got); err != nil {
			return relay.Fetched{}, err
		}
	}
	for i := range got.Events {
		if n, _ := rowid(got.Events[i].Row); p.abandoned[n] {
			got.Reclaimed++
		}
	}
	return got, nil
}

// load reads the rows whole, in order, until maxBytes is reached; at least one. cut is the first row
// that was left out for its size, else 0.
func (s *Store) load(ctx context.Context, tx *sql.Tx, p *picker, ids []int64, maxBytes int64, got *relay.Fetched) (cut int64, err error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE rowid IN (%s) ORDER BY rowid",
		s.layout().eventColumns(true), s.layout().table, list(ids)))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	got.Events = make([]relay.Event, 0, len(ids))
	var r eventRow
	var bytes int64
	for rows.Next() {
		if err := rows.Scan(r.dest()...); err != nil {
			return 0, err
		}
		e := r.event(s.layout())
		if held, ok := p.parked[r.row]; ok {
			e.State, e.RetryCount = relay.StateFailed, max(e.RetryCount, held.attempts)
		}
		bytes += e.Size()
		if maxBytes > 0 && bytes > maxBytes && len(got.Events) > 0 {
			return r.row, nil
		}
		got.Events = append(got.Events, e)
	}
	return 0, rows.Err()
}

// claim writes SENDING and the time of the claim, which is its token.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, got *relay.Fetched) error {
	l := s.layout()
	ids := make([]int64, len(got.Events))
	for i := range got.Events {
		ids[i], _ = rowid(got.Events[i].Row)
	}
	var token string
	var stamp any
	at := l.clocks[l.claimColumn()].at("'now'", "")
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT %[1]s, CAST(%[1]s AS TEXT)", at)).Scan(&stamp, &token); err != nil {
		return err
	}
	sets := fmt.Sprintf("%s = %s, %s = ?1", col(l.cols.Status), lit(l.states.Sending), col(l.claimColumn()))
	if l.own {
		sets += ", " + col(l.cols.NextRetryAt) + " = ?1" // where the index of abandoned rows looks
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s WHERE rowid IN (%s)", l.table, sets, list(ids)), stamp)
	if err != nil {
		return err
	}
	for i := range got.Events {
		got.Events[i].State, got.Events[i].Claim = relay.StateSending, token
	}
	return nil
}
