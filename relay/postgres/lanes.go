package postgres

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
	begin, err := s.keeper.startLanes(ctx, set, added)
	if err != nil {
		return fmt.Errorf("own lanes: %w", err)
	}
	s.engine.ownMore(set, begin, s.layout.own && !before.none())
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
	return s.engine.position()
}

// writePosition makes the text of Low: the low end, and the first rows of the keys that wait below it. A gate may
// be closed for weeks, and what is above its rows is not to be read again by each new owner. The rows are looked
// up by their ids; which key one is of, the table says, and whether its gate is closed, the rows in doubt.
func writePosition(low int64, waits []int64) string {
	text := strconv.FormatInt(low, 10)
	for _, id := range waits {
		text += "," + strconv.FormatInt(id, 36)
	}
	return text
}

// readPosition gives 0, the beginning of the table, for a text that it does not understand.
func readPosition(text string) (low int64, waits []int64) {
	first, rest, more := strings.Cut(text, ",")
	low = parseRow(relay.RowID(first))
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		id, err := strconv.ParseInt(part, 36, 64)
		if err != nil {
			return 0, nil
		}
		if id < low {
			waits = append(waits, id)
		}
	}
	return low, waits
}

// beginning is where reading begins.
type beginning struct {
	cursor int64
	early  []string         // transactions that may hold ids up to the cursor
	waits  map[string]int64 // keys that may have rows below, from these on
}

// startLanes places the cursor for lanes that are new, as start does for a whole table.
func (k *keeper) startLanes(ctx context.Context, set *laneSet, lows []string) (b beginning, err error) {
	l := k.store.layout
	switch {
	case !l.own && l.statusIndex:
		b.cursor, b.early, err = k.lowestNew(ctx, set.filter())
		return b, err
	case !l.own:
		return b, nil
	}
	low := int64(math.MaxInt64)
	if slices.Contains(lows, "") {
		// Nobody had the lane. What a relay of the table as a whole had settled is settled for good: its low
		// end is a good beginning, however long ago that was.
		saved, err := k.savedCursor(ctx)
		if err != nil {
			return b, err
		}
		low = saved + 1
	}
	var waits []int64
	for _, text := range lows {
		if text != "" {
			from, more := readPosition(text)
			low, waits = min(low, from), append(waits, more...)
		}
	}
	last, err := k.lastValue(ctx)
	if err != nil {
		return b, err
	}
	if last != nil && low > *last+1 { // the table was emptied and counts from the beginning again
		low = 0
	}
	if low, b.waits, err = k.waiting(ctx, set, low, waits); err != nil {
		return b, err
	}
	b.cursor = max(low-1, 0)
	return b, nil
}

// waiting finds out which keys the rows below low are of that the last owners named. A row that is gone does not
// say, so all is read from there.
func (k *keeper) waiting(ctx context.Context, set *laneSet, low int64, ids []int64) (int64, map[string]int64, error) {
	ids = slices.DeleteFunc(ids, func(id int64) bool { return id >= low })
	if len(ids) == 0 {
		return low, nil, nil
	}
	l := k.store.layout
	id := l.col(l.cols.ID, "int8")
	found, err := k.rows(ctx, fmt.Sprintf("SELECT %s::int8, %s FROM %s t WHERE %s = ANY ($1::int8[])", id, l.key(), l.table, id), ids)
	if err != nil {
		return 0, nil, fmt.Errorf("look at rows that waited: %w", err)
	}
	for _, r := range ofIDs(ids).minus(ofIDs(idsOf(found))) {
		low = min(low, r.lo)
	}
	waits := make(map[string]int64, len(found))
	for _, r := range found {
		if r.key == nil || !set.has(*r.key) {
			continue
		}
		if first, there := waits[*r.key]; !there || r.id < first {
			waits[*r.key] = r.id
		}
	}
	return low, waits, nil
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

// ownMore sets lanes of which some are new, and begins anew, or at the low end of before if that counts too and is
// lower. What was returned and is not settled stays out, and keys that wait do not begin anew.
func (e *engine) ownMore(set *laneSet, b beginning, before bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.tracker
	if before {
		b.cursor = min(b.cursor, max(old.unpassed()-1, 0))
	}
	e.lanes = set
	e.epoch++
	e.tracker, e.early = newTracker(b.cursor), nil
	e.tracker.out, e.tracker.settled, e.tracker.maxGaps = old.out, old.settled, old.maxGaps
	for key, first := range b.waits {
		e.tracker.wait(key, first)
	}
	if before {
		for key, first := range old.passed {
			e.tracker.wait(key, first)
		}
		e.tracker.forget(set)
	}
	if len(b.early) > 0 {
		e.early = &gapGroup{holders: b.early}
	}
	e.skipForward, e.big, e.window = false, false, 0
}

// position is where the next relay begins, as a text.
func (e *engine) position() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return writePosition(e.tracker.ends())
}

// sweepView is what a sweep looks at: the lanes, the cursor, and the changes of lanes so far.
func (e *engine) sweepView() (set *laneSet, cursor int64, epoch int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lanes, e.tracker.cursor, e.epoch
}
