package kafka

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/relay"
)

// TestGroup_Refused: what can never work is said at once, with the thing, the reason and the next step.
func TestGroup_Refused(t *testing.T) {
	t.Parallel()
	seed := cluster(t).ListenAddrs()[0]
	all := &ownership{owner: map[int32]string{}}
	o := GroupOptions{Name: "shop", Table: "postgres://db/app outbox_events", Lanes: 2}
	startGroup(t, seed, o, newKeeper(t, all, "a"), Options{})
	until(t, 20*time.Second, "owned", func() bool { return all.has("a") == 2 })
	for name, c := range map[string]struct {
		change func(*GroupOptions)
		want   []string
	}{
		"another table": {func(o *GroupOptions) { o.Table = "mysql://other/x outbox_event" },
			[]string{"outbox.name shop", "postgres://db/app outbox_events", "mysql://other/x outbox_event", "a name of its own"}},
	} {
		t.Run(name, func(t *testing.T) {
			other := o
			c.change(&other)
			r := startGroup(t, seed, other, newKeeper(t, all, "b"), Options{})
			select {
			case err := <-r.done:
				r.done <- nil
				require.NotNil(t, relay.AsSetup(err), "%v", err)
				for _, w := range c.want {
					require.Contains(t, err.Error(), w)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on")
			}
		})
	}
}

// TestGroup_Rights: a right that is missing is named with the command that grants it.
func TestGroup_Rights(t *testing.T) {
	t.Parallel()
	topic := func(op kmsg.ACLOperation) kfake.ACL {
		return topicACL(op, "shop.postrider", kmsg.ACLResourcePatternTypeLiteral)
	}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: "shop.postrider", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	describe := group
	describe.Operation = kmsg.ACLOperationDescribe
	for name, c := range map[string]struct {
		acls  []kfake.ACL
		flows int
		want  []string
	}{
		"no group":                {[]kfake.ACL{topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 0, []string{"group shop.postrider", "--operation Read --group 'shop.postrider'"}},
		"no topic":                {[]kfake.ACL{group}, 0, []string{"topic shop.postrider", "--operation Create --topic 'shop.postrider'"}},
		"no reading of the topic": {[]kfake.ACL{group, topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 0, []string{"topic shop.postrider", "--operation Read --operation Write"}},
		"no writing to it":        {[]kfake.ACL{group, topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationCreate)}, 0, []string{"topic shop.postrider", "--operation Read --operation Write"}},
		"a look at the group only": {[]kfake.ACL{describe, topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 0,
			[]string{"group shop.postrider", "--operation Read --group 'shop.postrider'"}},
		"no transactional ids": {[]kfake.ACL{group, topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 2,
			[]string{"transactional ids shop.postrider/", "--operation Write --operation Describe --transactional-id 'shop.postrider' --resource-pattern-type prefixed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "app", "app", c.acls...))
			cfg := parsed(t, properties(k.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN",
				"sasl.jaas.config", `org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="app";`))
			setup := refusal(t, cfg, GroupOptions{Name: "shop", Relay: "a", Table: "t", Lanes: 2, Flows: c.flows})
			require.Equal(t, relay.SetupPermission, setup.Kind)
			for _, w := range c.want {
				require.Contains(t, setup.Error(), w)
			}
		})
	}
}

// TestGroup_Requirements: what the cluster lacks is said before the first event, with the thing, what was found and the
// next step. Nothing is put up with in silence.
func TestGroup_Requirements(t *testing.T) {
	t.Parallel()
	topic := func(partitions int32, settings map[string]string) func(*testing.T, *kfake.Cluster) {
		return func(t *testing.T, k *kfake.Cluster) {
			createTopic(t, k.ListenAddrs()[0], "shop.postrider", partitions, settings)
		}
	}
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.ConsumerGroupHeartbeat), 0)
	const alter = "kafka-configs.sh --bootstrap-server {seed} --alter --entity-type topics --entity-name 'shop.postrider' --add-config "
	for name, c := range map[string]struct {
		opts   []kfake.Opt
		before func(*testing.T, *kfake.Cluster)
		props  []string
		kind   relay.SetupKind
		want   string
	}{
		"transaction.version": {before: oldTransactions, kind: relay.SetupUsage,
			want: "relay.delivery: exactly-once needs the cluster's feature transaction.version to be 2, and it is 1; kafka-features.sh --bootstrap-server {seed} upgrade " +
				"--feature transaction.version=2 (brokers of Kafka 4.0 or later), or write delivery: at-least-once"},
		"transaction.max.timeout.ms": {opts: []kfake.Opt{kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "10000"})}, kind: relay.SetupUsage,
			want: "relay.delivery: exactly-once asks for transactions of up to 15s, and the brokers allow less (transaction.max.timeout.ms); raise transaction.max.timeout.ms of the brokers, or write delivery: at-least-once"},
		"lanes": {before: topic(3, map[string]string{"cleanup.policy": "compact"}), kind: relay.SetupConflict,
			want: "topic shop.postrider: has 3 partitions, and relay.lanes is 2: the number of lanes is fixed by the topic; set relay.lanes: 3, or choose another outbox.name"},
		"cleanup.policy": {before: topic(2, nil), kind: relay.SetupConflict,
			want: "topic shop.postrider: holds the lanes' progress, which must not be deleted by age, and its cleanup.policy is delete; " + alter + "cleanup.policy=compact"},
		"cleanup.policy, both": {before: topic(2, map[string]string{"cleanup.policy": "compact,delete"}), kind: relay.SetupConflict,
			want: "topic shop.postrider: holds the lanes' progress, which must not be deleted by age, and its cleanup.policy is compact,delete; " + alter + "cleanup.policy=compact"},
		"max.message.bytes": {before: topic(2, map[string]string{"cleanup.policy": "compact", "max.message.bytes": "100000"}), kind: relay.SetupConflict,
			want: "topic shop.postrider: its max.message.bytes is 100000, and progress records take up to 278528; " + alter + "max.message.bytes=278528"},
		"min.insync.replicas": {before: topic(2, map[string]string{"cleanup.policy": "compact", "min.insync.replicas": "2"}), kind: relay.SetupConflict,
			want: "topic shop.postrider: min.insync.replicas is 2 with 1 replicas: no record can be acknowledged; " + alter + "min.insync.replicas=1"},
		"group.protocol, brokers too old": {opts: []kfake.Opt{kfake.MaxVersions(old)}, props: []string{"group.protocol", "consumer"}, kind: relay.SetupUsage,
			want: "kafka.group.protocol: consumer is not possible: broker 0 does not know it; write group.protocol: classic, or have Kafka 4.0 or later on all brokers, with the feature group.version=1 and consumer among group.coordinator.rebalance.protocols"},
		"group.protocol, switched off": {before: func(_ *testing.T, k *kfake.Cluster) {
			k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.UnsupportedVersion, TopLevel: true, Count: -1})
		}, props: []string{"group.protocol", "consumer"}, kind: relay.SetupUsage,
			want: "kafka.group.protocol: consumer is not possible: it is switched off at the brokers; write group.protocol: classic, or have Kafka 4.0 or later on all brokers, with the feature group.version=1 and consumer among group.coordinator.rebalance.protocols"},
		"another assignor": {before: func(t *testing.T, k *kfake.Cluster) {
			createTopic(t, k.ListenAddrs()[0], "shop.postrider", 2, map[string]string{"cleanup.policy": "compact"})
			c := plainClient(t, k.ListenAddrs()[0], kgo.ConsumerGroup("shop.postrider"), kgo.ConsumeTopics("shop.postrider"), kgo.Balancers(kgo.RangeBalancer()))
			until(t, 20*time.Second, "a stranger is a member", func() bool { _, gen := c.GroupMetadata(); return gen > 0 })
		}, kind: relay.SetupConflict,
			want: "group shop.postrider: its members share the lanes out in a way that this relay does not know: they are no relays, or of another version; " +
				"see who they are: kafka-consumer-groups.sh --bootstrap-server {seed} --describe --group 'shop.postrider' --members --verbose; stop them, or choose another outbox.name"},
		"session": {opts: []kfake.Opt{kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "12000"})}, kind: relay.SetupUsage,
			want: "relay.session_timeout: 10s is not within what the brokers allow; choose a value between group.min.session.timeout.ms (6 s unless changed) and group.max.session.timeout.ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, c.opts...)
			if c.before != nil {
				c.before(t, k)
			}
			seed := k.ListenAddrs()[0]
			setup := refusal(t, parsed(t, properties(seed, c.props...)), GroupOptions{Name: "shop", Relay: "a", Table: "t", Lanes: 2, Flows: 1})
			require.Equal(t, strings.ReplaceAll(c.want, "{seed}", seed), setup.Error())
			require.Equal(t, c.kind, setup.Kind)
		})
	}
}

// TestGroup_NewerVersion: what a later version has left of a lane is not guessed at, during a deploy that is taken back
// for one. The relay ends, so that those of that version have the lanes.
func TestGroup_NewerVersion(t *testing.T) {
	t.Parallel()
	o := GroupOptions{Name: "shop", Table: "t", Lanes: 2, Flows: 1}
	for name, c := range map[string]struct {
		leave func(t *testing.T, seed string)
		want  string
	}{
		"a note": {func(t *testing.T, seed string) {
			_, err := admin(t, seed).CommitOffsets(t.Context(), "shop.postrider", kadm.Offsets{"shop.postrider": {1: {
				Topic: "shop.postrider", Partition: 1, At: 0, LeaderEpoch: -1, Metadata: `{"format":2,"relay":"b","table":"t"}`}}})
			require.NoError(t, err)
		}, "progress of lane 1: a newer version of the relay wrote it: format 2, and this one reads 1; run that version until all it sent is marked, or use it here"},
		"a progress record": {func(t *testing.T, seed string) {
			c := plainClient(t, seed, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "shop.postrider", Partition: 0, Key: []byte("0/0"), Value: []byte{7, 0, 0}}).FirstErr())
		}, "progress of lane 0: a newer version of the relay wrote it: format 7, and this one reads 1; run that version until all it sent is marked, or use it here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := cluster(t).ListenAddrs()[0]
			leaveUnmarked(t, seed, o, 1)
			c.leave(t, seed)
			mine := o
			mine.Relay = "b"
			setup := refusal(t, parsed(t, properties(seed)), mine)
			require.Equal(t, c.want, setup.Error())
			require.Equal(t, relay.SetupConflict, setup.Kind)
		})
	}
}

// refusal runs a relay's part in a group that is to be refused.
func refusal(t *testing.T, cfg Config, o GroupOptions) *relay.SetupError {
	t.Helper()
	g, err := NewGroup(cfg, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = g.Run(ctx, newKeeper(t, &ownership{owner: map[int32]string{}}, "a"))
	setup := relay.AsSetup(err)
	require.NotNil(t, setup, "%v", err)
	return setup
}

// oldTransactions makes a cluster that has not been upgraded to transactions that are safe enough.
func oldTransactions(t *testing.T, k *kfake.Cluster) {
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), plainClient(t, k.ListenAddrs()[0]))
	require.NoError(t, err)
	for i, f := range versions.FinalizedFeatures {
		if f.Name == "transaction.version" {
			versions.FinalizedFeatures[i].MaxVersionLevel = 1
		}
	}
	k.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		answer := *versions
		answer.SetVersion(req.GetVersion())
		return &answer, nil, true
	})
}
