package relaytest

import (
	"context"
	"strconv"

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
	from, begin := int64(0), false
	for _, l := range lanes {
		own[l.Lane] = l.Low
		if low, had := s.lanes[l.Lane]; had && low == l.Low {
			continue
		}
		low, _ := strconv.ParseInt(l.Low, 10, 64)
		if !begin || low < from {
			from, begin = low, true
		}
	}
	if begin && s.o.Cursor {
		if len(s.lanes) > 0 {
			from = min(from, s.low())
		}
		out := s.cursor.out
		s.cursor = newCursor()
		s.cursor.at, s.cursor.out = max(from-1, 0), out
	}
	s.lanes = own
	return f.After
}

// Low implements relay.LaneStore: without a cursor there is none.
func (s *FakeStore) Low() string {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if !s.o.Cursor || len(s.lanes) == 0 {
		return ""
	}
	return strconv.FormatInt(s.low(), 10)
}

// low is the lowest row that a later scan must not miss. It is called with the lock held.
func (s *FakeStore) low() int64 {
	low := s.cursor.at + 1
	for id := range s.cursor.gaps {
		low = min(low, id)
	}
	for _, r := range s.db.rows {
		if r.id < low && r.state == relay.StateNew && s.mine(r) {
			low = r.id
		}
	}
	return low
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
