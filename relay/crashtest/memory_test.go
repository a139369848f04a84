//go:build linux

package crashtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestCase_C16_BigEvents: a backlog of 320 MB in events of 2 MB, 500 rows a batch and a Kafka that is slow,
// does not take the relay's memory beyond 256 MiB.
func TestCase_C16_BigEvents(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "postrider") // the race detector's memory is not the relay's
	require.NoError(t, buildRelay(binary))
	for name, c := range map[string]struct {
		server
		settings
	}{
		"postgres":                    {postgres, settings{claim: relay.ClaimSingle}},
		"mysql":                       {mysqlServer, settings{claim: relay.ClaimSingle}},
		"postgres/lanes/exactly-once": {postgres, settings{claim: relay.ClaimLanes, relays: 2, delivery: exactlyOnce}},
	} {
		t.Run(name, func(t *testing.T) {
			const n, size, most = 160, 2_000_000, 256 << 10 // KiB
			c.batch, c.env = 500, append(c.env, "GOMEMLIMIT=200MiB")
			w := sharedWorld(t, c.server, c.settings)
			for _, name := range w.topics.names {
				w.topics.limit(t, name, "3000000")
			}
			w.payload = make([]byte, size)
			_, err := rand.Read(w.payload) // nothing to compress
			require.NoError(t, err)
			for range n / 10 {
				w.commit(t, 10, keys...)
			}
			for _, r := range w.relays {
				r.binary = binary
				r.kafka.delay.Store(int64(20 * time.Millisecond))
			}
			w.start(t)
			took := w.drained(t, 3*time.Minute)
			for _, r := range w.relays {
				peak := r.peak(t)
				t.Logf("%d events of 2 MB in %s, at most %d MiB", n, took.Round(time.Millisecond), peak>>10)
				require.Less(t, peak, most)
			}
			w.terminated(t)
		})
	}
}

// peak is the largest resident memory of the relay's process so far, in KiB.
func (p *process) peak(t testing.TB) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.run.Load().cmd.Process.Pid))
	require.NoError(t, err)
	at := bytes.Index(status, []byte("VmHWM:"))
	require.GreaterOrEqual(t, at, 0)
	_, err = fmt.Sscanf(string(status[at:]), "VmHWM: %d kB", &kib)
	require.NoError(t, err)
	return kib
}
