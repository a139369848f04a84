package relay_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// deadly refuses all events whose key begins with bad, on their way to their own topic.
func (r *rig) deadly(deadTopic func(rec *relay.Record) *relay.Failure) {
	r.opts.DeadLetterTopic = "dead"
	r.sink.Answer = func(rec *relay.Record, _ int32) *relay.Failure {
		switch {
		case rec.Topic == "dead":
			return deadTopic(rec)
		case strings.HasPrefix(eventID(rec), "bad"):
			return permanent()
		}
		return nil
	}
}

func never(*relay.Record) *relay.Failure { return nil }

func TestDeadLetter_Copy(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.deadly(never)
		l := r.run()
		r.commit("bad-1", "good-1")
		time.Sleep(time.Second)
		require.Equal(t, []string{"bad-1"}, r.arrived("dead"))
		rec := r.kafka.Records("dead")[0][0]
		require.Equal(t, "bad", string(rec.Record.Key))
		require.JSONEq(t, `{"secret":"payload"}`, string(rec.Record.Value))
		for name, want := range map[string]string{
			"event_id": "bad-1", "event_type": "OrderCreated", "content-type": "application/json",
			"postrider_dead_topic": "t", "postrider_dead_class": "permanent", "postrider_dead_code": "MESSAGE_TOO_LARGE",
			"postrider_dead_reason": "too large", "postrider_dead_attempts": "1",
		} {
			require.Equal(t, want, rec.Header(name), name)
		}
		require.Equal(t, relay.StateDead, r.state("bad-1").State)
		require.Empty(t, r.state("bad-1").Receipt)
		r.end(l)
	})
}

// TestDeadLetter_Refused: the row is the truth, and says that there is no copy.
func TestDeadLetter_Refused(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.deadly(func(rec *relay.Record) *relay.Failure {
			if eventID(rec) == "bad-1" {
				return permanent()
			}
			return nil
		})
		r.opts.OnDead = relay.OnDeadSkip
		l := r.run()
		r.commit("bad-1", "bad-2")
		time.Sleep(time.Second)
		require.Equal(t, []string{"bad-2"}, r.arrived("dead"), "the key goes on behind the refused one")
		require.Equal(t, relay.StateDead, r.state("bad-1").State)
		require.Equal(t, "[permanent] MESSAGE_TOO_LARGE: too large (no copy in the dead-letter topic dead: MESSAGE_TOO_LARGE)", r.state("bad-1").LastError)
		require.Equal(t, 1, r.state("bad-1").Attempts)
		r.end(l)
	})
}

// TestDeadLetter_Unavailable: while the dead-letter topic is away its events stay FAILED at no cost.
func TestDeadLetter_Unavailable(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		var back atomic.Bool
		r.deadly(func(*relay.Record) *relay.Failure {
			if back.Load() {
				return nil
			}
			return unavailable()
		})
		l := r.run()
		r.commit("bad-1", "bad-2", "good-1")
		time.Sleep(20 * time.Second)
		require.Equal(t, relay.StateFailed, r.state("bad-1").State)
		require.Zero(t, r.state("bad-1").Attempts)
		require.Contains(t, r.state("bad-1").LastError, "(waits for the dead-letter topic dead: NOT_ENOUGH_REPLICAS)")
		require.Equal(t, []string{"good-1"}, r.arrived("t"))
		back.Store(true)
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"bad-1"}, r.arrived("dead"))
		require.Equal(t, relay.StateDead, r.state("bad-1").State)
		require.Equal(t, 1, r.state("bad-1").Attempts)
		r.end(l)
	})
}

// TestDeadLetter_Silent: a dead-letter topic that does not answer holds up nobody, however many are dead.
func TestDeadLetter_Silent(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.deadly(never)
		r.opts.Batch = 5
		r.sink.Silence = r.silentUntil("dead", 5*time.Minute)
		l := r.run()
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = fmt.Sprintf("bad%03d-1", i)
		}
		r.commit(ids...)
		for i := range 20 {
			time.Sleep(10 * time.Second)
			id := many("g", 20, "good")[i]
			r.commit(id)
			time.Sleep(3 * time.Second)
			require.GreaterOrEqual(t, r.at("t", id), time.Duration(0), "%s did not arrive", id)
		}
		time.Sleep(2 * time.Minute)
		for _, id := range ids {
			require.Equal(t, relay.StateDead, r.state(id).State)
		}
		require.Len(t, r.arrived("dead"), len(ids))
		r.discard(ids...)
		time.Sleep(5 * time.Second)
		require.Empty(t, relay.Leftovers(l.Relay))
		r.end(l)
	})
}
