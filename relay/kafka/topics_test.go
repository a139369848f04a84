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
)

func TestSink_MissingTopicIsNoticedOnceItExists(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		name := fmt.Sprintf("late-%d-%d", time.Now().UnixNano(), topicNumber.Add(1))
		s := open(t, parsed(t, properties(seed)), Options{UnknownTopicGrace: time.Hour})
		f := send(t, s, record(name, "k", "v"))[0].Failure
		require.Equal(t, relay.ClassPermanent, f.Class)
		require.Equal(t, time.Hour, f.Grace)
		require.Equal(t, "topic "+name+": it does not exist", f.Text)
		require.Contains(t, f.Hint, "kafka-topics.sh --bootstrap-server "+seed+" --create --topic '"+name+"' --partitions 12 --replication-factor ")
		require.NotContains(t, f.Hint, "{")
		require.Contains(t, f.Hint, "or let the relay do it with relay.create_topics; once it is there, postrider events retry for events that are DEAD by then")
		createTopic(t, seed, name, 1, nil)
		require.Eventually(t, func() bool { return send(t, s, record(name, "k", "v"))[0].Failure == nil }, 5*time.Second, 20*time.Millisecond)
	})
}

func TestSink_CreatesTopicsByChoiceOnly(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		name := fmt.Sprintf("made-%d-%d", time.Now().UnixNano(), topicNumber.Add(1))
		t.Cleanup(func() { dropTopic(t, seed, name) })
		s := open(t, parsed(t, properties(seed)), Options{CreateTopics: CreateTopics{Partitions: 3}, Patience: 5 * time.Second})
		require.Nil(t, send(t, s, record(name, "k", "v"))[0].Failure)
		m, err := admin(t, seed).Metadata(t.Context(), name)
		require.NoError(t, err)
		require.Len(t, m.Topics[name].Partitions, 3)
		found := s.CheckTopics(t.Context(), []string{name, name})
		require.Len(t, found, 1)
		require.True(t, found[0].Minor, "a cluster with one broker has one replica of each topic")
	})
}

// TestSink_HintAsksForReplicasThatTheClusterHas: a command that the cluster refuses is no help.
func TestSink_HintAsksForReplicasThatTheClusterHas(t *testing.T) {
	t.Parallel()
	for brokers, want := range map[int]string{1: "--replication-factor 1,", 2: "--replication-factor 2,", 5: "--replication-factor 3,"} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers))
		require.NoError(t, err)
		defer cluster.Close()
		s := open(t, parsed(t, properties(cluster.ListenAddrs()[0])), Options{})
		require.Contains(t, send(t, s, record("nowhere", "k", "v"))[0].Failure.Hint, want)
		require.Contains(t, s.CheckTopics(t.Context(), []string{"elsewhere"})[0].Advice, want)
	}
}

func dropTopic(t *testing.T, seed, name string) {
	_, err := admin(t, seed).DeleteTopic(contextOf(t), name)
	require.NoError(t, err)
}

// A topic that is deleted and created again is another topic: the client's sequence numbers for the old
// one must not make new records look like copies.
func TestSink_TopicDeletedAndCreatedAgain(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		name := fmt.Sprintf("again-%d-%d", time.Now().UnixNano(), topicNumber.Add(1))
		createTopic(t, seed, name, 2, nil)
		other := newTopic(t, seed, 1, nil)
		s := open(t, parsed(t, properties(seed)), Options{})
		for life := range 3 {
			sent := 0
			require.Eventually(t, func() bool {
				results := send(t, s, record(name, "k", fmt.Sprint(sent)), record(other, "k", "v"))
				if results[1].Failure != nil {
					require.Equal(t, relay.ClassUnavailable, results[1].Failure.Class)
				}
				if f := results[0].Failure; f != nil {
					require.Contains(t, []relay.Class{relay.ClassUnavailable, relay.ClassPermanent}, f.Class)
					require.True(t, f.Class == relay.ClassUnavailable || f.Grace > 0, "%v", f)
					return false
				}
				sent++
				return sent == 5
			}, 30*time.Second, 20*time.Millisecond, "life %d", life)
			inOrder(t, seed, name, 1, 5)
			dropTopic(t, seed, name)
			if life == 1 { // the sink meets the gap
				require.Eventually(t, func() bool {
					f := send(t, s, record(name, "k", "lost"))[0].Failure
					return f != nil && f.Code == "UNKNOWN_TOPIC_OR_PARTITION"
				}, 20*time.Second, 20*time.Millisecond)
			}
			awaitGone(t, seed, name)
			createTopic(t, seed, name, 2, nil)
		}
	})
}

func awaitGone(t *testing.T, seed, name string) {
	t.Helper()
	adm := admin(t, seed)
	require.Eventually(t, func() bool {
		m, err := adm.Metadata(t.Context(), name)
		return err == nil && m.Topics[name].Err != nil
	}, 20*time.Second, 20*time.Millisecond)
}

// Partitions that are added are used once the sink's knowledge is older than its TTL, or when a record
// names one of them.
func TestSink_PartitionsThatAreAdded(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		s := open(t, parsed(t, properties(seed)), Options{})
		require.Nil(t, send(t, s, record(topic, "k", "v"))[0].Failure)
		_, err := admin(t, seed).CreatePartitions(t.Context(), 2, topic)
		require.NoError(t, err)
		third := int32(2)
		r := record(topic, "k", "v")
		r.Partition = &third
		require.Eventually(t, func() bool { return send(t, s, r)[0].Failure == nil }, 20*time.Second, 50*time.Millisecond)
	})
}

func TestSink_KnowledgeIsRefreshedBehindTheWrite(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	seed := k.ListenAddrs()[0]
	topic := newTopic(t, seed, 1, nil)
	s := open(t, parsed(t, properties(seed)), Options{TopicTTL: 10 * time.Millisecond})
	require.Nil(t, send(t, s, record(topic, "k", "v"))[0].Failure)
	setTopic(t, seed, topic, "cleanup.policy", "compact")
	require.Eventually(t, func() bool {
		f := send(t, s, relay.Record{Topic: topic, Value: []byte("v")})[0].Failure
		return f != nil && f.Code == "INVALID_RECORD" && f.Class == relay.ClassPermanent && strings.Contains(f.Text, "compacted")
	}, 5*time.Second, 10*time.Millisecond)
	require.Nil(t, send(t, s, record(topic, "k", "v"), relay.Record{Topic: topic, Key: []byte("k")})[1].Failure, "a tombstone has a key")

	// The cluster stops answering questions: what is known stays good.
	k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.BrokerNotAvailable, Count: -1})
	for range 5 {
		require.Nil(t, send(t, s, record(topic, "k", "v"))[0].Failure)
	}
}

func TestSink_CheckTopics(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.NumBrokers(3))
	seed := k.ListenAddrs()[0]
	adm := admin(t, seed)
	create := func(name string, replicas int16, config map[string]*string) {
		_, err := adm.CreateTopic(t.Context(), 1, replicas, config, name)
		require.NoError(t, err)
	}
	text := func(s string) *string { return &s }
	create("good", 3, map[string]*string{"min.insync.replicas": text("2")})
	create("single", 1, nil)
	create("weak", 3, map[string]*string{"min.insync.replicas": text("1")})
	create("brittle", 3, map[string]*string{"min.insync.replicas": text("3")})
	create("impossible", 2, map[string]*string{"min.insync.replicas": text("3")})
	create("small", 3, map[string]*string{"min.insync.replicas": text("2"), "max.message.bytes": text("1000")})
	create("compacted", 3, map[string]*string{"min.insync.replicas": text("2"), "cleanup.policy": text("compact,delete")})
	s := open(t, parsed(t, properties(seed, "max.request.size", "5000")), Options{})
	got := map[string][]Finding{}
	names := []string{"good", "single", "weak", "brittle", "impossible", "small", "compacted", "missing", "not legal", "good"}
	for _, f := range s.CheckTopics(t.Context(), names) {
		got[f.Topic] = append(got[f.Topic], f)
	}
	require.Empty(t, got["good"])
	for name, want := range map[string]string{
		"single":     "it has one replica: its records are lost with that broker",
		"weak":       "min.insync.replicas is 1 with 3 replicas",
		"brittle":    "min.insync.replicas is 3 with as many replicas: one broker down stops all writing",
		"impossible": "min.insync.replicas is 3 with 2 replicas: no record can be acknowledged",
		"small":      "max.message.bytes is 1000, below the client's max.request.size of 5000",
		"compacted":  "it is compacted (cleanup.policy)",
		"missing":    "it does not exist (UNKNOWN_TOPIC_OR_PARTITION)",
		"not legal":  "its name holds ' '",
	} {
		require.Len(t, got[name], 1, name)
		require.Contains(t, got[name][0].Problem, want)
		require.Equal(t, name == "impossible" || name == "missing" || name == "not legal", got[name][0].Severe, name)
	}
	require.Equal(t, "ask for two: kafka-configs.sh --bootstrap-server "+seed+" --alter --entity-type topics --entity-name 'weak' --add-config min.insync.replicas=2", got["weak"][0].Advice)

	k.Close()
	down := open(t, parsed(t, properties(seed, "request.timeout.ms", "1000")), Options{}).CheckTopics(t.Context(), []string{"good"})
	require.Len(t, down, 1)
	require.True(t, down[0].Severe)
	require.Contains(t, down[0].Problem, "it cannot be looked up: kafka broker "+seed)
}

func TestBadName_IsKafkasRule(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "orders.created-v1_x", strings.Repeat("x", 249), "...", "A9"} {
		require.Empty(t, badName(good), good)
	}
	for _, bad := range []string{"", ".", "..", "a b", "ü", "a/b", strings.Repeat("x", 250), "a\x00"} {
		require.NotEmpty(t, badName(bad), bad)
	}
}
