package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Own implements relay.LaneStore. Scans begin at the oldest row that is due, so there is nothing to find out.
func (s *Store) Own(_ context.Context, lanes []relay.OwnLane) error {
	own, err := s.options.OwnedLanes(lanes)
	if err != nil {
		return err
	}
	s.lanes.Store(&own)
	s.floor, s.cut = floor{}, cut{} // of other rows
	return nil
}

// Low implements relay.LaneStore: there is no position to know.
func (s *Store) Low() string { return "" }

// laneless says that nothing is to be read.
func (s *Store) laneless() bool {
	return s.options.Claim == relay.ClaimLanes && len(*s.lanes.Load()) == 0
}

// inLanes is the condition for rows of its own lanes, behind AND; "" when all are. See relay.LaneOf.
func (s *Store) inLanes() string {
	if s.options.Claim != relay.ClaimLanes {
		return ""
	}
	own := *s.lanes.Load()
	if len(own) == int(s.options.Lanes) {
		return ""
	}
	numbers := make([]string, len(own))
	for i, lane := range own {
		numbers[i] = strconv.Itoa(int(lane))
	}
	l := s.layout()
	text := fmt.Sprintf("COALESCE(%s, CAST(CAST(%s AS CHAR) AS BINARY))", l.key, col(l.cols.ID))
	return " AND " + laneOf(text, s.options.Lanes) + " IN (" + strings.Join(numbers, ", ") + ")"
}

// laneOf is relay.LaneOf of bytes in SQL.
func laneOf(bytes string, n int32) string {
	return fmt.Sprintf("CAST(CONV(LEFT(SHA2(%s, 256), 8), 16, 10) AS UNSIGNED) %% %d", bytes, n)
}

// maxLooked bounds the rows that one statement of Unsettled names.
const maxLooked = 5_000

// Unsettled implements relay.LaneStore. Of a table without states it names the rows that are there.
func (s *Store) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	numbers := make([]uint64, len(rows))
	for i, row := range rows {
		n, err := s.layout().rowNumber(row)
		if err != nil {
			return nil, fmt.Errorf("look at rows that may be unsettled: %w", err)
		}
		numbers[i] = n
	}
	slices.Sort(numbers)
	var out []relay.UnsettledRow
	for part := range slices.Chunk(numbers, maxLooked) {
		found, err := s.unsettled(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("look at rows that may be unsettled: %w", err)
		}
		out = append(out, found...)
	}
	return out, nil
}

func (s *Store) unsettled(ctx context.Context, numbers []uint64) (out []relay.UnsettledRow, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	word, retries := "''", "0"
	if l.cols.Status != "" {
		word = col(l.cols.Status)
	}
	if l.cols.RetryCount != "" {
		retries = "COALESCE(" + col(l.cols.RetryCount) + ", 0)"
	}
	id := col(l.cols.ID)
	rows, err := s.db.QueryContext(ctx, fmt.Sprintf("SELECT %s, %s, %s, %s FROM %s%s WHERE %s IN (%s) AND (%s OR %s OR %s)",
		id, l.eventID(), word, retries, l.table, l.force(l.uniqueIndex()), id, l.list(numbers), l.status(l.states.New), l.status(l.states.Failed), l.deadWhere()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	held := s.parkedRows()
	for rows.Next() {
		var row, event, state string
		var attempts int
		if err := rows.Scan(&row, &event, &state, &attempts); err != nil {
			return nil, err
		}
		n, err := l.rowNumber(relay.RowID(row))
		if err != nil {
			return nil, err
		}
		u := relay.UnsettledRow{Row: relay.RowID(row), EventID: event, State: l.state(state, max(attempts, held[n].attempts))}
		if held[n].dead {
			u.State = relay.StateDead
		}
		out = append(out, u)
	}
	return out, rows.Err()
}
