package relaytest

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Own implements relay.LaneStore. It panics when a Fetch is under way, which no relay may do.
func (s *FakeStore) Own(ctx context.Context, lanes []relay.OwnLane) error {
	if s.fetching.Load() {
		panic("Own was called while a Fetch was under way")
	}
	f, err := s.enter(ctx, "Own")
	if err != nil {
		return err
	}
	defer s.db.mu.Unlock()
	if _, err := s.o.OwnedLanes(lanes); err != nil {
		return err
	}
	own := make(map[int32]string, len(lanes))
	from, waits, begin := int64(math.MaxInt64), []int64(nil), false
	for _, l := range lanes {
		own[l.Lane] = l.Low
		if low, had := s.lanes[l.Lane]; had && low == l.Low {
			continue
		}
		low, more := readPosition(l.Low)
		from, waits, begin = min(from, low), append(waits, more...), true
	}
	if begin && s.o.Cursor {
		s.beginAt(from, waits)
	}
	s.lanes = own
	return f.After
}

// beginAt begins to scan anew, knowing rows below whose keys wait. It is called with the lock held.
func (s *FakeStore) beginAt(from int64, waits []int64) {
	old := s.cursor
	s.cursor = newCursor()
	s.cursor.out = old.out
	if len(s.lanes) > 0 {
		low, more := s.ends(old)
		from, waits = min(from, low), append(waits, more...)
	}
	for _, id := range waits {
		r := s.db.row(rowID(id))
		if r == nil || r.key() == nil { // it does not say any more which key it was of
			from = min(from, id)
			continue
		}
		if low, known := s.cursor.below[*r.key()]; !known || id < low {
			s.cursor.below[*r.key()] = id
		}
	}
	s.cursor.at = max(from-1, 0)
}

// Low implements relay.LaneStore: without a cursor there is none.
func (s *FakeStore) Low() string {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if !s.o.Cursor || len(s.lanes) == 0 {
		return ""
	}
	low, waits := s.ends(s.cursor)
	text := strconv.FormatInt(low, 10)
	for _, id := range waits {
		text += "," + strconv.FormatInt(id, 10)
	}
	return text
}

func readPosition(text string) (low int64, waits []int64) {
	for i, part := range strings.Split(text, ",") {
		n, _ := strconv.ParseInt(part, 10, 64)
		if i == 0 {
			low = n
		} else {
			waits = append(waits, n)
		}
	}
	return low, waits
}

// ends is the lowest row that a later scan must not miss, and the first rows below of keys that wait; of more than
// two it does not tell. It is called with the lock held.
func (s *FakeStore) ends(c cursor) (low int64, waits []int64) {
	const most = 2
	low = c.at + 1
	for id := range c.gaps {
		low = min(low, id)
	}
	for _, r := range s.db.rows {
		if r.id < low && r.state == relay.StateNew && s.mine(r) && !c.waits(r) {
			low = r.id
		}
	}
	for _, id := range c.below {
		if id < low {
			waits = append(waits, id)
		}
	}
	slices.Sort(waits)
	if len(waits) > most {
		low, waits = waits[most], waits[:most]
	}
	return low, waits
}

// waits says whether the row was passed over because its key waits.
func (c *cursor) waits(r *fakeRow) bool {
	key := r.key()
	if key == nil || c.gaps[r.id] || c.out[r.id] || c.again[r.id] {
		return false
	}
	first, known := c.below[*key]
	return known && r.id >= first
}

// mine says whether the row is of a lane that this store reads.
func (s *FakeStore) mine(r *fakeRow) bool {
	if s.o.Claim != relay.ClaimLanes {
		return true
	}
	if len(s.lanes) == 0 {
		return false
	}
	text := string(r.rowID())
	if key := r.key(); key != nil {
		text = *key
	}
	_, own := s.lanes[relay.LaneOf(text, s.o.Lanes)]
	return own
}

// Unsettled implements relay.LaneStore.
func (s *FakeStore) Unsettled(ctx context.Context, rows []relay.RowID) ([]relay.UnsettledRow, error) {
	f, err := s.enter(ctx, "Unsettled")
	if err != nil {
		return nil, err
	}
	defer s.db.mu.Unlock()
	var out []relay.UnsettledRow
	for _, id := range rows {
		if r := s.db.row(id); r != nil && r.unsettled() {
			out = append(out, relay.UnsettledRow{Row: id, EventID: r.EventID, State: r.state})
		}
	}
	return out, f.After
}
