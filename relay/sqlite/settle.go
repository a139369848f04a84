package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/postrider/postrider/relay"
)

// Settle writes outcomes in one transaction: one set-based UPDATE, and one DELETE where sent rows are
// deleted. A row that is no longer as it was read is left alone and returned as lost.
func (s *Store) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	if len(outs) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	marks, err := s.marks(outs)
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var lost []relay.RowID
	for _, m := range marks {
		missed, err := s.mark(ctx, tx, m)
		if err != nil {
			return nil, fmt.Errorf("mark events: %w", err)
		}
		lost = append(lost, missed...)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	s.park(outs)
	return lost, nil
}

// marking is one statement and the outcomes it is for.
type marking struct {
	query string
	outs  []relay.Outcome
}

// marks sorts outcomes by statement. An unclaimed row that goes back unsent needs none: it is as it was.
func (s *Store) marks(outs []relay.Outcome) ([]marking, error) {
	l := s.layout()
	var update, remove, check []relay.Outcome
	writes := len(l.sets()) > 0
	for _, o := range outs {
		if _, err := rowid(o.Row); err != nil {
			return nil, err
		}
		switch {
		case o.State == relay.StateSent && l.delete:
			remove = append(remove, o)
		case o.State == relay.StateNew && o.Claim == "":
		case writes:
			update = append(update, o)
		default: // nothing can be written; is the row there?
			check = append(check, o)
		}
	}
	var marks []marking
	if len(update) > 0 {
		marks = append(marks, marking{l.updateSQL(), update})
	}
	if len(remove) > 0 {
		marks = append(marks, marking{l.deleteSQL(), remove})
	}
	if len(check) > 0 {
		marks = append(marks, marking{l.checkSQL(), check})
	}
	return marks, nil
}

// mark runs one statement and returns the rows that it did not find as they were read.
func (s *Store) mark(ctx context.Context, tx *sql.Tx, m marking) ([]relay.RowID, error) {
	text, err := s.layout().encode(m.outs)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, m.query, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	done := make(map[relay.RowID]struct{}, len(m.outs))
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		done[rowID(id)] = struct{}{}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(done) == len(m.outs) {
		return nil, nil
	}
	var missed []relay.Outcome
	for _, o := range m.outs {
		if _, ok := done[o.Row]; !ok {
			missed = append(missed, o)
		}
	}
	return s.lost(ctx, tx, missed)
}

// lost sorts out rows that are SENT as the outcome says: the same call was made before and its answer
// did not arrive. With claims it is another relay's mark.
func (s *Store) lost(ctx context.Context, tx *sql.Tx, missed []relay.Outcome) ([]relay.RowID, error) {
	l := s.layout()
	var ids []int64
	for _, o := range missed {
		if n, err := rowid(o.Row); err == nil && o.State == relay.StateSent && l.claim != relay.ClaimRows {
			ids = append(ids, n)
		}
	}
	query := fmt.Sprintf("SELECT rowid FROM %s WHERE rowid IN (%s)", l.table, list(ids))
	if !l.delete {
		query += " AND " + l.status(l.states.Sent)
	}
	found, err := numbers(ctx, tx, query)
	if err != nil {
		return nil, err
	}
	var lost []relay.RowID
	for _, o := range missed {
		n, _ := rowid(o.Row)
		if slices.Contains(ids, n) && slices.Contains(found, n) != l.delete {
			continue // sent, or gone where sent rows are deleted
		}
		lost = append(lost, o.Row)
	}
	return lost, nil
}
