package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawSpans makes a set and the same set as a map, over ids from 1 to 40.
func drawSpans(t *rapid.T, name string) (spans, map[int64]bool) {
	var all []span
	want := map[int64]bool{}
	for range rapid.IntRange(0, 6).Draw(t, name) {
		lo := rapid.Int64Range(1, 40).Draw(t, name+" lo")
		hi := min(40, lo+rapid.Int64Range(0, 6).Draw(t, name+" width"))
		all = append(all, span{lo, hi})
		for id := lo; id <= hi; id++ {
			want[id] = true
		}
	}
	return newSpans(all), want
}

func TestSpans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, inA := drawSpans(t, "a")
		b, inB := drawSpans(t, "b")
		cut := rapid.Int64Range(0, 41).Draw(t, "cut")
		n := rapid.IntRange(1, 4).Draw(t, "n")
		sets := map[string]spans{"union": a.union(b), "both": a.both(b), "minus": a.minus(b), "upTo": a.upTo(cut)}
		for name, s := range sets {
			for i, r := range s {
				if r.lo > r.hi || i > 0 && r.lo <= s[i-1].hi {
					t.Fatalf("%s: %v is no ascending set", name, s)
				}
			}
		}
		coarse := a.coarse(n)
		if len(coarse) > n {
			t.Fatalf("coarse(%d) has %d ranges", n, len(coarse))
		}
		for id := int64(0); id <= 41; id++ {
			for name, want := range map[string]bool{
				"union": inA[id] || inB[id], "both": inA[id] && inB[id], "minus": inA[id] && !inB[id], "upTo": inA[id] && id <= cut,
			} {
				if sets[name].has(id) != want {
					t.Fatalf("%s of %v and %v: %d is in: %v", name, a, b, id, !want)
				}
			}
			if inA[id] && !coarse.has(id) {
				t.Fatalf("coarse lost %d", id)
			}
		}
	})
	require.Equal(t, spans{{3, 4}, {7, 7}}, missing(2, []int64{5, 6, 8, 9}))
	require.Empty(t, missing(0, nil))
	require.Equal(t, spans{{1, 1_000_000_000}}, missing(0, []int64{1_000_000_001}), "a jump of the sequence is one range")
}

func TestSnapshot_Unfinished(t *testing.T) {
	t.Parallel()
	const high = uint64(7) << 32
	s := parseSnapshot("30064771572:30064771582:30064771572,30064771575")
	require.Equal(t, high+510, s.xmax)
	for xid, want := range map[uint32]bool{500: true, 503: true, 501: false, 509: false, 510: true, 600: true} {
		require.Equal(t, want, s.unfinished(holder{xids: []uint32{xid}}), "xid %d", xid)
	}
	require.True(t, s.unfinished(holder{}), "it has written nothing")
	require.True(t, s.unfinished(holder{xids: []uint32{501, 503}}), "a subtransaction has ended, the transaction has not")
	require.False(t, parseSnapshot("rubbish").unfinished(holder{xids: []uint32{1}}), "in doubt, look again")
	wrapped := parseSnapshot("4294967290:4294967300:")
	require.True(t, wrapped.unfinished(holder{xids: []uint32{5}}), "an xid after the wrap has not begun")
	require.False(t, wrapped.unfinished(holder{xids: []uint32{4294967295}}))
}

func TestGapGroup_Check(t *testing.T) {
	t.Parallel()
	open := snapshot{xmax: 100, running: []uint64{7, 8, 9}}
	g := gapGroup{holders: []string{"2/1/1", "3/1/1"}}
	still := &lockView{snapshot: open, holders: []holder{{"2/1/1", []uint32{7}}, {"3/1/1", nil}, {"9/9/9", []uint32{9}}}}
	require.False(t, g.check(still))
	require.Len(t, g.holders, 2)
	require.True(t, g.check(&lockView{snapshot: open, holders: []holder{{"2/1/1", []uint32{7}}, {"-1/8/0", []uint32{8}}}}), "one is gone")
	require.Equal(t, []string{"-1/8/0", "2/1/1"}, g.holders, "it may have been prepared")
	require.True(t, g.check(&lockView{snapshot: snapshot{xmax: 100, running: []uint64{8}}, holders: []holder{{"2/1/1", []uint32{7}}, {"-1/8/0", []uint32{8}}}}),
		"visible, though its lock is still there")
	require.True(t, g.check(&lockView{snapshot: open, holders: []holder{{"-1/5/0", []uint32{5}}}}))
	require.Equal(t, []string{"-1/5/0"}, g.holders)
	require.True(t, g.check(&lockView{snapshot: open, holders: []holder{{"-1/6/0", []uint32{6}}}}))
	require.Empty(t, g.holders, "a prepared transaction that is gone has ended")
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ab", clip("a\x00b", 10))
	require.Equal(t, "äö", clip("äöü", 2))
	require.Equal(t, "a\uFFFDb", clip("a\xffb", 10))
	require.Len(t, []rune(clip(strings.Repeat("€", 9000), maxLastError)), maxLastError)
}

func TestQuoting(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"a""b"`, quote(`a"b`))
	require.Equal(t, "'it''s'", lit("it's"))
	require.Equal(t, ` E'a\\''b'`, lit(`a\'b`))
}

// TestTracker_Low: a later relay begins at the lowest id that may still have to be returned.
func TestTracker_Low(t *testing.T) {
	t.Parallel()
	tr := newTracker(100)
	require.EqualValues(t, 101, tr.low())
	tr.out[90] = taken{}
	require.EqualValues(t, 90, tr.low())
	tr.out[10] = taken{retry: true}
	require.EqualValues(t, 90, tr.low(), "a failed row is found by its time")
	tr.addGaps([]string{"1/1/1"}, spans{{80, 81}})
	require.EqualValues(t, 80, tr.low())
	tr.pass("k", 70)
	require.EqualValues(t, 70, tr.low())
	tr.gates(map[string]int64{}, nil)
	require.EqualValues(t, 70, tr.low(), "it is being read again")
	tr.ready = spans{{60, 60}}
	require.EqualValues(t, 60, tr.low())
}

// TestTracker_Ends: keys that wait do not hold the low end down, as long as a later relay can be told of them.
func TestTracker_Ends(t *testing.T) {
	t.Parallel()
	tr := newTracker(1000)
	position := func() string { return writePosition(tr.ends()) }
	require.Equal(t, "1001", position())
	tr.out[900] = taken{}
	tr.pass("above", 950)
	tr.pass("k", 70)
	tr.pass("l", 36)
	require.Equal(t, "900,10,1y", position(), "what lies above is read anyhow")
	low, waits := readPosition(position())
	require.EqualValues(t, 900, low)
	require.Equal(t, []int64{36, 70}, waits)
	for i := range int64(maxWaits) {
		tr.pass(fmt.Sprint("many", i), 100+i)
	}
	low, waits = tr.ends()
	require.EqualValues(t, 100+maxWaits-2, low, "the first that cannot be told")
	require.Len(t, waits, maxWaits)
	require.EqualValues(t, 36, tr.low())
	for _, bad := range []string{"", "x", "5,%", "7,,8"} {
		low, waits = readPosition(bad)
		require.Zero(t, low, bad)
		require.Empty(t, waits, bad)
	}
	low, waits = readPosition("12")
	require.EqualValues(t, 12, low)
	require.Empty(t, waits)
}

// TestTracker_Bounds: what is remembered is bounded, and nothing is forgotten by it.
func TestTracker_Bounds(t *testing.T) {
	t.Parallel()
	tr := newTracker(1_000_000)
	tr.maxGaps = 1000
	for id := int64(1); id < 100_000; id += 3 {
		tr.addGaps([]string{"a", "b"}[id%2:], spans{{id, id}})
	}
	n := 0
	for _, g := range tr.gaps {
		n += len(g.ids)
	}
	require.LessOrEqual(t, n, 1001)
	for id := int64(1); id < 100_000; id += 3 {
		require.True(t, slices.ContainsFunc(tr.gaps, func(g gapGroup) bool { return g.ids.has(id) }))
	}
}
