package kafka

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/postrider/postrider/relay"
)

// TestGroup_GrantsSuffice: a user without any right gets to work by carrying out, one after the other, the commands that
// the refusals name, and no others.
func TestGroup_GrantsSuffice(t *testing.T) {
	t.Parallel()
	for name, flows := range map[string]int{"at-least-once": 0, "exactly-once": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"),
				kfake.User("PLAIN", "app", "app"), kfake.SeedTopics(1, "orders"))
			seed := k.ListenAddrs()[0]
			user := []string{"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.username", "app", "sasl.password", "app"}
			o := GroupOptions{Name: "shop", Lanes: 2, Table: "t", Flows: flows}
			var granted []string
			carryOut := func(hint string) {
				require.NotContains(t, granted, hint, "it was carried out and did not help")
				granted = append(granted, hint)
				grant(t, seed, hint)
			}
			all := &ownership{owner: map[int32]string{}}
			var r *running
			for {
				r = startGroup(t, seed, o, newKeeper(t, all, "a"), Options{}, user...)
				if err := r.refusedOr(t, func() bool { return r.owns(0) && r.owns(1) }); err == nil {
					break
				} else {
					carryOut(relay.AsSetup(err).Fix)
				}
			}
			sinks := map[int]func() relay.Sink{
				0: func() relay.Sink { return open(t, parsed(t, properties(seed, user...)), Options{}) },
				1: func() relay.Sink { return openTx(t, seed, r, Options{}, user...) },
			}
			for {
				result := sendTx(t, sinks[flows](), row("orders", "k", "v", 1))[0]
				if result.Failure == nil {
					break
				}
				carryOut(result.Failure.Hint)
			}
			t.Log(strings.Join(granted, "\n"))
			require.LessOrEqual(t, len(granted), 4)
		})
	}
}

// refusedOr waits until ok, or for the error that Run ends with.
func (r *running) refusedOr(t *testing.T, ok func() bool) error {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case err := <-r.done:
			r.done <- nil
			require.NotNil(t, relay.AsSetup(err), "%v", err)
			return err
		case <-deadline:
			t.Fatal("neither refused nor at work")
		case <-time.After(5 * time.Millisecond):
			if ok() {
				return nil
			}
		}
	}
}

var grantForm = regexp.MustCompile(`^allow it: kafka-acls\.sh --bootstrap-server \S+ --add --allow-principal '([^']+)'((?: --operation \w+)+) --(topic|group|transactional-id) '([^']+)'( --resource-pattern-type prefixed)?$`)

// grant does what a command of kafka-acls.sh says.
func grant(t *testing.T, seed, hint string) {
	t.Helper()
	m := grantForm.FindStringSubmatch(hint)
	require.NotNil(t, m, "not a grant: %s", hint)
	acls := kadm.NewACLs().Allow(m[1]).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
	if m[5] != "" {
		acls.ResourcePatternType(kadm.ACLPatternPrefixed)
	}
	switch m[3] {
	case "topic":
		acls.Topics(m[4])
	case "group":
		acls.Groups(m[4])
	default:
		acls.TransactionalIDs(m[4])
	}
	var ops []kadm.ACLOperation
	for op := range strings.SplitSeq(strings.TrimPrefix(m[2], " --operation "), " --operation ") {
		operation, known := map[string]kadm.ACLOperation{"Read": kadm.OpRead, "Write": kadm.OpWrite, "Create": kadm.OpCreate, "Describe": kadm.OpDescribe}[op]
		require.True(t, known, op)
		ops = append(ops, operation)
	}
	acls.Operations(ops...)
	adm := kadm.NewClient(plainClient(t, seed, kgo.SASL(plain.Auth{User: "admin", Pass: "admin"}.AsMechanism())))
	results, err := adm.CreateACLs(t.Context(), acls)
	require.NoError(t, err)
	for _, r := range results {
		require.NoError(t, r.Err)
	}
}
