package kafka

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// devServers runs dev/servers for an instance.
func devServers(t *testing.T, instance string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(contextOf(t), "../../dev/servers", args...)
	cmd.Env = append(os.Environ(), "POSTRIDER_DEV_INSTANCE="+instance)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// The broker is killed and started again while transactions run, several times. POSTRIDER_TEST_KAFKA_TO_KILL names
// an instance of dev/servers whose broker may be killed (POSTRIDER_DEV_INSTANCE=NAME dev/servers up kafka).
func TestPromise_P4_BrokerKilled(t *testing.T) {
	instance := os.Getenv("POSTRIDER_TEST_KAFKA_TO_KILL")
	if instance == "" {
		t.Skip("set POSTRIDER_TEST_KAFKA_TO_KILL to the name of an instance of dev/servers whose broker may be killed")
	}
	found := regexp.MustCompile(`POSTRIDER_TEST_KAFKA='([^']*)'`).FindStringSubmatch(devServers(t, instance, "env", "kafka"))
	require.NotNil(t, found)
	seed := found[1]
	const keys, numbers = 20, 100_000
	topic := newTopic(t, seed, 4, nil)
	g := newLanes(t, seed, 3)
	s := openTx(t, seed, g, Options{Patience: 300 * time.Millisecond})
	w := &lossWriter{next: make([]int, keys), receipts: map[relay.Receipt]string{}, rows: map[relay.RowID]relay.SentRow{}}
	random := rand.New(rand.NewPCG(1, 1))
	for range 4 {
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // anywhere in a transaction
			devServers(t, instance, "kill", "kafka")
			devServers(t, instance, "up", "kafka")
		}()
		calm := rand.New(rand.NewPCG(2, 2))
		for down := true; down; {
			w.write(t, s, topic, numbers, calm)
			select {
			case <-killed:
				down = false
			default:
			}
		}
		returned := time.Now()
		sent := len(w.receipts)
		for len(w.receipts) == sent {
			require.Less(t, time.Since(returned), 30*time.Second, "nothing goes through")
			w.write(t, s, topic, numbers, calm)
		}
		t.Logf("%d sent; the first %s after the broker was back", sent, time.Since(returned).Round(time.Millisecond))
	}
	require.NoError(t, s.Close(contextOf(t)))
	there := map[string]int{}
	for p, held := range readCommitted(t, seed, topic) {
		for _, r := range held {
			key := string(r.Key)
			require.Equal(t, fmt.Sprint(there[key]), string(r.Value), "key %s", key)
			there[key]++
			require.Equal(t, key+" "+string(r.Value), w.receipts[relay.Receipt{Topic: topic, Partition: int32(p), Offset: r.Offset}])
		}
	}
	for k, n := range w.next {
		require.Equal(t, n, there[fmt.Sprint("k", k)], "what is there is what was reported")
	}
}
