package kafka

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/relay"
)

func TestProgress_RoundTrip(t *testing.T) {
	t.Parallel()
	row := rapid.OneOf(rapid.StringMatching(`[1-9][0-9]{0,18}`), rapid.StringMatching(`[0-9a-f-]{1,36}`), rapid.StringMatching(`0[0-9]{0,3}`))
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOf(rapid.Custom(func(t *rapid.T) relay.SentRow {
			return relay.SentRow{Row: relay.RowID(row.Draw(t, "row")), Event: rapid.Uint64().Draw(t, "event"), Receipt: relay.Receipt{
				Topic:     rapid.SampledFrom([]string{"orders", "a", strings.Repeat("x", 249)}).Draw(t, "topic"),
				Partition: rapid.Int32Min(0).Draw(t, "partition"), Offset: rapid.Int64Min(0).Draw(t, "offset")}}
		})).Draw(t, "sent")
		got, err := decodeProgress(encodeProgress(sent))
		require.NoError(t, err)
		require.ElementsMatch(t, sent, got)
	})
}

// TestProgress_Size: what a batch notes beside its records must stay small.
func TestProgress_Size(t *testing.T) {
	t.Parallel()
	sent := make([]relay.SentRow, 2000)
	for i := range sent {
		sent[i] = relay.SentRow{Row: relay.RowID("1000000000" + string(rune('0'+i%10))), Event: uint64(i) << 40, Receipt: relay.Receipt{Topic: "orders", Partition: 7, Offset: 1 << 30}}
	}
	require.Less(t, len(encodeProgress(sent)), 2000*20)
}

func FuzzProgress(f *testing.F) {
	f.Add(encodeProgress([]relay.SentRow{{Row: "17", Event: 5, Receipt: relay.Receipt{Topic: "orders", Partition: 2, Offset: 9}}, {Row: "x"}}))
	f.Add([]byte{})
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		sent, err := decodeProgress(b)
		if err != nil {
			return
		}
		again, err := decodeProgress(encodeProgress(sent))
		if err != nil || len(again) != len(sent) {
			t.Fatalf("%d rows, then %d: %v", len(sent), len(again), err)
		}
	})
}
