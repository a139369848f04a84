package kafka

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// marking is a sink whose records are rows of a table that shows them at once.
type marking struct{ relay.Sink }

func (m marking) Write(ctx context.Context, recs []relay.Record, report func(int, relay.Result)) {
	for i := range recs {
		recs[i].Row, recs[i].Lane = relay.RowID(strconv.Itoa(i)), int32(i%3)
	}
	m.Sink.Write(ctx, recs, func(i int, r relay.Result) {
		marked := r.Marked
		r.Marked = nil
		report(i, r)
		if marked != nil {
			marked()
		}
	})
}

func txHarness(seed string) relaytest.SinkHarness {
	h := harness(seed)
	h.Open = func(t *testing.T) relay.Sink {
		return marking{openTx(t, seed, newLanes(t, seed, 3), Options{Patience: h.Patience})}
	}
	h.Read = func(t *testing.T, topic string) [][]relaytest.SinkRecord { return readCommitted(t, seed, topic) }
	return h
}

func TestTransactions_Conformance(t *testing.T) {
	both(t, func(t *testing.T, seed string) { relaytest.RunSink(t, txHarness(seed)) })
}

// All of a Write is there for readers of committed records, receipts are right, and the group's offsets and
// the progress records say what was sent.
func TestTransactions_Write(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		a, b := newTopic(t, seed, 3, nil), newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 4)
		s := openTx(t, seed, g, Options{})
		var want []relay.Record
		var got []relay.Result
		for n := range 5 {
			var recs []relay.Record
			for i := range 40 {
				topic := a
				if i%4 == 0 {
					topic = b
				}
				recs = append(recs, row(topic, fmt.Sprint("k", i), fmt.Sprintf("%d-%d", n, i), int32(i%3)))
			}
			results := wellSent(t, sendTx(t, s, recs...))
			mark(results)
			want, got = append(want, recs...), append(got, results...)
		}
		there := map[relay.Receipt]string{}
		for _, topic := range []string{a, b} {
			for p, held := range readCommitted(t, seed, topic) {
				for _, r := range held {
					there[relay.Receipt{Topic: topic, Partition: int32(p), Offset: r.Offset}] = string(r.Value)
				}
			}
		}
		require.Len(t, there, len(want))
		noted := map[relay.RowID]relay.SentRow{}
		for _, records := range committedRecords(t, seed, g.topic) {
			for _, r := range records {
				rows, err := decodeProgress(r.Value)
				require.NoError(t, err)
				require.Contains(t, transactionOf(r), g.topic+"/"+g.name+"/0/")
				require.Regexp(t, "^0/[012]$", string(r.Key), "the place of the transaction: flow and slot")
				for _, row := range rows {
					noted[row.Row] = row
				}
			}
		}
		for i := range want {
			require.Equal(t, string(want[i].Value), there[got[i].Receipt])
			require.Equal(t, relay.SentRow{Row: want[i].Row, Event: want[i].Event, Receipt: got[i].Receipt}, noted[want[i].Row])
		}
		offsets := groupOffsets(t, seed, g)
		require.Len(t, offsets, 3)
		for lane, o := range offsets {
			require.Equal(t, g.metadata(lane), o.Metadata)
		}
	})
}

// groupOffsets are the group's, once stable.
func groupOffsets(t testing.TB, seed string, g *testLanes) map[int32]kadm.Offset {
	t.Helper()
	offsets := map[int32]kadm.Offset{}
	require.Eventually(t, func() bool {
		clear(offsets)
		found, err := admin(t, seed).FetchOffsets(kadm.RequireStable(t.Context()), g.topic)
		if err != nil || found.Error() != nil {
			return false
		}
		found.Each(func(o kadm.OffsetResponse) { offsets[o.Partition] = o.Offset })
		return true
	}, 20*time.Second, 10*time.Millisecond)
	return offsets
}
