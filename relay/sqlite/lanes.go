package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	sqlite "modernc.org/sqlite"

	"github.com/postrider/postrider/relay"
)

// laneDriver is the driver of the relay's own connections: SQLite has no digest built in, so they bring the
// lane of a key along.
var laneDriver = sync.OnceValue(func() string {
	const name = "postrider-sqlite"
	d := &sqlite.Driver{}
	d.MustRegisterFunction("postrider_lane", &sqlite.FunctionImpl{
		NArgs: 2, Deterministic: true,
		VolatileArgs: true, // texts come whole, NUL and all
		Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			key, isText := args[0].(string)
			n, isNumber := args[1].(int64)
			if !isText || !isNumber {
				return nil, fmt.Errorf("postrider_lane(%T, %T): want a text and a number", args[0], args[1])
			}
			return int64(relay.LaneOf(key, int32(n))), nil
		},
	})
	sql.Register(name, d)
	return name
})

// Own implements relay.LaneStore. Scans begin at the oldest row that is due, so there is nothing to find out.
func (s *Store) Own(_ context.Context, lanes []relay.OwnLane) error {
	own, err := s.options.OwnedLanes(lanes)
	if err != nil {
		return err
	}
	s.lanes.Store(&own)
	s.floor, s.cut = floor{}, 0 // of other rows
	return nil
}

// Low implements relay.LaneStore: there is no position to know.
func (s *Store) Low() string { return "" }

// laneless says that nothing is to be read.
func (s *Store) laneless() bool {
	return s.options.Claim == relay.ClaimLanes && len(*s.lanes.Load()) == 0
}

// inLanes is the condition for rows of its own lanes, behind AND; "" when all are.
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
	return fmt.Sprintf(" AND postrider_lane(coalesce(%s, CAST(rowid AS TEXT)), %d) IN (%s)",
		s.layout().key, s.options.Lanes, strings.Join(numbers, ", "))
}

// maxLooked bounds the rows that one statement of Unsettled names.
const maxLooked = 5_000

// Unsettled implements relay.LaneStore. Of a table without states it names the rows that are there.
func (s *Store) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	ids := make([]int64, len(rows))
	for i, row := range rows {
		n, err := rowid(row)
		if err != nil {
			return nil, fmt.Errorf("look at rows that may be unsettled: %w", err)
		}
		ids[i] = n
	}
	var out []relay.UnsettledRow
	for part := range slices.Chunk(ids, maxLooked) {
		found, err := s.unsettled(ctx, part)
		if err != nil {
			return nil, fmt.Errorf("look at rows that may be unsettled: %w", err)
		}
		out = append(out, found...)
	}
	return out, nil
}

func (s *Store) unsettled(ctx context.Context, ids []int64) (out []relay.UnsettledRow, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	l := s.layout()
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf("SELECT rowid, %s, coalesce(%s, ''), %s FROM %s WHERE rowid IN (%s) AND %s",
		l.eventID, text(l.cols.Status), l.retries(), l.table, list(ids), l.unsettled()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	held := s.parkedRows()
	for rows.Next() {
		var n int64
		var word string
		var retries int
		var u relay.UnsettledRow
		if err := rows.Scan(&n, &u.EventID, &word, &retries); err != nil {
			return nil, err
		}
		u.Row, u.State = rowID(n), l.state(word, max(retries, held[n].attempts))
		if held[n].dead {
			u.State = relay.StateDead
		}
		out = append(out, u)
	}
	return out, rows.Err()
}
