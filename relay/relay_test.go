package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPromise_P6: for every seed some keys are bad and one partition is silent; the good keys of the
// other partitions arrive within two seconds of their commit all the same.
func TestPromise_P6(t *testing.T) {
	t.Parallel()
	for seed := range uint64(32) {
		limit := 2 * time.Second
		if seed%5 == 3 {
			limit = 3 * time.Second // a transaction that fell silent has to end before the next, which may ask there again
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dice := scenario{seed: seed}
				r := newRig(t, 4)
				r.store.Cursor = seed%2 == 0
				r.opts.Batch = []int{1, 3, 50, 2000}[seed/2%4]
				r.opts.DeadLetterTopic = []string{"", "dead"}[seed/8%2]
				r.opts.OnDead = []string{relay.OnDeadHold, relay.OnDeadSkip}[seed/16%2]
				if seed%5 > 2 {
					r.share(3, seed%5 == 3)
				}
				silent := int32(seed % 4)
				r.sink.Silence = func(topic string, partition int32) time.Duration {
					if partition == silent && topic == "t" && seed%3 > 0 {
						return 3*time.Minute - time.Since(r.start)
					}
					return 0
				}
				r.sink.Answer = func(rec *relay.Record, _ int32) *relay.Failure {
					id := eventID(rec)
					if !strings.HasPrefix(id, "bad") {
						return nil
					}
					return []*relay.Failure{retriable(), permanent(), nil}[dice.draw(id).IntN(3)]
				}
				ls := r.runAll()
				committed := map[string]time.Duration{}
				for i := range 200 {
					ids := []string{fmt.Sprintf("good%d-%03d", i%11, i), fmt.Sprintf("bad%d-%03d", i%13, i)}
					r.commit(ids...)
					committed[ids[0]] = time.Since(r.start)
					time.Sleep(time.Duration(dice.draw("pause", i).IntN(500)) * time.Millisecond)
				}
				time.Sleep(5 * time.Minute)
				for _, p := range r.kafka.Records("t") {
					for _, rec := range p {
						id := rec.Header("event_id")
						at, good := committed[id]
						delete(committed, id)
						if good && rec.Receipt.Partition != silent {
							require.Less(t, rec.At.Sub(r.start)-at, limit, "event %s", id)
						}
					}
				}
				require.Empty(t, committed, "all good events have arrived")
				r.end(ls...)
			})
		})
	}
}

// TestPromise_P7_Database: after an outage of the database the relay is at work within five seconds.
func TestPromise_P7_Database(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
		const from, to = 10 * time.Second, 5 * time.Minute
		r.store.Fault = func(relaytest.FakeCall) (f relaytest.FakeFault) {
			if at := time.Since(r.start); at > from && at < to {
				f.Before = errors.New("connection refused")
			}
			return f
		}
		r.sink.Latency = func(string, int32) time.Duration { return 300 * time.Millisecond }
		ls := r.runAll()
		for i := range 100 {
			r.commit(fmt.Sprintf("k%d-%03d", i%7, i))
			time.Sleep(150 * time.Millisecond)
		}
		for _, l := range ls {
			require.Contains(t, l.Status().DatabaseTrouble, "connection refused")
		}
		time.Sleep(to - time.Since(r.start) + 5*time.Second)
		require.Empty(t, r.db.Pending())
		require.Len(t, r.arrived("t"), 100, "and nothing twice: the answers were kept")
		for _, l := range ls {
			require.Empty(t, l.Status().DatabaseTrouble)
		}
		r.end(ls...)
	})
}

// TestPromise_P8_LateBytes: records that a destination keeps without an answer are bounded in bytes.
func TestPromise_P8_LateBytes(t *testing.T) {
	virtual(t, 64, func(t *testing.T, r *rig) {
		r.opts.BatchBytes, r.opts.Batch = 100_000, 500
		r.sink.Silence = r.silentUntil("", 5*time.Minute)
		tx := r.db.Begin()
		for i := range 400 {
			row := r.row(fmt.Sprintf("k%d-%03d", i, i))
			row.Payload = make([]byte, 20_000)
			tx.Insert(row)
		}
		tx.Commit()
		l := r.run()
		time.Sleep(4 * time.Minute)
		s := l.Status()
		require.Positive(t, s.Late)
		require.LessOrEqual(t, s.Late*20_000, 500_000, "four batches and the last")
		time.Sleep(2 * time.Minute)
		require.Empty(t, r.db.Pending())
		r.end(l)
	})
}

// TestPromise_P10: neither payload nor header values nor keys of failures reach the log.
func TestPromise_P10(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
		var n atomic.Int64
		r.refuse(func(id string) *relay.Failure {
			return []*relay.Failure{nil, retriable(), permanent(), unavailable()}[n.Add(1)%4]
		})
		r.opts.DeadLetterTopic, r.opts.Encode.Envelope = "dead", relay.EnvelopeJSON
		tx := r.db.Begin()
		for i := range 40 {
			row := r.row(fmt.Sprintf("k%d-%03d", i%7, i))
			if i%5 == 0 {
				row.Payload = []byte("secret but no JSON")
			}
			tx.Insert(row)
		}
		tx.Commit()
		ls := r.runAll()
		time.Sleep(time.Minute)
		r.end(ls...)
		require.Contains(t, r.log.String(), "event is dead")
		require.NotContains(t, r.log.String(), "secret")
		for _, row := range r.db.Pending() {
			require.NotContains(t, row.LastError, "secret")
		}
	})
}

func TestRelay_UntilDrained(t *testing.T) {
	drain := func(r *rig) time.Duration {
		r.opts.UntilDrained = true
		began := time.Now()
		l := r.run()
		defer l.stop()
		select {
		case err := <-l.done:
			require.NoError(r, err)
		case <-time.After(time.Hour):
			require.Fail(r, "no end", relay.Leftovers(l.Relay))
		}
		return time.Since(began)
	}
	t.Run("an empty table", func(t *testing.T) {
		virtual(t, 1, func(t *testing.T, r *rig) { require.Less(t, drain(r), time.Second) })
	})
	t.Run("a backlog of several batches", func(t *testing.T) {
		virtual(t, 3, func(t *testing.T, r *rig) {
			r.opts.Batch = 7
			r.commit(many("e", 500, "a", "b", "c", "d")...)
			drain(r)
			require.Empty(t, r.db.Pending())
			require.Len(t, r.arrived("t"), 500)
		})
	})
	t.Run("late answers and what waits behind them", func(t *testing.T) {
		virtual(t, 3, func(t *testing.T, r *rig) {
			r.sink.Silence = r.silentUntil("", time.Minute)
			r.store.Fault = func(c relaytest.FakeCall) (f relaytest.FakeFault) {
				if c.Op == "Settle" {
					f.Wait = 3 * time.Second // marks take longer than reads
				}
				return f
			}
			r.opts.Batch = 5
			r.commit(many("e", 60, "a", "b", "c", "d")...)
			drain(r)
			require.Empty(t, r.db.Pending())
		})
	})
	t.Run("an outage, without a key too", func(t *testing.T) {
		virtual(t, 1, func(t *testing.T, r *rig) {
			r.refuse(func(string) *relay.Failure {
				if time.Since(r.start) < time.Minute {
					return unavailable()
				}
				return nil
			})
			tx := r.db.Begin()
			tx.Insert(relaytest.NewRow{EventID: "keyless", Topic: "t"}, r.row("K-1"), r.row("K-2"))
			tx.Commit()
			require.Less(t, drain(r), time.Minute+5*time.Second)
			require.Empty(t, r.db.Pending())
		})
	})
	t.Run("not what waits for its next attempt", func(t *testing.T) {
		virtual(t, 1, func(t *testing.T, r *rig) {
			r.opts.Retry = relay.Backoff{Initial: 10 * time.Minute}
			r.refuse(func(id string) *relay.Failure {
				if id == "K-1" {
					return retriable()
				}
				return nil
			})
			r.commit("K-1", "L-1", "K-2")
			require.Less(t, drain(r), 10*time.Second)
			require.Equal(t, relay.StateFailed, r.state("K-1").State)
			require.Equal(t, relay.StateNew, r.state("K-2").State)
			require.Equal(t, []string{"L-1"}, r.arrived("t"))
		})
	})
	t.Run("a mark whose reply was lost", func(t *testing.T) {
		virtual(t, 1, func(t *testing.T, r *rig) {
			var settles atomic.Int64
			r.store.Fault = func(c relaytest.FakeCall) (f relaytest.FakeFault) {
				if c.Op == "Settle" && settles.Add(1)%2 == 1 {
					f.After = errors.New("reset by peer")
				}
				return f
			}
			tries := map[string]int{}
			r.refuse(func(id string) *relay.Failure {
				if tries[id]++; tries[id] == 1 {
					return &relay.Failure{Class: relay.ClassPermanent, Code: "X", Text: "x", Grace: 4 * time.Second}
				}
				return nil
			})
			r.opts.Retry = relay.Backoff{Initial: time.Second}
			r.commit("K-1", "K-2", "K-3")
			drain(r)
			require.Empty(t, r.db.Pending())
			require.Equal(t, []string{"K-1", "K-2", "K-3"}, r.arrived("t"))
			require.Zero(t, r.seen.count(&r.seen.lost), "marks of our own are not lost ones")
		})
	})
}

// TestRelay_MaxBlockedKeys: at the bound new events wait, heads do not, a person's act makes room, and a
// relay can start again where the last one stood.
func TestRelay_MaxBlockedKeys(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.opts.MaxBlockedKeys, r.opts.Batch = 3, 2
		var healed atomic.Bool
		r.refuse(func(id string) *relay.Failure {
			switch {
			case strings.HasPrefix(id, "dead"):
				return permanent()
			case strings.HasPrefix(id, "failed") && !healed.Load():
				return retriable()
			}
			return nil
		})
		r.opts.Retry = relay.Backoff{Max: time.Second, MaxAttempts: 1000}
		r.commit("dead1-1", "dead2-1", "failed1-1", "dead3-1", "dead4-1")
		l := r.run()
		time.Sleep(5 * time.Second)
		r.commit("good-1")
		time.Sleep(30 * time.Second)
		require.Empty(t, r.arrived("t"), "new events wait")
		require.Contains(t, r.log.String(), "too many keys are blocked")
		r.end(l)
		l = r.run()
		healed.Store(true)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"failed1-1"}, r.arrived("t"), "heads are tried")
		r.discard("dead1-1", "dead2-1")
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"failed1-1", "good-1"}, r.arrived("t"))
		r.end(l)
	})
}

// TestRelay_TooManyDoubts: what no relay can have left behind is refused at the start, with a way out.
func TestRelay_TooManyDoubts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.opts.MaxBlockedKeys, r.opts.Batch = 10, 1
		ids := make([]string, 1100)
		for i := range ids {
			ids[i] = fmt.Sprintf("k%d-1", i)
		}
		r.commit(ids...)
		dead := relay.StateDead
		for _, id := range ids {
			r.db.Edit(id, relaytest.Edit{State: &dead})
		}
		l := r.run()
		setup := relay.AsSetup(<-l.done)
		require.NotNil(t, setup)
		require.Equal(t, relay.SetupConflict, setup.Kind)
		require.Contains(t, setup.Error(), "on_dead: skip")
	})
}

func TestRelay_Standby(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		first, second := r.run(), r.run()
		synctest.Wait()
		active, waiting := first, second
		if second.Status().Active {
			active, waiting = second, first
		}
		require.False(t, waiting.Status().Active)
		require.NotEmpty(t, waiting.Status().StandbyFor)
		r.commit("K-1")
		time.Sleep(time.Second)
		r.kill(active)
		r.commit("K-2")
		time.Sleep(time.Second)
		require.True(t, waiting.Status().Active)
		require.Equal(t, []string{"K-1", "K-2"}, r.arrived("t"))
		r.end(waiting)
	})
}

// TestRelay_OwnershipLost: from then on only what Kafka has acknowledged is marked.
func TestRelay_OwnershipLost(t *testing.T) {
	virtual(t, 3, func(t *testing.T, r *rig) {
		r.opts.DrainTimeout = time.Hour
		var lost atomic.Bool
		r.store.Fault = func(c relaytest.FakeCall) (f relaytest.FakeFault) {
			if c.Op == "Settle" && !lost.Load() {
				f.Before = errors.New("not now") // so that marks are still to be written
			}
			return f
		}
		r.refuse(func(id string) *relay.Failure {
			if strings.HasPrefix(id, "bad") {
				return retriable()
			}
			return nil
		})
		l := r.run()
		r.commit("good-1", "bad-1")
		time.Sleep(2 * time.Second)
		lost.Store(true)
		require.True(t, l.store.LoseOwnership())
		require.ErrorIs(t, <-l.done, relay.ErrOwnershipLost)
		require.Equal(t, relay.StateSent, r.state("good-1").State)
		require.Equal(t, relay.StateNew, r.state("bad-1").State, "a verdict is the new owner's to write")
		l.stop()
	})
}

func TestRelay_StartErrors(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"Acquire", "Doubts"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1)
			broken := errors.New("broken")
			r.store.Fault = func(c relaytest.FakeCall) (f relaytest.FakeFault) {
				if c.Op == op {
					f.Before = broken
				}
				return f
			}
			l := r.run()
			require.ErrorIs(t, <-l.done, broken, op)
			l.stop()
			_, err := l.store.Doubts(context.Background(), 1)
			require.Error(t, err, "the store is closed")
		})
	}
}

// TestRelay_StopWhileWaiting: a standby that is stopped ends at once and without an error.
func TestRelay_StopWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		owner := r.run()
		synctest.Wait()
		waiting := r.run()
		synctest.Wait()
		r.end(waiting)
		r.end(owner)
	})
}

// TestRelay_Grace: a topic that is being created costs nothing; one that never comes makes its events
// DEAD when the grace is over.
func TestRelay_Grace(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.sink.Check = func(rec *relay.Record) *relay.Failure {
			if rec.Topic == "never" || time.Since(r.start) < 40*time.Second {
				return &relay.Failure{Class: relay.ClassPermanent, Code: "UNKNOWN_TOPIC_OR_PARTITION", Text: "no topic", Grace: time.Minute}
			}
			return nil
		}
		l := r.run()
		tx := r.db.Begin()
		never := r.row("N-1")
		never.Topic = "never"
		tx.Insert(r.row("K-1"), never, r.row("K-2"))
		tx.Commit()
		time.Sleep(30 * time.Second)
		require.Equal(t, relay.StateFailed, r.state("K-1").State)
		require.Zero(t, r.state("K-1").Attempts)
		require.Equal(t, "[unavailable] UNKNOWN_TOPIC_OR_PARTITION: no topic", r.state("K-1").LastError, "it may still come")
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"K-1", "K-2"}, r.arrived("t"))
		require.Equal(t, relay.StateFailed, r.state("N-1").State)
		time.Sleep(20 * time.Second)
		require.Equal(t, relay.StateDead, r.state("N-1").State)
		require.Equal(t, 1, r.state("N-1").Attempts)
		require.Equal(t, "[permanent] UNKNOWN_TOPIC_OR_PARTITION: no topic", r.state("N-1").LastError)
		r.end(l)
		text := r.log.String()
		require.Contains(t, text, `"msg":"relaying"`)
		require.Regexp(t, `"msg":"event is dead, a person must act","event_id":"N-1",.*"retry_count":1,"class":"permanent"`, text)
		require.Regexp(t, `events wait at no cost","event_id":"[^"]*",.*"retry_count":0,"class":"unavailable"`, text)
		require.Regexp(t, `"msg":"event sent after failures","event_id":"K-1"`, text)
	})
}

// TestRelay_ClaimAged: what waited too long with its claim is not sent, since another relay may have
// it by then.
func TestRelay_ClaimAged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1)
		r.opts.Claim, r.opts.ClaimTimeout, r.store.ClaimTimeout, r.opts.Batch = relay.ClaimRows, 10*time.Second, 10*time.Second, 1
		r.refuse(func(string) *relay.Failure {
			if time.Since(r.start) < 30*time.Second {
				return &relay.Failure{Class: relay.ClassRelay, Code: "SASL_AUTHENTICATION_FAILED", Text: "no"}
			}
			return nil
		})
		stuck := r.run()
		r.commit("K-1", "L-1", "M-1")
		time.Sleep(time.Second)
		r.sink.Answer = nil
		heir := r.run()
		time.Sleep(time.Minute)
		require.ElementsMatch(t, []string{"K-1", "L-1", "M-1"}, r.arrived("t"), "each once")
		require.Empty(t, relay.Leftovers(stuck.Relay))
		r.end(stuck)
		r.end(heir)
	})
}

// TestRelay_SmallBatches: many silent partitions do not stop the others because batches are small.
func TestRelay_SmallBatches(t *testing.T) {
	virtual(t, 64, func(t *testing.T, r *rig) {
		r.opts.Batch = 1
		r.sink.Silence = func(_ string, partition int32) time.Duration {
			if partition > 7 {
				return 5*time.Minute - time.Since(r.start)
			}
			return 0
		}
		l := r.run()
		for i := range 300 {
			r.commit(fmt.Sprintf("k%d-%d", i%100, i))
		}
		time.Sleep(4 * time.Minute)
		require.Greater(t, l.Status().Late, 20)
		require.NotEmpty(t, r.arrived("t"))
		time.Sleep(2 * time.Minute)
		require.Empty(t, r.db.Pending())
		r.end(l)
	})
}

// TestRelay_PartitionBusyWithoutKey: an event without a key has no gate to wait behind; the table keeps
// it, at no cost.
func TestRelay_PartitionBusyWithoutKey(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.sink.Silence = r.silentUntil("", 20*time.Second)
		l := r.run()
		r.commit("K-1")
		time.Sleep(5 * time.Second)
		tx := r.db.Begin()
		tx.Insert(relaytest.NewRow{EventID: "keyless", Topic: "t"})
		tx.Commit()
		time.Sleep(5 * time.Second)
		require.Equal(t, relay.StateFailed, r.state("keyless").State)
		require.Zero(t, r.state("keyless").Attempts)
		time.Sleep(15 * time.Second)
		require.Len(t, r.arrived("t"), 2)
		r.end(l)
	})
}

// TestRelay_Wake: a commit that is announced does not wait for the next poll.
func TestRelay_Wake(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.opts.PollInterval = time.Hour
		l := r.run()
		time.Sleep(3 * time.Hour)
		r.commit("K-1")
		committed := time.Since(r.start)
		l.Wake()
		l.Wake()
		time.Sleep(time.Second)
		require.Equal(t, committed, r.at("t", "K-1"))
		r.end(l)
	})
}
