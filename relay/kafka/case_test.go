package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// both runs a case in process and, where there is one, on a real broker.
func both(t *testing.T, run func(t *testing.T, seed string)) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		run(t, cluster(t).ListenAddrs()[0])
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		run(t, realKafka(t))
	})
}

// P01: 50 small rows, one of 150 kB, 50 small rows, all of different keys in one partition of a topic
// that takes 100,000 bytes.
func TestCase_P01_OversizeRecordIsRefusedAlone(t *testing.T) {
	random := make([]byte, 150_000)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	same := bytes.Repeat([]byte("x"), len(random))
	both(t, func(t *testing.T, seed string) {
		for _, c := range []struct {
			name    string
			props   []string
			big     []byte
			refused string // the limit that is named; empty when the record fits once compressed
		}{
			{"random, client limit above", []string{"max.request.size", "1000000"}, random, "topic limit 100000 (max.message.bytes)"},
			{"random, client limit below", []string{"max.request.size", "50000"}, random, "client limit 50000 (max.request.size)"},
			{"random, client without limit", nil, random, "topic limit 100000 (max.message.bytes)"},
			{"compressible, not compressed", nil, same, "topic limit 100000 (max.message.bytes)"},
			{"compressible, compressed", []string{"compression.type", "zstd"}, same, ""},
			{"random, compressed", []string{"compression.type", "lz4"}, random, "topic limit 100000 (max.message.bytes)"},
			{"compressible, compressed, client limit below", []string{"compression.type", "gzip", "max.request.size", "120000"}, same, "topic limit 100000 (max.message.bytes)"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "100000"})
				s := open(t, parsed(t, properties(seed, c.props...)), Options{})
				recs := make([]relay.Record, 101)
				for i := range recs {
					recs[i] = record(topic, fmt.Sprintf("k%d", i), "0123456789")
				}
				recs[50].Value = c.big
				size := batchOverhead + sizeOf(&recs[50])
				for i, r := range send(t, s, recs...) {
					if i != 50 || c.refused == "" {
						require.Nil(t, r.Failure, "record %d: %v", i, r.Failure)
						continue
					}
					require.Equal(t, relay.ClassPermanent, r.Failure.Class)
					require.Equal(t, "MESSAGE_TOO_LARGE", r.Failure.Code)
					require.Equal(t, fmt.Sprintf("topic %s: record is %d bytes, %s", topic, size, c.refused), r.Failure.Text)
				}
				small := 0
				for _, r := range readAll(t, seed, topic)[0] {
					if len(r.Value) == 10 {
						small++
					}
				}
				require.Equal(t, 100, small)
			})
		}
	})
}

// O03, both directions of a limit: what is known of a topic is never the last word on a record.
func TestCase_O03_LimitsThatChange(t *testing.T) {
	eachDelivery(t, func(t *testing.T, open openSink) {
		both(t, func(t *testing.T, seed string) { limitsThatChange(t, seed, open(t, seed)) })
	})
}

func limitsThatChange(t *testing.T, seed string, s relay.Sink) {
	topic := newTopic(t, seed, 1, map[string]string{"max.message.bytes": "2000"})
	big, small := strings.Repeat("x", 3000), strings.Repeat("y", 100)
	results := send(t, s, record(topic, "K", big), record(topic, "K", small), record(topic, "L", small), record(topic, "K", small))
	require.Equal(t, relay.ClassPermanent, results[0].Failure.Class)
	require.Equal(t, relay.ClassHeld, results[1].Failure.Class)
	require.Nil(t, results[2].Failure)
	require.Equal(t, relay.ClassHeld, results[3].Failure.Class)

	// Raised: the same records in the same order, as the gate would bring them again.
	setTopic(t, seed, topic, "max.message.bytes", "5000")
	require.Eventually(t, func() bool {
		return send(t, s, record(topic, "K", big))[0].Failure == nil
	}, 20*time.Second, 50*time.Millisecond)
	for _, r := range send(t, s, record(topic, "K", small), record(topic, "K", small)) {
		require.Nil(t, r.Failure)
	}
	lengths := func() (of []int) {
		for _, r := range readCommitted(t, seed, topic)[0] {
			if string(r.Key) == "K" {
				of = append(of, len(r.Value))
			}
		}
		return of
	}
	require.Equal(t, []int{3000, 100, 100}, lengths())

	// Lowered, while the sink still believes in the higher one: the broker refuses the batch, the
	// guilty record is found, what follows it in its key is held, the others go through.
	setTopic(t, seed, topic, "max.message.bytes", "1000")
	awaitLimit(t, seed, topic, 1000)
	recs := []relay.Record{record(topic, "a", small), record(topic, "K", strings.Repeat("z", 1500)), record(topic, "b", small), record(topic, "K", small), record(topic, "c", small)}
	results = send(t, s, recs...)
	for _, i := range []int{0, 2, 4} {
		require.Nil(t, results[i].Failure, "record %d: %v", i, results[i].Failure)
	}
	require.Equal(t, "MESSAGE_TOO_LARGE", results[1].Failure.Code)
	require.Contains(t, results[1].Failure.Text, "topic limit 1000 (max.message.bytes)")
	require.Equal(t, relay.ClassHeld, results[3].Failure.Class)
	require.Equal(t, []int{3000, 100, 100}, lengths())
}

// awaitLimit waits until the broker holds on to a lowered limit, which takes it a moment.
func awaitLimit(t *testing.T, seed, topic string, limit int) {
	t.Helper()
	s := open(t, parsed(t, properties(seed, "compression.type", "none")), Options{})
	s.topics.remember([]*topicInfo{{name: topic, partitions: 1, maxBytes: 1 << 20, at: time.Now().Add(time.Hour)}})
	require.Eventually(t, func() bool {
		f := send(t, s, record(topic, "probe", strings.Repeat("p", limit)))[0].Failure
		return f != nil && f.Code == "MESSAGE_TOO_LARGE"
	}, 20*time.Second, 50*time.Millisecond)
}

// A record that the broker's validation refuses stands among others in a batch: it is found by halving,
// whatever its place.
func TestCase_P01_GuiltyRecordsAreFoundByHalving(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		records int
		guilty  []int
	}{
		{1, []int{0}}, {2, []int{0}}, {2, []int{1}}, {2, []int{0, 1}}, {100, []int{50}}, {100, []int{0, 99}}, {101, []int{33, 34, 67}}, {1000, []int{500, 501, 900}}, {17, []int{0, 2, 4, 6, 8, 10, 12, 14, 16}},
	} {
		t.Run(fmt.Sprint(c.records, c.guilty), func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			seed := k.ListenAddrs()[0]
			topic := newTopic(t, seed, 1, nil)
			requests := refusePoison(k)
			s := open(t, parsed(t, properties(seed)), Options{})
			recs := make([]relay.Record, c.records)
			guilty := map[int]bool{}
			for i := range recs {
				recs[i] = record(topic, fmt.Sprintf("k%d", i), fmt.Sprintf("v%06d", i))
			}
			for _, i := range c.guilty {
				recs[i].Value = []byte(poison)
				guilty[i] = true
			}
			for i, r := range send(t, s, recs...) {
				require.Equal(t, guilty[i], r.Failure != nil, "record %d: %v", i, r.Failure)
				if r.Failure != nil {
					require.Equal(t, relay.ClassPermanent, r.Failure.Class)
					require.Equal(t, "INVALID_RECORD", r.Failure.Code)
				}
			}
			held := readAll(t, seed, topic)[0]
			require.Len(t, held, c.records-len(c.guilty))
			for i := 1; i < len(held); i++ {
				require.Less(t, string(held[i-1].Value), string(held[i].Value), "order")
			}
			// About two rounds for each halving and guilty record.
			require.LessOrEqual(t, requests(), 3+len(c.guilty)*2*11)
		})
	}
}

// P3 through a refusal in the middle of a pipelined batch: what stands behind a guilty record of its key
// is never in the log before it, however the halves fall.
func TestCase_O03_NothingOvertakesARefusedRecordOfItsKey(t *testing.T) {
	t.Parallel()
	eachDelivery(t, func(t *testing.T, open openSink) {
		for partitions, rounds := range map[int32]int{1: 20, 2: 5} {
			t.Run(fmt.Sprint(partitions), func(t *testing.T) {
				t.Parallel()
				refusals(t, open, partitions, rounds)
			})
		}
	})
}

func refusals(t *testing.T, open openSink, partitions int32, rounds int) {
	k := cluster(t)
	seed := k.ListenAddrs()[0]
	topic := newTopic(t, seed, partitions, nil)
	refusePoison(k)
	s := open(t, seed)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		recs := make([]relay.Record, 300)
		first := map[string]int{} // the first guilty record of each key
		for i := range recs {
			key := fmt.Sprintf("r%d-k%d", round, random.IntN(10))
			recs[i] = record(topic, key, fmt.Sprintf("%06d", i))
			if random.IntN(60) == 0 {
				recs[i].Value = []byte(poison)
				if _, known := first[key]; !known {
					first[key] = i
				}
			}
		}
		for i, r := range send(t, s, recs...) {
			at, hit := first[string(recs[i].Key)]
			switch {
			case !hit || i < at:
				require.Nil(t, r.Failure, "record %d: %v", i, r.Failure)
			case i == at:
				require.Equal(t, relay.ClassPermanent, r.Failure.Class)
			default:
				require.Equal(t, relay.ClassHeld, r.Failure.Class)
			}
		}
	}
	last := map[string]string{}
	for _, held := range readCommitted(t, seed, topic) {
		for _, r := range held {
			require.Less(t, last[string(r.Key)], string(r.Value))
			last[string(r.Key)] = string(r.Value)
		}
	}
}

const poison = "POISON"

// refusePoison lets the broker refuse batches that hold a poisoned record, as a validating broker does,
// and counts the produce requests.
func refusePoison(k *kfake.Cluster) (requests func() int) {
	count := make(chan int, 1)
	count <- 0
	k.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		count <- 1 + <-count
		preq := req.(*kmsg.ProduceRequest)
		bad := false
		for _, rt := range preq.Topics {
			for _, rp := range rt.Partitions {
				bad = bad || bytes.Contains(rp.Records, []byte(poison))
			}
		}
		if !bad {
			return nil, nil, false
		}
		resp := preq.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range preq.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition = rp.Partition
				sp.ErrorCode = kerr.InvalidRecord.Code
				if !bytes.Contains(rp.Records, []byte(poison)) {
					sp.ErrorCode = kerr.NotLeaderForPartition.Code // answered for itself the next time
				}
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	return func() int {
		n := <-count
		count <- n
		return n
	}
}
