package demo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// kept is a run that kept every promise: two keys, three events, all delivered and applied.
func kept() Evidence {
	record := func(id, key string, version int, partition int32, offset int64) Record {
		return Record{EventID: id, Key: key, Version: version, Digest: "d-" + id, Topic: "t", Partition: partition, Offset: offset}
	}
	return Evidence{
		Ledger: []Entry{
			{"a1", "a", orderCreated, 1, "d-a1"}, {"a2", "a", orderPaid, 2, "d-a2"}, {"b1", "b", orderCreated, 1, "d-b1"},
		},
		Records: []Record{record("a1", "a", 1, 0, 0), record("a2", "a", 2, 0, 1), record("b1", "b", 1, 1, 0)},
		Rows:    map[string]Row{},
		Effects: map[string]Effects{"inventory": {Handles: []string{orderCreated}, Applied: map[string]int{"a1": 1, "b1": 1}}},
	}
}

// TestJudge_SeesEachDefect plants one defect at a time in a run without any.
func TestJudge_SeesEachDefect(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		plant func(*Evidence)
		want  func(*Verdict)
	}{
		"nothing": {func(*Evidence) {}, func(*Verdict) {}},
		"a committed event that Kafka never got": {
			func(e *Evidence) { e.Records = e.Records[:2] },
			func(v *Verdict) { v.Delivered, v.Missing = 2, 1 },
		},
		"a dead event without a reason is as good as gone": {
			func(e *Evidence) { e.Records = e.Records[:2]; e.Rows["b1"] = Row{State: relay.StateDead} },
			func(v *Verdict) { v.Delivered, v.Missing = 2, 1 },
		},
		"a dead event with its reason is not missing": {
			func(e *Evidence) { e.Records = e.Records[:2]; e.Rows["b1"] = Row{relay.StateDead, "[permanent] why"} },
			func(v *Verdict) { v.Delivered, v.Dead = 2, 1 },
		},
		"an event that waits is not missing": {
			func(e *Evidence) { e.Records = e.Records[:2]; e.Rows["b1"] = Row{State: relay.StateFailed} },
			func(v *Verdict) { v.Delivered, v.Waiting = 2, 1 },
		},
		"a record of a transaction that rolled back": {
			func(e *Evidence) { e.Records = append(e.Records, Record{EventID: "x", Key: "a", Topic: "t"}) },
			func(v *Verdict) { v.Phantom = 1 },
		},
		"a record without an id": {
			func(e *Evidence) { e.Records = append(e.Records, Record{Topic: "other"}) },
			func(v *Verdict) { v.Phantom = 1 },
		},
		"an effect of a transaction that rolled back": {
			func(e *Evidence) { e.Effects["inventory"].Applied["x"] = 1 },
			func(v *Verdict) { v.Phantom = 1 },
		},
		"a record twice": {
			func(e *Evidence) { e.Records = append(e.Records, e.Records[0]) },
			func(v *Verdict) { v.Doubled = 1 },
		},
		"a record three times": {
			func(e *Evidence) { e.Records = append(e.Records, e.Records[1], e.Records[1]) },
			func(v *Verdict) { v.Doubled = 2 },
		},
		"an event applied twice": {
			func(e *Evidence) { e.Effects["inventory"].Applied["b1"] = 2 },
			func(v *Verdict) { v.AppliedTwice = 1 },
		},
		"a delivered event that was never applied": {
			func(e *Evidence) { delete(e.Effects["inventory"].Applied, "b1") },
			func(v *Verdict) { v.NotApplied = 1 },
		},
		"an event behind a later one of its key": {
			func(e *Evidence) { e.Records[0], e.Records[1] = e.Records[1], e.Records[0] },
			func(v *Verdict) { v.OutOfOrder = 1 },
		},
		"a key in two partitions": {
			func(e *Evidence) { e.Records[1].Partition = 2 },
			func(v *Verdict) { v.OutOfOrder = 1 },
		},
		"a key in two topics": {
			func(e *Evidence) { e.Records[1].Topic = "u" },
			func(v *Verdict) { v.OutOfOrder = 1 },
		},
		"a repetition does not count for the order": {
			func(e *Evidence) { e.Records = append(e.Records, e.Records[0]) },
			func(v *Verdict) { v.Doubled, v.OutOfOrder = 1, 0 },
		},
		"other bytes than written": {
			func(e *Evidence) { e.Records[2].Digest = "else" },
			func(v *Verdict) { v.Altered = 1 },
		},
		"another key than written": {
			func(e *Evidence) { e.Records[2].Key = "c" },
			func(v *Verdict) { v.Altered = 1 },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			evidence := kept()
			c.plant(&evidence)
			want := Verdict{Committed: 3, Delivered: 3}
			c.want(&want)
			require.Equal(t, want, Judge(evidence))
		})
	}
}

func TestSummary_Broken(t *testing.T) {
	t.Parallel()
	require.False(t, Summary{OrdersCommitted: 1, EventsCommitted: 3, EventsDelivered: 2, Dead: 1, Waiting: 1, DuplicatesSkipped: 4}.Broken())
	for _, s := range []Summary{
		{Missing: 1}, {Phantom: 1}, {Doubled: 1}, {AppliedTwice: 1}, {OutOfOrder: 1}, {Altered: 1}, {NotApplied: 1},
		{Undelivered: "the time was over"},
	} {
		require.True(t, s.Broken(), "%+v", s)
	}
}
