package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/postrider/postrider/relay"
)

func topicACL(op kmsg.ACLOperation, name string, pattern kmsg.ACLResourcePatternType) kfake.ACL {
	return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: pattern, Operation: op, Allow: true}
}

// guarded is a cluster with ACLs: user app may write to orders.*, and see payments.
func guarded(t *testing.T) (*kfake.Cluster, map[string]string) {
	prefix, literal := kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLResourcePatternTypeLiteral
	k := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
		kfake.SeedTopics(1, "orders.a", "orders.b", "payments", "hidden"),
		kfake.User("PLAIN", "app", "app",
			topicACL(kmsg.ACLOperationWrite, "orders.", prefix),
			topicACL(kmsg.ACLOperationDescribe, "orders.", prefix),
			topicACL(kmsg.ACLOperationDescribe, "payments", literal)))
	return k, properties(k.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.username", "app", "sasl.password", "app")
}

func allow(t *testing.T, seed string, op kadm.ACLOperation, topic string) {
	t.Helper()
	adm := kadm.NewClient(plainClient(t, seed, kgo.SASL(plain.Auth{User: "admin", Pass: "admin"}.AsMechanism())))
	results, err := adm.CreateACLs(t.Context(), kadm.NewACLs().Allow("User:app").AllowHosts("*").Topics(topic).Operations(op).ResourcePatternType(kadm.ACLPatternLiteral))
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
}

// P04: the one forbidden topic waits, with the command that opens it; all others go on.
func TestCase_P04_ForbiddenTopic(t *testing.T) {
	t.Parallel()
	k, props := guarded(t)
	seed := k.ListenAddrs()[0]
	s := open(t, parsed(t, props), Options{})
	require.NoError(t, s.Ping(t.Context()))
	for _, forbidden := range []string{"payments", "hidden"} {
		for range 2 {
			results := send(t, s, record("orders.a", "k", "v"), record(forbidden, "k", "v"), record("orders.b", "k", "v"), record(forbidden, "k", "w"))
			require.Nil(t, results[0].Failure)
			require.Nil(t, results[2].Failure)
			for _, i := range []int{1, 3} {
				f := results[i].Failure
				require.Equal(t, relay.ClassUnavailable, f.Class, "no attempt is used up")
				require.Equal(t, "TOPIC_AUTHORIZATION_FAILED", f.Code)
				require.Equal(t, "allow it: kafka-acls.sh --bootstrap-server "+seed+" --add --allow-principal 'User:app' --operation Write --operation Describe --topic '"+forbidden+"'", f.Hint)
			}
		}
		allow(t, seed, kadm.OpDescribe, forbidden)
		allow(t, seed, kadm.OpWrite, forbidden)
		require.Eventually(t, func() bool {
			return send(t, s, record(forbidden, "k", "v"))[0].Failure == nil
		}, 5*time.Second, 20*time.Millisecond, "the grant is noticed within seconds")
	}
}

// P04: the cluster refuses idempotent producers. That is no row's fault: it is said at the start, costs
// nothing later, and passes with the grant, without a restart.
func TestCase_P04_IdempotentWriteForbidden(t *testing.T) {
	t.Parallel()
	k, props := guarded(t)
	refused := k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, TopLevel: true, Count: -1})
	s := open(t, parsed(t, props), Options{})
	setup := relay.AsSetup(s.Ping(t.Context()))
	require.NotNil(t, setup)
	require.Equal(t, relay.SetupPermission, setup.Kind)
	require.Contains(t, setup.Error(), "User:app may not write with an idempotent producer (CLUSTER_AUTHORIZATION_FAILED)")
	require.Contains(t, setup.Fix, "--allow-principal 'User:app' --operation IdempotentWrite --cluster")

	for range 3 {
		for _, r := range send(t, s, record("orders.a", "k", "1"), record("orders.b", "k", "1")) {
			require.Equal(t, relay.ClassRelay, r.Failure.Class)
			require.Equal(t, "CLUSTER_AUTHORIZATION_FAILED", r.Failure.Code)
			require.Contains(t, r.Failure.Hint, "--operation IdempotentWrite --cluster")
		}
	}
	refused.Remove()
	require.Eventually(t, func() bool {
		results := send(t, s, record("orders.a", "k", "1"), record("orders.b", "k", "1"))
		return results[0].Failure == nil && results[1].Failure == nil
	}, 5*time.Second, 20*time.Millisecond, "the grant is noticed within seconds")
}

// Without the right to read a topic's configuration Kafka's defaults stand in, and the check says so.
func TestSink_DescribeConfigsForbidden(t *testing.T) {
	t.Parallel()
	k, props := guarded(t)
	s := open(t, parsed(t, props), Options{})
	findings := s.CheckTopics(t.Context(), []string{"orders.a", "hidden", "orders.missing"})
	text := ""
	for _, f := range findings {
		text += f.String() + "\n"
	}
	require.Contains(t, text, "topic orders.a: its configuration cannot be read (TOPIC_AUTHORIZATION_FAILED): Kafka's default of 1048588 is taken for max.message.bytes; allow it: kafka-acls.sh --bootstrap-server "+k.ListenAddrs()[0]+" --add --allow-principal 'User:app' --operation DescribeConfigs --topic 'orders.a'")
	require.Contains(t, text, "topic hidden: Not authorized")
	require.Contains(t, text, "(TOPIC_AUTHORIZATION_FAILED)")
	require.Contains(t, text, "topic orders.missing: it does not exist")
	big := record("orders.a", "k", string(make([]byte, 1<<20+100)))
	f := send(t, s, big)[0].Failure
	require.Equal(t, "MESSAGE_TOO_LARGE", f.Code)
	require.Contains(t, f.Text, "topic limit 1048588 (max.message.bytes)")
}
