package relaytest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// Counts implements relay.Admin.
func (s *FakeStore) Counts(ctx context.Context, bound int) (relay.Counts, error) {
	if _, err := s.enter(ctx, "Counts"); err != nil {
		return relay.Counts{}, err
	}
	defer s.db.mu.Unlock()
	by := map[relay.State]int{}
	keys := map[string]bool{}
	var c relay.Counts
	for _, r := range s.db.rows {
		by[r.shown()]++
		if key := r.key(); key != nil && s.blocks(r) {
			keys[*key] = true
		}
		if r.state != relay.StateDead {
			c.OldestPendingAge = max(c.OldestPendingAge, s.db.now().Sub(r.created))
		}
	}
	count := func(n int) relay.Count { return relay.Count{Value: int64(min(n, bound)), Exact: n <= bound} }
	c.New, c.Sending = count(by[relay.StateNew]), count(by[relay.StateSending])
	c.Failed, c.Dead = count(by[relay.StateFailed]), count(by[relay.StateDead])
	c.BlockedKeys = count(len(keys))
	return c, nil
}

// List implements relay.Admin.
func (s *FakeStore) List(ctx context.Context, f relay.Filter) ([]relay.EventRow, error) {
	if _, err := s.enter(ctx, "List"); err != nil {
		return nil, err
	}
	defer s.db.mu.Unlock()
	if f.Limit == 0 {
		f.Limit = 50
	}
	out := []relay.EventRow{}
	for _, r := range s.matching(f) {
		row := s.eventRow(r)
		row.Payload = nil
		out = append(out, row)
	}
	return out, nil
}

// Get implements relay.Admin.
func (s *FakeStore) Get(ctx context.Context, eventID string) (relay.EventRow, bool, error) {
	if _, err := s.enter(ctx, "Get"); err != nil {
		return relay.EventRow{}, false, err
	}
	defer s.db.mu.Unlock()
	r := s.db.event(eventID)
	if r == nil {
		return relay.EventRow{}, false, nil
	}
	return s.eventRow(r), true, nil
}

// Retry implements relay.Admin.
func (s *FakeStore) Retry(ctx context.Context, f relay.Filter, dryRun bool) (done, skipped int64, err error) {
	return s.act(ctx, "Retry", f, dryRun, func(r *fakeRow) bool {
		return r.state == relay.StateFailed || r.state == relay.StateDead && (!r.discarded() || len(f.EventIDs) > 0)
	}, func(r *fakeRow) {
		s.db.put(r, relay.StateFailed)
		r.attempts, r.due = 0, s.db.now()
	})
}

// Discard implements relay.Admin.
func (s *FakeStore) Discard(ctx context.Context, f relay.Filter, reason string, dryRun bool) (done, skipped int64, err error) {
	return s.act(ctx, "Discard", f, dryRun, func(r *fakeRow) bool {
		return r.state == relay.StateDead && !r.discarded()
	}, func(r *fakeRow) {
		r.lastError = clean("discarded: " + reason + " | " + r.lastError)
	})
}

// KeepsDiscarded implements relay.Admin: there is a last_error.
func (s *FakeStore) KeepsDiscarded() bool { return true }

func (s *FakeStore) act(ctx context.Context, op string, f relay.Filter, dryRun bool, applies func(*fakeRow) bool, do func(*fakeRow)) (done, skipped int64, err error) {
	if _, err := s.enter(ctx, op); err != nil {
		return 0, 0, err
	}
	defer s.db.mu.Unlock()
	for _, r := range s.matching(f) {
		if !applies(r) {
			skipped++
			continue
		}
		done++
		if !dryRun {
			do(r)
		}
	}
	return done, skipped, nil
}

func (s *FakeStore) eventRow(r *fakeRow) relay.EventRow {
	return relay.EventRow{Event: s.read(r), Status: string(r.state), NextRetryAt: r.due.UTC(), LastError: r.lastError,
		SentAt: r.sent, Receipt: r.receipt, Discarded: r.state == relay.StateDead && r.discarded()}
}

// matching returns rows of the filter in row order.
func (s *FakeStore) matching(f relay.Filter) []*fakeRow {
	var all []*fakeRow
	for _, rows := range s.db.byEvent {
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b *fakeRow) int { return int(a.id - b.id) })
	after, _ := strconv.ParseInt(string(f.After), 10, 64)
	all = slices.DeleteFunc(all, func(r *fakeRow) bool { return r.id <= after || !s.matches(r, f) })
	if f.Limit > 0 && len(all) > f.Limit {
		all = all[:f.Limit]
	}
	return all
}

func (s *FakeStore) matches(r *fakeRow, f relay.Filter) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	key := ""
	if k := r.key(); k != nil {
		key = *k
	}
	return (len(f.States) == 0 || slices.Contains(f.States, r.shown())) &&
		(len(f.EventIDs) == 0 || slices.Contains(f.EventIDs, r.EventID)) &&
		is(f.Type, r.Type) && is(f.AggregateType, r.AggregateType) && is(f.Key, key) && is(f.Topic, r.Topic) &&
		(f.Since == time.Duration(0) || s.db.now().Sub(r.created) <= f.Since) &&
		strings.Contains(r.lastError, f.Error)
}
