package crashtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// good is a run as it should be: two keys, six events, one of them doubled after a crash, one
// transaction rolled back, one of unknown outcome that was committed and one that was not.
func good() History {
	h := History{Attempts: []Attempt{
		{[]string{"a1", "b1"}, Committed}, {[]string{"a2"}, Committed}, {[]string{"a3"}, Unknown},
		{[]string{"b2"}, Committed}, {[]string{"b3"}, Committed}, {[]string{"x"}, RolledBack}, {[]string{"y"}, Unknown},
	}}
	for i, id := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		e := Entry{EventID: id, Key: id[:1], Counter: int64(i%3) + 1, Hash: "hash of " + id}
		h.Ledger = append(h.Ledger, e)
		at := Place{Topic: "t", Partition: int32(i / 3), Offset: int64(i % 3)}
		h.Records = append(h.Records, Record{Place: at, EventID: id, Key: e.Key, Hash: e.Hash})
		h.Rows = append(h.Rows, Row{EventID: id, Key: e.Key, Status: "SENT", Receipt: &at})
	}
	again := h.Records[1] // a2 was sent again, behind a3, and the row has the second receipt
	again.Offset = 3
	h.Records = append(h.Records, again)
	h.Rows[1].Receipt = &again.Place
	return h
}

func TestCheck_AGoodRunHasNoFindings(t *testing.T) {
	t.Parallel()
	r := Check(good(), Rules{Ordered: true, MaxDoubles: 1})
	require.Empty(t, r.Findings, r.String())
	require.Equal(t, Report{Committed: 6, RolledBack: 1, Unknown: 2, Delivered: 6, Doubled: 1}, r)
}

// place moves a record.
func place(offset int64) Place { return Place{Topic: "t", Offset: offset} }

// TestCheck_SeesEachPlantedDefect plants one defect at a time in the good run.
func TestCheck_SeesEachPlantedDefect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(h *History)
		want  []string // promises, in the order in which they are found
	}{
		"an event is missing in Kafka": {func(h *History) {
			h.Records = slices.Delete(h.Records, 0, 1)
		}, []string{HonestState, NoLoss}},
		"an event was never sent": {func(h *History) {
			h.Records = slices.Delete(h.Records, 0, 1)
			h.Rows[0].Status, h.Rows[0].Receipt = "NEW", nil
		}, []string{Settled, NoLoss}},
		"a phantom": {func(h *History) {
			h.Records = append(h.Records, Record{Place: place(9), EventID: "x", Key: "a"})
		}, []string{NoPhantom}},
		"a record without an id": {func(h *History) {
			h.Records = append(h.Records, Record{Place: place(9), Key: "a"})
		}, []string{NoPhantom}},
		"doubles beyond the bound": {func(h *History) {
			again := h.Records[0]
			again.Offset = 8
			h.Records = append(h.Records, again)
		}, []string{Doubles}},
		"two events of a key in the wrong order": {func(h *History) {
			h.Records[0].Place, h.Records[2].Place = h.Records[2].Place, h.Records[0].Place
			h.Rows[0].Receipt, h.Rows[2].Receipt = h.Rows[2].Receipt, h.Rows[0].Receipt
		}, []string{Ordered, Ordered}},
		"a key in two partitions": {func(h *History) {
			h.Records[2].Partition, h.Records[2].Offset = 7, 0
			h.Rows[2].Receipt = &Place{Topic: "t", Partition: 7}
		}, []string{Ordered}},
		"altered bytes": {func(h *History) { h.Records[3].Hash = "another" }, []string{SameBytes}},
		"altered bytes in a double": {func(h *History) {
			h.Records[6].Hash = "another"
		}, []string{SameBytes}},
		"another key": {func(h *History) { h.Records[3].Key = "c" }, []string{SameBytes}},
		"a receipt of another event": {func(h *History) {
			h.Rows[0].Receipt = h.Rows[2].Receipt
		}, []string{HonestState}},
		"a receipt of nothing": {func(h *History) {
			h.Rows[0].Receipt = &Place{Topic: "t", Offset: 99}
		}, []string{HonestState}},
		"SENT without a receipt":      {func(h *History) { h.Rows[0].Receipt = nil }, []string{HonestState}},
		"a receipt of an unsent row":  {func(h *History) { h.Rows[0].Status = "NEW" }, []string{Settled, HonestState}},
		"a claim that nobody ends":    {func(h *History) { h.Rows[0].Status, h.Rows[0].Receipt = "SENDING", nil }, []string{Settled}},
		"an attempt for an outage":    {func(h *History) { h.Rows[4].RetryCount = 1 }, []string{NoAttempts}},
		"a row that nobody committed": {func(h *History) { h.Ledger = slices.Delete(h.Ledger, 2, 3) }, []string{AllOrNone, NoPhantom}},
		"a commit without its row":    {func(h *History) { h.Rows = slices.Delete(h.Rows, 3, 4) }, []string{AllOrNone}},
		"a row that stands twice":     {func(h *History) { h.Rows = append(h.Rows, h.Rows[0]) }, []string{AllOrNone}},
		"a rollback that was written": {func(h *History) { h.Attempts[1].Outcome = RolledBack }, []string{AllOrNone}},
		"a commit that was forgotten": {func(h *History) {
			h.Attempts = append(h.Attempts, Attempt{[]string{"z"}, Committed})
		}, []string{AllOrNone}},
		"dead without a reason": {func(h *History) {
			h.Records = slices.Delete(h.Records, 0, 1)
			h.Rows[0].Status, h.Rows[0].Receipt = "DEAD", nil
		}, []string{Settled, NoLoss}},
		"dead for an outage": {func(h *History) {
			h.Records = slices.Delete(h.Records, 0, 1)
			h.Rows[0] = Row{EventID: "a1", Key: "a", Status: "DEAD", RetryCount: 1, LastError: "[retriable] timed out"}
		}, []string{Settled, NoAttempts}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			c.plant(&h)
			r := Check(h, Rules{Ordered: true, MaxDoubles: 1})
			var found []string
			for _, f := range r.Findings {
				found = append(found, f.Promise)
			}
			require.Equal(t, c.want, found, r.String())
		})
	}
}

func TestCheck_WithoutOrderOnlyEventsCount(t *testing.T) {
	t.Parallel()
	h := good()
	h.Records[0].Place, h.Records[2].Place = h.Records[2].Place, h.Records[0].Place
	h.Rows[0].Receipt, h.Rows[2].Receipt = h.Rows[2].Receipt, h.Rows[0].Receipt
	require.Empty(t, Check(h, Rules{MaxDoubles: 1}).Findings)
}

func TestReport_StringIsBounded(t *testing.T) {
	t.Parallel()
	var h History
	for i := range 1000 {
		h.Records = append(h.Records, Record{Place: place(int64(i)), EventID: fmt.Sprint("ghost ", i)})
	}
	text := Check(h, Rules{}).String()
	require.Less(t, len(text), 2000)
	require.Contains(t, text, "P2 no phantom: event ghost 0 stands at t/0@0, and was not committed")
	require.Contains(t, text, "P2 no phantom: 992 more")
}
