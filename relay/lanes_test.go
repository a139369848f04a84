package relay

import (
	"hash/fnv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaneOf: the lane of a key is for good. Were it to change, two relays of different versions would work on
// one key.
func TestLaneOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{"": 2, "a": 2, "ORD-1": 0, "订单-1": 9, "\u00e9": 14, "e\u0301": 11, strings.Repeat("x", 1000): 4} {
		require.Equal(t, want, LaneOf(key, 16), "%.20q", key)
		require.Zero(t, LaneOf(key, 1))
	}
}

func TestHashEvent(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "a", "018f3f9e-0000-7000-8000-000000000001", "事件"} {
		h := fnv.New64a()
		_, _ = h.Write([]byte(id))
		require.Equal(t, h.Sum64(), HashEvent(id))
	}
}

func TestStoreOptions_OwnedLanes(t *testing.T) {
	t.Parallel()
	o := StoreOptions{Claim: ClaimLanes, Lanes: 4}
	got, err := o.OwnedLanes([]OwnLane{{Lane: 3}, {Lane: 0, Low: "7"}})
	require.NoError(t, err)
	require.Equal(t, []int32{0, 3}, got)
	for _, bad := range [][]OwnLane{{{Lane: 4}}, {{Lane: -1}}, {{Lane: 1}, {Lane: 1}}} {
		_, err := o.OwnedLanes(bad)
		require.ErrorContains(t, err, "is not one of 4 lanes, or named twice")
	}
	o.Claim = ClaimSingle
	_, err = o.OwnedLanes(nil)
	require.ErrorContains(t, err, "claim: single")
}
