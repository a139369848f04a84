package kafka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// Progress of any number of rows is cut into records that clusters take.
func TestInParts(t *testing.T) {
	t.Parallel()
	for _, topics := range []int{1, 5000} {
		var rows []relay.SentRow
		for i := range 40_000 {
			rows = append(rows, relay.SentRow{Row: relay.RowID(strings.Repeat("x", i%64)), Event: uint64(i),
				Receipt: relay.Receipt{Topic: fmt.Sprintf("%0200d", i%topics), Partition: 1 << 30, Offset: 1 << 60}})
		}
		var all []relay.SentRow
		parts := inParts(rows)
		require.Greater(t, len(parts), 1)
		for _, part := range parts {
			require.Less(t, len(encodeProgress(part)), maxNote)
			all = append(all, part...)
		}
		require.Equal(t, rows, all)
	}
	require.Len(t, inParts(nil), 1, "a transaction without rows has a record too")
}

// A lane with more rows than one progress record takes.
func TestTransactions_ManyRowsOfALane(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 2, nil)
		g := newLanes(t, seed, 2)
		s := openTx(t, seed, g, Options{})
		long := strings.Repeat("r", 200)
		var recs []relay.Record
		for i := range 3000 {
			r := row(topic, fmt.Sprint("k", i%7), fmt.Sprint(i), 1)
			r.Row = relay.RowID(fmt.Sprint(long, i))
			recs = append(recs, r)
		}
		results := wellSent(t, sendTx(t, s, recs...))
		first := g.from(1)
		noted := 0
		records := committedRecords(t, seed, g.topic)[1]
		require.Greater(t, len(records), 2)
		for _, r := range records {
			rows, err := decodeProgress(r.Value)
			require.NoError(t, err)
			noted += len(rows)
		}
		require.Equal(t, len(recs), noted)
		require.Equal(t, records[0].Offset, first)
		mark(results)
		require.Equal(t, records[len(records)-1].Offset+1, g.from(1))
	})
}
