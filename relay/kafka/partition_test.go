package kafka

import (
	"context"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// javaPartitions was printed by the Java client 4.3.1: Utils.murmur2(key), and
// BuiltInPartitioner.partitionForKey(key, n) for 12 and for 7 partitions.
var javaPartitions = []struct {
	key           string // hex
	murmur2       int32
	of12, ofSeven int32
}{
	{"", 275646681, 9, 2},
	{"61", -1563381124, 4, 5},
	{"6162", 316155434, 2, 0},
	{"616263", 479470107, 3, 4},
	{"61626364", -1323649548, 8, 5},
	{"6162636465", 461995741, 1, 4},
	{"6f726465722d3731", 128711521, 1, 1}, // order-71
	{"6f726465722d3732", 365010593, 5, 3},
	{"637573746f6d65723a3432", -674319663, 5, 6},
	{"30", 971027396, 8, 3},
	{"313233343536373839", -1822237082, 6, 1},
	// UUIDs of versions 4 and 7 as text.
	{"66343761633130622d353863632d343337322d613536372d306530326232633364343739", 1964707646, 2, 6},
	{"30313866336137652d316332642d376533662d386134622d356336643765386639613062", 1336744880, 8, 2},
	// größe, three Chinese characters, an emoji.
	{"6772c3b6c39f65", 588164084, 8, 4},
	{"e4b8ade69687e994ae", -1179355498, 10, 3},
	{"f09f9880", 131881617, 9, 0},
	{"00", 375494588, 8, 0},
	{"80", 857690492, 8, 1},
	{"ff", -311467685, 3, 5},
	{"fffefd", 998637092, 8, 5},
	{"80818283", 1420557722, 2, 3},
	{"ffffffffffffff", -71293549, 7, 4},
	{"0000000000000000", -522759933, 11, 6},
	{everyByte(), -1948347274, 10, 3},
}

func everyByte() string {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return hex.EncodeToString(all)
}

func TestCase_O05_PartitionsOfTheJavaClient(t *testing.T) {
	t.Parallel()
	for _, want := range javaPartitions {
		key, err := hex.DecodeString(want.key)
		require.NoError(t, err)
		require.Equal(t, want.murmur2, int32(murmur2(key)), "%x", key)
		require.Equal(t, want.of12, partitionOf(key, 12), "%x", key)
		require.Equal(t, want.ofSeven, partitionOf(key, 7), "%x", key)
	}
}

// The sink, not only the function, must put keys there, an empty one included; and a record without a
// key must not go where the empty key does, always.
func TestCase_O05_SinkWritesToTheJavaClientsPartitions(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, open openSink) {
		seed := cluster(t).ListenAddrs()[0]
		topic := newTopic(t, seed, 12, nil)
		s := open(t, seed)
		var recs []relay.Record
		for _, want := range javaPartitions {
			key, err := hex.DecodeString(want.key)
			require.NoError(t, err)
			recs = append(recs, relay.Record{Topic: topic, Key: key, Value: []byte("v")})
		}
		for i, r := range send(t, s, recs...) {
			require.Nil(t, r.Failure)
			require.Equal(t, javaPartitions[i].of12, r.Receipt.Partition, javaPartitions[i].key)
		}
		seen := map[int32]bool{}
		for range 24 {
			r := send(t, s, relay.Record{Topic: topic, Value: []byte("v")})[0]
			require.Nil(t, r.Failure)
			seen[r.Receipt.Partition] = true
		}
		require.Len(t, seen, 12, "records without a key take turns over the partitions")
	})
}

// Half a batch's worth of records without a key stays together, since a batch per record costs most.
func TestSink_KeylessRecordsShareBatches(t *testing.T) {
	t.Parallel()
	seed := cluster(t).ListenAddrs()[0]
	topic := newTopic(t, seed, 12, nil)
	s := open(t, parsed(t, properties(seed)), Options{})
	recs := make([]relay.Record, 100)
	for i := range recs {
		recs[i] = relay.Record{Topic: topic, Value: make([]byte, 1000)}
	}
	seen := map[int32]int{}
	for _, r := range send(t, s, recs...) {
		require.Nil(t, r.Failure)
		seen[r.Receipt.Partition]++
	}
	require.Len(t, seen, 2, "100 kB in batches of 64 KiB")
}

// send calls Write and returns the results of all records, which must be there.
func send(t testing.TB, s relay.Sink, recs ...relay.Record) []relay.Result {
	t.Helper()
	w := begin(context.Background(), s, recs...)
	w.await(t, len(recs))
	results := make([]relay.Result, len(recs))
	for i := range recs {
		results[i] = w.result(i)
	}
	return results
}
