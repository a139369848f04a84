package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// laneSet is the lanes that a store reads. It does not change once it is made.
type laneSet struct {
	mine []bool           // by lane
	lows map[int32]string // by lane of its own, where its reading began
}

// newLaneSet takes lanes that were checked (StoreOptions.OwnedLanes).
func newLaneSet(n int32, lanes []relay.OwnLane) *laneSet {
	s := &laneSet{mine: make([]bool, n), lows: make(map[int32]string, len(lanes))}
	for _, l := range lanes {
		s.mine[l.Lane], s.lows[l.Lane] = true, l.Low
	}
	return s
}

// none says that nothing is to be read. A nil set is that of the other claim modes, which read everything.
func (s *laneSet) none() bool { return s != nil && len(s.lows) == 0 }

// filter is the parameter that tells rows of other lanes, nil when there are none: the usual statements do.
func (s *laneSet) filter() []bool {
	if s == nil || len(s.lows) == len(s.mine) {
		return nil
	}
	return s.mine
}

func (s *laneSet) has(key string) bool {
	return s == nil || s.mine[relay.LaneOf(key, int32(len(s.mine)))]
}

// added gives the positions of lanes that are not in before, or began elsewhere there.
func (s *laneSet) added(before *laneSet) (lows []string) {
	for lane, low := range s.lows {
		if was, had := before.lows[lane]; !had || was != low {
			lows = append(lows, low)
		}
	}
	return lows
}

// inLane is the condition for rows of the lanes that a bool[] parameter names; see relay.LaneOf.
func (l *layout) inLane(param int) string {
	text := "coalesce(" + l.key() + ", " + l.text(l.cols.ID) + ")"
	encoding := "UTF8"
	if l.catalog.encoding == "SQL_ASCII" { // there is no conversion: the relay sees the bytes as they are stored
		encoding = l.catalog.encoding
	}
	sum := "sha256(convert_to(" + text + ", '" + encoding + "'))"
	return fmt.Sprintf("($%d::bool[])[1 + ('x' || encode(substr(%s, 1, 4), 'hex'))::bit(32)::int8 %% %d]", param, sum, l.lanes)
}

// Own implements relay.LaneStore. Taking lanes away needs no database.
func (s *Store) Own(ctx context.Context, lanes []relay.OwnLane) error {
	if _, err := s.options.OwnedLanes(lanes); err != nil {
		return err
	}
	set := newLaneSet(s.options.Lanes, lanes)
	s.started.Lock()
	defer s.started.Unlock()
	before := s.engine.owned()
	added := set.added(before)
	if len(added) == 0 {
		s.engine.ownLess(set)
		return nil
	}
	cursor, early, err := s.keeper.startLanes(ctx, set, added)
	if err != nil {
		return fmt.Errorf("own lanes: %w", err)
	}
	s.engine.ownMore(set, cursor, early, s.layout.own && !before.none())
	if !s.beginning {
		s.keeper.run()
		s.beginning = true
	}
	return nil
}

// Low implements relay.LaneStore. Only the product's own table is read in a way that knows one: the scans of
// other tables begin at what their index of states finds.
func (s *Store) Low() string {
	if s.options.Claim != relay.ClaimLanes || !s.layout.own || s.layout.gapless || s.engine.owned().none() {
		return ""
	}
	return strconv.FormatInt(s.engine.low(), 10)
}

// startLanes places the cursor for lanes that are new, as start does for a whole table.
func (k *keeper) startLanes(ctx context.Context, set *laneSet, lows []string) (cursor int64, early []string, err error) {
	l := k.store.layout
	switch {
	case !l.own && l.statusIndex:
		return k.lowestNew(ctx, set.filter())
	case !l.own:
		return 0, nil, nil
	}
	low := int64(math.MaxInt64)
	if slices.Contains(lows, "") {
		// Nobody had the lane. What a relay of the table as a whole had settled is settled for good: its low
		// end is a good beginning, however long ago that was.
		saved, err := k.savedCursor(ctx)
		if err != nil {
			return 0, nil, err
		}
		low = saved + 1
	}
	for _, text := range lows {
		if text != "" {
			low = min(low, parseRow(relay.RowID(text)))
		}
	}
	last, err := k.lastValue(ctx)
	if err != nil {
		return 0, nil, err
	}
	if last != nil && low > *last+1 { // the table was emptied and counts from the beginning again
		low = 0
	}
	return max(low-1, 0), nil, nil
}

// maxLooked bounds the rows that one statement of Unsettled names.
const maxLooked = 5_000

// Unsettled implements relay.LaneStore. Of a table without states it names the rows that are there.
func (s *Store) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	l := s.layout
	state := "''"
	if l.cols.Status != "" {
		state = fmt.Sprintf("CASE WHEN %s = %s THEN '%s' WHEN %s THEN '%s' ELSE '%s' END", l.status(), l.dead, relay.StateDead, l.isFailed(), relay.StateFailed, relay.StateNew)
	}
	id := l.col(l.cols.ID, "int8")
	query := fmt.Sprintf("SELECT %s::int8, %s, %s FROM %s t WHERE %s = ANY ($1::int8[]) AND %s",
		id, l.eventID(), state, l.table, id, byID(l.unsettled()))
	var out []relay.UnsettledRow
	for part := range slices.Chunk(parseRows(rows), maxLooked) {
		err := s.db.tx(ctx, stmt{sql: query, args: []any{part}, read: func(rs pgx.Rows) error {
			found, err := pgx.CollectRows(rs, func(row pgx.CollectableRow) (u relay.UnsettledRow, err error) {
				var id int64
				var state string
				err = row.Scan(&id, &u.EventID, &state)
				u.Row, u.State = rowID(id), relay.State(state)
				return u, err
			})
			out = append(out, found...)
			return err
		}})
		if err != nil {
			return nil, fmt.Errorf("look at rows that may be unsettled: %w", err)
		}
	}
	if m := s.reader.memory; m != nil {
		m.tell(out)
	}
	return out, nil
}

// tell fills in the states that the table does not know.
func (m *memory) tell(rows []relay.UnsettledRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		rows[i].State = relay.StateNew
		if r, ok := m.rows[parseRow(rows[i].Row)]; ok {
			rows[i].State = r.state
		}
	}
}

// owned gives the lanes that are read.
func (e *engine) owned() *laneSet {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes
}

// ownLess takes lanes away. What the tracker knows of their rows goes as the reads pass over them; only the
// keys that wait would be asked for again.
func (e *engine) ownLess(set *laneSet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lanes = set
	e.epoch++
	e.tracker.forget(set)
}

// ownMore sets lanes of which some are new, and begins anew behind the cursor, or behind the low end of before
// if that counts too and is lower. What was returned and is not settled stays out.
func (e *engine) ownMore(set *laneSet, cursor int64, early []string, before bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.tracker
	if before {
		cursor = min(cursor, max(old.low()-1, 0))
	}
	e.lanes = set
	e.epoch++
	e.tracker, e.early = newTracker(cursor), nil
	e.tracker.out, e.tracker.settled, e.tracker.maxGaps = old.out, old.settled, old.maxGaps
	if len(early) > 0 {
		e.early = &gapGroup{holders: early}
	}
	e.skipForward, e.big, e.window = false, false, 0
}

// sweepView is what a sweep looks at: the lanes, the cursor, and the changes of lanes so far.
func (e *engine) sweepView() (set *laneSet, cursor int64, epoch int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes, e.tracker.cursor, e.epoch
}
