//go:build unix

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// The points of a transaction at which a relay ends, or stands still for longer than its session.
var transactionPoints = []struct {
	name  string
	key   kmsg.Key
	nth   int
	reply bool
}{
	{"before the records", kmsg.Produce, 1, false},
	{"records without an answer", kmsg.Produce, 1, true},
	{"before the progress", kmsg.Produce, 2, false},
	{"before the offsets", kmsg.TxnOffsetCommit, 1, false},
	{"offsets without an answer", kmsg.TxnOffsetCommit, 1, true},
	{"before the end", kmsg.EndTxn, 1, false},
	{"end without an answer", kmsg.EndTxn, 1, true},
}

// eachPoint runs a test at each point, for each database.
func eachPoint(t *testing.T, relays int, test func(t *testing.T, w *world)) {
	for _, s := range []server{postgres, mysqlServer, mariadb} {
		for _, p := range transactionPoints {
			if testing.Short() && s.name != postgres.name {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", s.name, p.name), func(t *testing.T) {
				t.Parallel()
				w := sharedWorld(t, s, settings{claim: relay.ClaimLanes, relays: relays, env: exactlyOnce()})
				w.relays[0].start(t)
				w.commit(t, len(keys), keys...)
				w.drained(t, 60*time.Second)
				w.relays[0].kafka.point.at(int16(p.key), p.nth, p.reply)
				w.commit(t, inFlight, keys...)
				eventually(t, 20*time.Second, w.relays[0].kafka.point.met.Load, func() string { return "the relay does not come to the point" })
				test(t, w)
			})
		}
	}
}

// once holds the end: everything is SENT, in order, and a reader of committed records sees nothing twice.
func (w *world) once(t *testing.T) {
	t.Helper()
	w.drained(t, 60*time.Second)
	w.terminated(t)
	r := w.good(t, Rules{Ordered: true})
	require.Zero(t, r.Doubled, r.String())
}

// TestKill_Transaction: kill -9 at every point of a transaction. The next relay finds out what became of it.
func TestKill_Transaction(t *testing.T) {
	t.Parallel()
	eachPoint(t, 1, func(t *testing.T, w *world) {
		w.killed(t, w.relays[0])
		w.start(t)
		w.once(t)
	})
}

// TestFreeze_Transaction: a relay stands still at every point of a transaction for longer than its session,
// while another takes its lanes over, and goes on where it was. It writes nothing that a reader of committed
// records sees, and no mark over a newer state.
func TestFreeze_Transaction(t *testing.T) {
	t.Parallel()
	eachPoint(t, 2, func(t *testing.T, w *world) {
		frozen, heir := w.relays[0], w.relays[1]
		frozen.signal(syscall.SIGSTOP)
		heir.start(t)
		w.drained(t, 60*time.Second)
		w.commit(t, inFlight, keys...)
		w.drained(t, 60*time.Second)
		w.heal()
		frozen.signal(syscall.SIGCONT)
		w.commit(t, inFlight, keys...)
		w.once(t)
	})
}
