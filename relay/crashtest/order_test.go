//go:build unix

package crashtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCase_O01_HeadUnavailable: the topic of a key takes no records for a while. The key's events wait,
// those of other keys do not, and a relay that is killed and started in the middle of it changes nothing.
func TestCase_O01_HeadUnavailable(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w := sharedWorld(t, s, settings{})
		w.start(t)
		w.relays[0].ready(t)
		w.refuse(t, w.topics.names[0])
		w.headOfLine(t, w.take)
	})
}

// TestCase_O01_HeadFailed is the same with a topic that does not exist yet, so that the key's first event
// is FAILED in the table, not only late.
func TestCase_O01_HeadFailed(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, s server) {
		w := sharedWorld(t, s, settings{})
		w.start(t)
		w.relays[0].ready(t)
		w.types[0] = "C" + w.types[0][1:]
		w.headOfLine(t, func() { w.topics.create(t, 2, w.types[0]+"-events") })
	})
}

// headOfLine commits the events of O01 and holds what comes of them. take makes the first topic take records.
func (w *world) headOfLine(t *testing.T, take func()) {
	t.Helper()
	blocked, open := w.types[0], w.types[1]
	r := w.relays[0]
	w.commitTo(t, blocked, 3, "K")
	w.commitTo(t, open, 4, "L", "M")
	w.db.has(t, 4, "SENT")
	r.counts(t, "outbox_blocked_keys", 1)
	r.kill()
	w.sessionsEnd(t)
	r.start(t)
	w.commitTo(t, blocked, 1, "K")
	w.commitTo(t, open, 4, "L", "M")
	w.db.has(t, 4+4, "SENT")
	r.counts(t, "outbox_blocked_keys", 1)
	take()
	w.drained(t, 30*time.Second)
	w.terminated(t)
	require.Zero(t, w.good(t, Rules{Ordered: true}).Doubled)
}
