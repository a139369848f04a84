package postgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// script answers an engine's rounds, one after the other. Of looked up rows it gives those that were asked for.
type script struct {
	*testing.T
	answers []answers
}

func (s *script) read(_ context.Context, q round) (answers, error) {
	require.NotEmpty(s, s.answers, "a round that was not expected: %+v", q)
	a := s.answers[0]
	s.answers = s.answers[1:]
	a.lookup = slices.DeleteFunc(a.lookup, func(r record) bool { return !q.lookup.has(r.id) })
	return a, nil
}

func (s *script) claim(context.Context, []record, int, int64) ([]record, error) { return nil, nil }

// TestPromise_P1_GapFilledBeforeTheLastLook: a transaction draws 11 and is open while the cursor passes it and while
// 11 is looked at; before the locks are asked for the last time it has committed and let go of them. It must be looked
// at once more, though none of those locks is a reason to.
func TestPromise_P1_GapFilledBeforeTheLastLook(t *testing.T) {
	t.Parallel()
	due := func(id int64) record {
		return record{id: id, kind: kindDue, size: 10, event: relay.Event{Row: rowID(id)}}
	}
	held := func(names ...string) *lockView {
		v := &lockView{snapshot: snapshot{xmax: 1}}
		for _, name := range names {
			v.holders = append(v.holders, holder{name: name})
		}
		return v
	}
	for name, c := range map[string]struct {
		before []answers // the fetch during which it happens
		gap    func(*tracker)
	}{
		"locks at the end of the first round": {
			gap: func(t *tracker) { t.addGaps([]string{"1/1/1"}, ofIDs([]int64{5})) },
			before: []answers{
				{forward: []record{due(12)}, forwardEnd: true, locks: held("2/2/2")},
				{lookup: []record{due(5)}, locks: held()},
			},
		},
		"locks at the beginning of the second round": {
			gap: func(t *tracker) {
				t.waiting = []gapGroup{{holders: []string{"1/1/1"}, ids: ofIDs([]int64{5})}}
				t.ready = ofIDs([]int64{5})
			},
			before: []answers{
				{forward: []record{due(12)}, forwardEnd: true},
				{locksFirst: held("2/2/2"), locks: held()},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{T: t, answers: append(c.before, answers{locks: held(), forwardEnd: true}, answers{lookup: []record{due(11)}})}
			e := &engine{rows: s, bounds: usualBounds, tracker: newTracker(10)}
			c.gap(e.tracker)
			var came []relay.RowID
			for range 2 {
				got, err := e.fetch(t.Context(), relay.Fetch{Limit: 10, MaxBytes: 1 << 20, Busy: came}, time.Unix(1, 0))
				require.NoError(t, err)
				for _, ev := range got.Events {
					came = append(came, ev.Row)
				}
			}
			require.Contains(t, came, relay.RowID("11"))
		})
	}
}
