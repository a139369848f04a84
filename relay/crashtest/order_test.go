//go:build unix

package crashtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCase_O01_HeadUnavailable: the topic of a key takes no records for a while. The key's events wait,
// those of other keys do not, and a relay that is killed and started in the middle of it changes nothing.
func TestCase_O01_HeadUnavailable(t *testing.T) {
	t.Parallel()
	inOrder(t, func(t *testing.T, w *world) {
		w.start(t)
		w.ready(t)
		w.refuse(t, w.topics.names[0])
		w.headOfLine(t, w.take)
	})
}

// TestCase_O01_HeadFailed is the same with a topic that does not exist yet, so that the key's first event
// is FAILED in the table, not only late.
func TestCase_O01_HeadFailed(t *testing.T) {
	t.Parallel()
	inOrder(t, func(t *testing.T, w *world) {
		w.start(t)
		w.ready(t)
		w.types[0] = "C" + w.types[0][1:]
		w.headOfLine(t, func() { w.topics.create(t, 2, w.types[0]+"-events") })
	})
}

// headOfLine commits the events of O01 and holds what comes of them. take makes the first topic take records.
func (w *world) headOfLine(t *testing.T, take func()) {
	t.Helper()
	blocked, open := w.types[0], w.types[1]
	w.commitTo(t, blocked, 3, "K")
	w.commitTo(t, open, 4, "L", "M")
	w.db.has(t, 4, "SENT")
	w.restart(t, w.blocking(t))
	w.commitTo(t, blocked, 1, "K")
	w.commitTo(t, open, 4, "L", "M")
	w.db.has(t, 4+4, "SENT")
	w.blocking(t)
	take()
	w.drained(t, 30*time.Second)
	w.terminated(t)
	require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
}

// blocking waits until exactly one key waits, and returns the relay that holds it back.
func (w *world) blocking(t *testing.T) (by *process) {
	t.Helper()
	sum := 0.0
	eventually(t, 30*time.Second, func() bool {
		sum = 0
		for _, r := range w.relays {
			n, err := r.metric(t, "outbox_blocked_keys")
			if sum += n; err == nil && n > 0 {
				by = r
			}
		}
		return sum == 1
	}, func() string { return fmt.Sprintf("%g keys wait, want 1", sum) })
	return by
}

// restart kills a relay and starts it again.
func (w *world) restart(t *testing.T, r *process) {
	t.Helper()
	r.kill()
	if len(w.relays) == 1 {
		w.sessionsEnd(t)
	}
	r.start(t)
}

// TestCase_O01_DeadHead: a key's first event is refused for good. It is DEAD with its reason, the key's
// later events wait (on_dead: hold), through a kill too, and other keys do not. Once a person has removed
// the cause and retries it, everything comes in order.
func TestCase_O01_DeadHead(t *testing.T) {
	t.Parallel()
	inOrder(t, func(t *testing.T, w *world) {
		w.topics.limit(t, w.topics.names[0], "20000")
		for range 60_000 {
			w.payload = append(w.payload, byte(rand.IntN(256))) // nothing to compress
		}
		w.commit(t, 1, "K")
		w.payload = nil
		w.commit(t, 3, "K", "L", "K")
		w.start(t)
		w.db.has(t, 1, "DEAD")
		w.db.has(t, 1, "SENT")
		w.restart(t, w.blocking(t))
		w.commit(t, 2, "K", "L")
		w.db.has(t, 2, "SENT")
		w.blocking(t)
		_, rows := w.db.read(t)
		require.Contains(t, rows[0].LastError, "MESSAGE_TOO_LARGE")
		require.Len(t, w.topics.read(t), 2)

		w.topics.limit(t, w.topics.names[0], "1000000")
		// The relay may have asked for the topic's limit a moment ago, so one retry may come too early.
		eventually(t, 30*time.Second, func() bool {
			out, err := w.relays[0].command("events", "retry", "--status", "DEAD", "--yes").CombinedOutput()
			require.NoError(t, err, "%s", out)
			n, err := w.db.count(t.Context(), "SENT")
			return err == nil && n == 6
		}, func() string { return "the retried event and those behind it are not sent" })
		w.terminated(t)
		report := w.check(t, nil, Rules{Ordered: true})
		require.Empty(t, report.Findings, report.String())
		require.Zero(t, report.Doubled)
	})
}
