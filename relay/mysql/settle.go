package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/postrider/postrider/relay"
)

// Settle writes outcomes in one transaction: one set-based statement for the sent rows, and one for the
// others if there are any. A row that is no longer as it was read is left alone and returned as lost.
//
// The outcomes go as one JSON parameter that the server reads as a table and joins by primary key.
// Measured against row constructors, unions and many statements, it is as fast as the fastest on both
// servers.
func (s *Store) Settle(ctx context.Context, outs []relay.Outcome) ([]relay.RowID, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	marks, err := s.marks(outs)
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	if len(marks) == 0 {
		s.park(outs)
		return nil, nil
	}
	whole := true
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		for _, m := range marks {
			n, err := m.run(ctx, tx)
			if err != nil {
				return err
			}
			if whole = whole && n == int64(len(m.outs)); !whole {
				return errPartly
			}
		}
		return nil
	})
	var lost []relay.RowID
	if err == errPartly { //nolint:errorlint // nothing wraps it
		lost, err = s.settlePartly(ctx, marks)
	}
	if err != nil {
		return nil, fmt.Errorf("mark events: %w", err)
	}
	s.park(outs)
	return lost, nil
}

// errPartly gives up a transaction in which not every row was as read.
var errPartly = fmt.Errorf("not every row is as it was read")

// settlePartly finds out which rows still are as read, under locks, and marks those.
func (s *Store) settlePartly(ctx context.Context, marks []marking) (lost []relay.RowID, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		lost = nil
		for _, m := range marks {
			if m.layout.claim == relay.ClaimLanes && m.outs[0].State == relay.StateSent {
				m.where = m.layout.sentWhere()
				m.sql = m.layout.sentSQL(m.where)
			}
			hit, err := m.hit(ctx, tx)
			if err != nil {
				return err
			}
			var missed []relay.Outcome
			m.outs = slices.DeleteFunc(slices.Clone(m.outs), func(o relay.Outcome) bool {
				_, ok := hit[o.Row]
				if !ok {
					missed = append(missed, o)
				}
				return !ok
			})
			if len(m.outs) > 0 {
				if _, err := m.run(ctx, tx); err != nil {
					return err
				}
			}
			more, err := s.lost(ctx, tx, missed)
			if err != nil {
				return err
			}
			lost = append(lost, more...)
		}
		return nil
	})
	return lost, err
}

// marking is one statement and the outcomes it is for.
type marking struct {
	layout *layout
	sql    string
	where  string
	outs   []relay.Outcome
}

func (m *marking) run(ctx context.Context, tx *sql.Tx) (int64, error) {
	if m.sql == "" {
		hit, err := m.hit(ctx, tx)
		return int64(len(hit)), err
	}
	text, err := m.layout.encode(m.outs)
	if err != nil {
		return 0, err
	}
	r, err := tx.ExecContext(ctx, m.sql, text)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err != nil || n < int64(len(m.outs)) {
		return n, err
	}
	return n, m.clearErrors(ctx, tx)
}

// clearErrors takes the last error out of rows that were sent after a failure. It is a statement of its
// own, since with a TEXT column in the join MariaDB would buffer all marks on disk.
func (m *marking) clearErrors(ctx context.Context, tx *sql.Tx) error {
	l := m.layout
	c, ok := l.catalog.column(l.cols.LastError)
	if !ok || l.delete {
		return nil
	}
	var failed []uint64
	for _, o := range m.outs {
		if n, _ := l.rowNumber(o.Row); o.State == relay.StateSent && (o.From == relay.StateFailed || o.Claim != "" || m.where != l.markWhere()) {
			failed = append(failed, n)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	none := "NULL"
	if !c.nullable {
		none = "''"
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %[2]s = %[3]s WHERE %[4]s IN (%[5]s) AND %[2]s IS NOT NULL",
		l.table, col(c.name), none, col(l.cols.ID), l.list(failed)))
	return err
}

// hit locks the rows and names those that are as read. (MySQL does not lock through a JSON table.)
func (m *marking) hit(ctx context.Context, tx *sql.Tx) (map[relay.RowID]struct{}, error) {
	l := m.layout
	asked := make([]uint64, len(m.outs))
	for i := range m.outs {
		asked[i], _ = l.rowNumber(m.outs[i].Row)
	}
	id := col(l.cols.ID)
	if _, err := l.numbers(ctx, tx, fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s IN (%[3]s) FOR UPDATE", id,
		l.table, l.list(asked))); err != nil {
		return nil, err
	}
	text, err := l.encode(m.outs)
	if err != nil {
		return nil, err
	}
	found, err := l.numbers(ctx, tx, fmt.Sprintf("SELECT t.%s FROM %s WHERE %s", id, l.joined(), m.where), text)
	hit := make(map[relay.RowID]struct{}, len(found))
	for _, n := range found {
		hit[relay.RowID(l.digits(n))] = struct{}{}
	}
	return hit, err
}

// The most outcomes of one statement: what the server buffers of them stays in memory.
const (
	maxSent  = 5000
	maxOther = 500
)

// marks sorts outcomes by statement, in the order of ids, so that two relays lock rows in one order.
// An unclaimed row that goes back unsent needs no mark: it is as it was.
func (s *Store) marks(outs []relay.Outcome) ([]marking, error) {
	l := s.layout()
	for _, o := range outs {
		if _, err := l.rowNumber(o.Row); err != nil {
			return nil, err
		}
	}
	sorted := slices.SortedFunc(slices.Values(outs), func(a, b relay.Outcome) int {
		x, _ := l.rowNumber(a.Row)
		y, _ := l.rowNumber(b.Row)
		return cmp.Compare(x, y)
	})
	var sent, other []relay.Outcome
	for _, o := range sorted {
		switch {
		case o.State == relay.StateSent:
			sent = append(sent, o)
		case o.State != relay.StateNew || o.Claim != "":
			other = append(other, o)
		}
	}
	var marks []marking
	for part := range slices.Chunk(sent, maxSent) {
		marks = append(marks, marking{l, l.sentSQL(l.markWhere()), l.markWhere(), part})
	}
	for part := range slices.Chunk(other, maxOther) {
		marks = append(marks, marking{l, l.otherSQL(), l.markWhere(), part})
	}
	return marks, nil
}

// lost sorts out rows that are SENT as the outcome says: the same call was made before and its answer
// did not arrive. With claims it is another relay's mark.
func (s *Store) lost(ctx context.Context, tx *sql.Tx, missed []relay.Outcome) ([]relay.RowID, error) {
	l := s.layout()
	var asked []uint64
	for _, o := range missed {
		if n, err := l.rowNumber(o.Row); err == nil && o.State == relay.StateSent && l.claim != relay.ClaimRows {
			asked = append(asked, n)
		}
	}
	var found []uint64
	if len(asked) > 0 {
		query := fmt.Sprintf("SELECT %[1]s FROM %[2]s WHERE %[1]s IN (%[3]s)", col(l.cols.ID), l.table, l.list(asked))
		if !l.delete {
			query += " AND " + l.status(l.states.Sent)
		}
		var err error
		if found, err = l.numbers(ctx, tx, query); err != nil {
			return nil, err
		}
	}
	var lost []relay.RowID
	for _, o := range missed {
		n, _ := l.rowNumber(o.Row)
		if slices.Contains(asked, n) && slices.Contains(found, n) != l.delete {
			continue // sent, or gone where sent rows are deleted
		}
		lost = append(lost, o.Row)
	}
	return lost, nil
}
