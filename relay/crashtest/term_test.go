//go:build unix

package crashtest

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestCase_C09_TermWithinGrace is C09 (a): SIGTERM while a batch waits for its acknowledgement, which
// comes within shutdown_timeout. The batch is finished, what was read behind it is released with its
// attempts unchanged, the exit code is 0, and nothing is ever sent twice.
func TestCase_C09_TermWithinGrace(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w := sharedWorld(t, s, settings{claim: mode, batch: 10})
		r := w.relays[0]
		stops := r.stops(t)
		w.start(t)
		w.commit(t, len(keys), keys...)
		w.drained(t, 60*time.Second)
		r.kafka.replies.hold()
		w.commit(t, 6*10, keys...)
		w.topics.holds(t, len(keys)+10)
		r.signal(syscall.SIGTERM)
		stops()
		require.True(t, r.alive(), "it waits for the answer:\n%s", r.tail(5))
		r.kafka.heal()
		code, took := r.ended(t, 15*time.Second)
		require.Equal(t, 0, code, r.tail(5))
		t.Logf("it ended %s after the acknowledgement", took.Round(time.Millisecond))
		w.unharmed(t, 10)
		w.settles(t, 0)
	})
}

// stops listens as a service manager does, from the relay's next start on. What it returns waits until the relay
// says that it stops.
func (p *process) stops(t *testing.T) func() {
	t.Helper()
	dir, err := os.MkdirTemp("", "stops-") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	p.env = append(p.env, "NOTIFY_SOCKET="+path)
	return func() {
		t.Helper()
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(10*time.Second)))
		state := make([]byte, 256)
		for {
			n, err := socket.Read(state)
			require.NoError(t, err, "%s does not say that it stops", p.name)
			if string(state[:n]) == "STOPPING=1" {
				return
			}
		}
	}
}

// unharmed holds the table as an orderly end leaves it: SENT or NEW, at least so many SENT, no attempts.
func (w *world) unharmed(t *testing.T, sent int) {
	t.Helper()
	_, rows := w.db.read(t)
	n := 0
	for _, r := range rows {
		require.Contains(t, []string{"SENT", "NEW"}, r.Status, "event %s", r.EventID)
		require.Zero(t, r.RetryCount, "event %s", r.EventID)
		require.Empty(t, r.LastError, "event %s", r.EventID)
		if r.Status == "SENT" {
			n++
		}
	}
	require.GreaterOrEqual(t, n, sent)
}

// TestCase_C09_TermBeyondGrace is C09 (c): the acknowledgement does not come within shutdown_timeout.
// The relay ends soon after it, with the rows neither SENT nor FAILED; the next start sends them, and
// what was in flight stands twice at most.
func TestCase_C09_TermBeyondGrace(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s server, mode relay.ClaimMode) {
		w := sharedWorld(t, s, settings{claim: mode, shutdownTimeout: time.Second})
		w.start(t)
		w.commit(t, len(keys), keys...)
		w.drained(t, 60*time.Second)
		r := w.relays[0]
		r.kafka.replies.hold()
		w.commit(t, inFlight, keys...)
		w.topics.holds(t, len(keys)+inFlight)
		code, took := r.term(t, 15*time.Second)
		require.Equal(t, 0, code, r.tail(5))
		require.Less(t, took, 6*time.Second, "shutdown_timeout and the time to close")
		r.kafka.heal()
		w.sessionsEnd(t)
		w.unharmed(t, len(keys))
		sent, err := w.db.count(t.Context(), "SENT")
		require.NoError(t, err)
		require.Equal(t, len(keys), sent, "nothing is SENT that was not acknowledged")
		w.settles(t, inFlight)
	})
}

// TestCase_C09_TermInTheClaim: SIGTERM comes when the database has written the claim of a batch and the
// relay does not know it yet. The rows are released; nobody has to wait for claim_timeout.
func TestCase_C09_TermInTheClaim(t *testing.T) {
	t.Parallel()
	for _, s := range []server{mysqlServer, mariadb} { // PostgreSQL claims by one statement, whose text is not sent again
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := sharedWorld(t, s, settings{claim: relay.ClaimRows, claimTimeout: time.Minute})
			r := w.relays[0]
			stops := r.stops(t)
			w.start(t)
			w.commit(t, len(keys), keys...)
			w.drained(t, 60*time.Second)
			r.db.muteBehind(query("UPDATE"), query("COMMIT"))
			w.commit(t, inFlight, keys...)
			w.db.has(t, inFlight, "SENDING")
			require.True(t, r.db.muted(), "the relay knows of the claim")
			r.signal(syscall.SIGTERM)
			stops() // the signal is heard first
			require.True(t, r.alive(), "it waits for the database's answer")
			r.db.heal()
			code, _ := r.ended(t, 15*time.Second)
			require.Equal(t, 0, code, r.tail(5))
			w.unharmed(t, len(keys))
			w.settles(t, 0)
		})
	}
}

// TestCase_C09_SecondSignalCuts: a second signal does not wait for anything.
func TestCase_C09_SecondSignalCuts(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t, postgres, settings{shutdownTimeout: 30 * time.Second})
	r := w.relays[0]
	stops := r.stops(t)
	w.start(t)
	w.commit(t, len(keys), keys...)
	w.drained(t, 60*time.Second)
	r.kafka.replies.hold()
	w.commit(t, inFlight, keys...)
	w.topics.holds(t, len(keys)+inFlight)
	r.signal(syscall.SIGTERM)
	stops() // else both signals may be seen as one
	require.True(t, r.alive())
	code, took := r.term(t, 10*time.Second)
	require.NotEqual(t, 0, code)
	require.Less(t, took, 5*time.Second)
	r.kafka.heal()
	w.sessionsEnd(t)
	w.settles(t, inFlight)
}
