package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// Records that only the broker refuses are found by halving, whatever their places: they alone bear the
// verdict, what follows them in their key is held, all others are committed once, in one transaction.
func TestTransactions_GuiltyRecordsAreFoundByHalving(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		records int
		guilty  []int
	}{
		{1, []int{0}}, {2, []int{0}}, {2, []int{1}}, {2, []int{0, 1}}, {100, []int{50}}, {100, []int{0, 99}}, {101, []int{33, 34, 67}}, {17, []int{0, 2, 4, 6, 8, 10, 12, 14, 16}},
	} {
		t.Run(fmt.Sprint(c.records, c.guilty), func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			seed := k.ListenAddrs()[0]
			topic := newTopic(t, seed, 2, nil)
			refusePoison(k)
			g := newLanes(t, seed, 4)
			s := openTx(t, seed, g, Options{})
			var recs []relay.Record
			for i := range c.records {
				recs = append(recs, row(topic, fmt.Sprintf("k%d", i%40), fmt.Sprintf("v%06d", i), int32(i%4)))
			}
			guilty, bad := map[int]bool{}, map[string]bool{}
			for _, i := range c.guilty {
				recs[i].Value = []byte(poison)
				guilty[i] = true
			}
			want := map[string]bool{}
			for i, r := range sendTx(t, s, recs...) {
				key := string(recs[i].Key)
				switch {
				case bad[key]:
					require.Equal(t, relay.ClassHeld, r.Failure.Class, "record %d", i)
				case guilty[i]:
					bad[key] = true
					require.Equal(t, relay.ClassPermanent, r.Failure.Class)
					require.Equal(t, "INVALID_RECORD", r.Failure.Code)
				default:
					require.Nil(t, r.Failure, "record %d: %v", i, r.Failure)
					want[string(recs[i].Value)] = true
				}
			}
			for _, held := range readCommitted(t, seed, topic) {
				last := map[string]string{}
				for _, r := range held {
					require.True(t, want[string(r.Value)], "%s is there once", r.Value)
					delete(want, string(r.Value))
					require.Less(t, last[string(r.Key)], string(r.Value), "order")
					last[string(r.Key)] = string(r.Value)
				}
			}
			require.Empty(t, want)
			notes := 0
			for _, records := range committedRecords(t, seed, g.topic) {
				require.LessOrEqual(t, len(records), 1, "one transaction")
				notes += len(records)
			}
			require.LessOrEqual(t, notes, 4)
		})
	}
}

// A topic's limit is lowered after it was looked up, on a broker.
func TestTransactions_LimitThatIsLowered(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "5000"})
		s := openTx(t, seed, newLanes(t, seed, 2), Options{}, "compression.type", "none")
		small := strings.Repeat("y", 100)
		mark(wellSent(t, sendTx(t, s, row(topic, "K", small+"0", 0))))
		setTopic(t, seed, topic, "max.message.bytes", "1000")
		awaitLimit(t, seed, topic, 1000)
		before := len(readCommitted(t, seed, topic)[0]) // awaitLimit's own, too
		var recs []relay.Record
		for i := range 30 {
			recs = append(recs, row(topic, fmt.Sprint("k", i), fmt.Sprintf("%s-%02d", small, i), int32(i%2)))
		}
		recs[7] = row(topic, "K", strings.Repeat("z", 1500), 0)
		recs[9] = row(topic, "K", small+"1", 0)
		results := sendTx(t, s, recs...)
		for i, r := range results {
			switch i {
			case 7:
				require.Equal(t, "MESSAGE_TOO_LARGE", r.Failure.Code)
				require.Contains(t, r.Failure.Text, "topic limit 1000 (max.message.bytes)")
			case 9:
				require.Equal(t, relay.ClassHeld, r.Failure.Class)
			default:
				require.Nil(t, r.Failure, "record %d: %v", i, r.Failure)
			}
		}
		mark(results)
		require.Len(t, readCommitted(t, seed, topic)[0], before+28)
	})
}

// A partition does not answer: what is for others is committed within about the patience, its own records are
// reported as unsent, and go through once it answers.
func TestTransactions_SilentPartition(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "hole", "open"))
	seed := k.ListenAddrs()[0]
	const patience = 300 * time.Millisecond
	g := newLanes(t, seed, 2)
	s := openTx(t, seed, g, Options{Patience: patience})
	mark(wellSent(t, sendTx(t, s, row("hole", "a", "0", 0), row("open", "a", "0", 1))))
	resume := stall(k, "hole")
	started := time.Now()
	results := sendTx(t, s, row("hole", "a", "1", 0), row("open", "a", "1", 1), row("hole", "a", "2", 0), row("open", "a", "2", 1))
	require.Less(t, time.Since(started), 3*patience)
	for i := range 4 {
		if i%2 == 1 {
			require.Nil(t, results[i].Failure)
			continue
		}
		require.Equal(t, relay.ClassUnavailable, results[i].Failure.Class)
		require.Contains(t, results[i].Failure.Text, "topic hole: partition 0 did not answer within 300ms")
	}
	mark(results)
	require.Equal(t, []string{"hole"}, s.Health().Topics)
	require.True(t, s.Health().Stalled())
	started = time.Now()
	results = sendTx(t, s, row("hole", "a", "1", 0), row("open", "a", "3", 1))
	require.Less(t, time.Since(started), patience, "it is not waited for again at once")
	require.Equal(t, relay.CodePartitionBusy, results[0].Failure.Code)
	require.Nil(t, results[1].Failure)
	mark(results)
	resume()
	returned := time.Now()
	insist(t, s, row("hole", "a", "1", 0), row("hole", "a", "2", 0))
	require.Less(t, time.Since(returned), 5*time.Second)
	require.False(t, s.Health().Stalled())
	require.Equal(t, []string{"0", "1", "2"}, valuesOf(readCommitted(t, seed, "hole")[0]))
	require.Equal(t, []string{"0", "1", "2", "3"}, valuesOf(readCommitted(t, seed, "open")[0]))
}

func valuesOf(held []relaytest.SinkRecord) (values []string) {
	for _, r := range held {
		values = append(values, string(r.Value))
	}
	return values
}

// What a broker has against a topic or a partition is said of its records, and of no others.
func TestTransactions_TopicTrouble(t *testing.T) {
	t.Parallel()
	for err, class := range map[*kerr.Error]relay.Class{
		kerr.TopicAuthorizationFailed: relay.ClassUnavailable,
		kerr.UnknownTopicOrPartition:  relay.ClassPermanent,
		kerr.UnknownTopicID:           relay.ClassUnavailable,
		kerr.InvalidRecord:            relay.ClassPermanent,
		kerr.UnknownServerError:       relay.ClassRetriable,
	} {
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, kfake.SeedTopics(1, "bad", "good"))
			seed := k.ListenAddrs()[0]
			s := openTx(t, seed, newLanes(t, seed, 2), Options{})
			mark(wellSent(t, sendTx(t, s, row("bad", "a", "0", 0), row("good", "a", "0", 1))))
			fault := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "bad", Err: err, Count: -1})
			results := sendTx(t, s, row("bad", "a", "1", 0), row("good", "a", "1", 1))
			fault.Remove()
			require.NotNil(t, results[0].Failure)
			require.Equal(t, class, results[0].Failure.Class, "%v", results[0].Failure)
			require.Nil(t, results[1].Failure)
			mark(results)
			require.Equal(t, []string{"0", "1"}, valuesOf(readCommitted(t, seed, "good")[0]))
			if class != relay.ClassPermanent || err == kerr.InvalidRecord {
				insist(t, s, row("bad", "a", "1", 0), row("good", "a", "2", 1))
				require.Equal(t, []string{"0", "1"}, valuesOf(readCommitted(t, seed, "bad")[0]))
			}
		})
	}
}
