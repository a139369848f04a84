package relay_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// virtual runs a test in virtual time, in both ways a store may scan.
func virtual(t *testing.T, partitions int32, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	for name, cursor := range map[string]bool{"index": false, "cursor": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, partitions)
				r.store.Cursor = cursor
				f(t, r)
			})
		})
	}
}

// TestCase_O01: the head of a key fails for ten seconds; its successors wait, other keys do not, and a
// restart in the middle changes nothing.
func TestCase_O01(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.refuse(func(id string) *relay.Failure {
			if id == "K-1" && time.Since(r.start) < 10*time.Second {
				return retriable()
			}
			return nil
		})
		l := r.run()
		r.commit("K-1", "L-1", "K-2", "M-1", "K-3")
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"L-1", "M-1"}, r.arrived("t"))
		require.Less(t, r.at("t", "M-1"), time.Second)
		require.Equal(t, 1, l.Status().BlockedKeys)
		r.end(l)
		l = r.run()
		r.commit("L-2", "K-4")
		time.Sleep(time.Second)
		require.Equal(t, []string{"L-1", "M-1", "L-2"}, r.arrived("t"))
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"L-1", "M-1", "L-2", "K-1", "K-2", "K-3", "K-4"}, r.arrived("t"))
		require.Empty(t, relay.Leftovers(l.Relay))
		r.end(l)
	})
}

// TestCase_O01_Dead: what follows a head that is given up is a matter of policy.
func TestCase_O01_Dead(t *testing.T) {
	for _, policy := range []string{relay.OnDeadHold, relay.OnDeadSkip} {
		t.Run(policy, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, r *rig) {
				r.opts.OnDead = policy
				r.refuse(func(id string) *relay.Failure {
					if id == "K-1" {
						return permanent()
					}
					return nil
				})
				l := r.run()
				r.commit("K-1", "K-2", "L-1", "K-3")
				time.Sleep(5 * time.Second)
				if policy == relay.OnDeadSkip {
					require.ElementsMatch(t, []string{"L-1", "K-2", "K-3"}, r.arrived("t"))
					r.end(l)
					return
				}
				require.Equal(t, []string{"L-1"}, r.arrived("t"))
				r.end(l)
				l = r.run()
				time.Sleep(5 * time.Second)
				require.Equal(t, []string{"L-1"}, r.arrived("t"), "a restart does not change it")
				r.discard("K-1")
				time.Sleep(3 * time.Second)
				require.Equal(t, []string{"L-1", "K-2", "K-3"}, r.arrived("t"))
				r.end(l)
			})
		})
	}
}

// TestCase_O03: a record in the middle of a pipelined batch is refused, those behind it wait until a
// person has made room.
func TestCase_O03(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		var limit atomic.Bool
		limit.Store(true)
		r.sink.Check = func(rec *relay.Record) *relay.Failure {
			if limit.Load() && eventID(rec) == "K-1" {
				return permanent()
			}
			return nil
		}
		l := r.run()
		r.commit("K-1", "K-2", "K-3")
		time.Sleep(5 * time.Second)
		require.Empty(t, r.arrived("t"))
		require.Equal(t, relay.StateDead, r.state("K-1").State)
		require.Equal(t, relay.StateNew, r.state("K-2").State)
		limit.Store(false)
		r.retry("K-1")
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"K-1", "K-2", "K-3"}, r.arrived("t"))
		r.end(l)
	})
}

// TestCase_P01: one oversize record costs its neighbours nothing, and is tried once.
func TestCase_P01(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		var tries atomic.Int64
		r.refuse(func(id string) *relay.Failure {
			if id == "big-1" {
				tries.Add(1)
				return permanent()
			}
			return nil
		})
		l := r.run()
		r.commit(append(append(many("a", 50, "k", "l", "m"), "big-1"), many("b", 50, "k", "l", "m")...)...)
		time.Sleep(time.Minute)
		require.Len(t, r.arrived("t"), 100)
		require.Equal(t, relay.StateDead, r.state("big-1").State)
		require.Equal(t, 1, r.state("big-1").Attempts)
		require.Equal(t, "[permanent] MESSAGE_TOO_LARGE: too large", r.state("big-1").LastError)
		require.EqualValues(t, 1, tries.Load())
		r.end(l)
	})
}

// TestCase_P08: an outage of many times all attempts uses up none of them, marks nothing, keeps the
// table's load low, and ends in order within five seconds.
func TestCase_P08(t *testing.T) {
	const outage, n = 10 * time.Minute, 200
	kinds := map[string]func(r *rig){
		"silent": func(r *rig) { r.sink.Silence = r.silentUntil("", outage) },
		"refused at once": func(r *rig) {
			r.sink.Check = func(*relay.Record) *relay.Failure {
				if time.Since(r.start) < outage {
					return unavailable()
				}
				return nil
			}
		},
		"fails late": func(r *rig) {
			r.sink.Latency = func(string, int32) time.Duration { return min(time.Minute, max(0, outage-time.Since(r.start))) }
			r.refuse(func(string) *relay.Failure {
				if time.Since(r.start) < outage {
					return unavailable()
				}
				return nil
			})
		},
		"no rights": func(r *rig) {
			r.refuse(func(string) *relay.Failure {
				if time.Since(r.start) < outage-10*time.Second {
					return &relay.Failure{Class: relay.ClassRelay, Code: "CLUSTER_AUTHORIZATION_FAILED", Text: "no"}
				}
				return nil
			})
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, r *rig) {
				kind(r)
				var calls atomic.Int64
				r.store.Fault = func(relaytest.FakeCall) relaytest.FakeFault { calls.Add(1); return relaytest.FakeFault{} }
				r.opts.Retry = relay.Backoff{MaxAttempts: 5}
				l := r.run()
				var ids []string
				for i := range n {
					ids = append(ids, fmt.Sprintf("k%d-%04d", i%20, i))
					r.commit(ids[i])
					time.Sleep(outage / n)
				}
				for _, row := range r.db.Pending() {
					require.Equal(t, relay.StateNew, row.State, "%v", row)
					require.Zero(t, row.Attempts)
				}
				require.Less(t, calls.Load(), int64(20*outage.Seconds()), "twenty calls a second at most")
				time.Sleep(5 * time.Second)
				require.Empty(t, r.db.Pending(), "P7: sent within five seconds")
				require.Len(t, r.arrived("t"), len(ids))
				last := map[string]string{}
				for _, id := range r.arrived("t") {
					key, _, _ := strings.Cut(id, "-")
					require.Less(t, last[key], id)
					last[key] = id
				}
				require.Empty(t, relay.Leftovers(l.Relay))
				r.end(l)
			})
		})
	}
}

// TestCase_P08_Load: an outage that fails at once is not met by reading the backlog through again and again.
func TestCase_P08_Load(t *testing.T) {
	virtual(t, 3, func(t *testing.T, r *rig) {
		var tries atomic.Int64
		r.sink.Check = func(*relay.Record) *relay.Failure { tries.Add(1); return unavailable() }
		r.opts.Batch = 100
		for i := range 3000 {
			r.commit(fmt.Sprintf("k%d-1", i))
		}
		l := r.run()
		time.Sleep(time.Minute)
		require.Less(t, tries.Load(), int64(60*150), "about a batch a second")
		r.end(l)
	})
}

// TestCase_P08_CounterCase: a refusal that never changes does end.
func TestCase_P08_CounterCase(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		var tries atomic.Int64
		r.refuse(func(string) *relay.Failure { tries.Add(1); return retriable() })
		r.opts.Retry = relay.Backoff{Schedule: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}}
		l := r.run()
		r.commit("K-1")
		for _, wait := range []time.Duration{59 * time.Second, 2 * time.Second, 299 * time.Second, 2 * time.Second, 30 * time.Minute, 2 * time.Hour} {
			require.NotEqual(t, relay.StateDead, r.state("K-1").State)
			time.Sleep(wait)
		}
		require.EqualValues(t, 5, tries.Load())
		require.Equal(t, 5, r.state("K-1").Attempts)
		require.Equal(t, relay.StateDead, r.state("K-1").State)
		r.end(l)
	})
}

// TestCase_P09: nothing is marked that did not reach Kafka.
func TestCase_P09(t *testing.T) {
	virtual(t, 1, func(t *testing.T, r *rig) {
		r.sink.Silence = r.silentUntil("", time.Minute)
		r.commit(many("e", 20, "a", "b", "c")...)
		l := r.run()
		time.Sleep(20 * time.Second)
		r.kill(l)
		require.Len(t, r.db.Pending(), 20)
		for _, row := range r.db.Pending() {
			require.Equal(t, relay.StateNew, row.State)
		}
		time.Sleep(time.Minute)
		l = r.run()
		time.Sleep(time.Second)
		require.Len(t, r.arrived("t"), 20)
		r.end(l)
	})
}

// TestCase_C08: an answer that comes after the claim was taken over does not touch the newer state.
func TestCase_C08(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("fails %v", fails), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				r.opts.Claim, r.opts.ClaimTimeout, r.store.ClaimTimeout = relay.ClaimRows, 5*time.Second, 5*time.Second
				r.sink.Silence = r.silentUntil("", 12*time.Second)
				if fails {
					r.refuse(func(string) *relay.Failure { return retriable() })
				}
				slow := r.run()
				r.commit("K-9")
				time.Sleep(4 * time.Second)
				require.Equal(t, relay.StateSending, r.state("K-9").State)
				r.sink.Silence, r.sink.Answer = nil, nil
				heir := r.run()
				time.Sleep(4 * time.Second)
				require.Equal(t, relay.StateSent, r.state("K-9").State, "taken over")
				receipt := *r.state("K-9").Receipt
				time.Sleep(10 * time.Second)
				row := r.state("K-9")
				require.Equal(t, relay.StateSent, row.State)
				require.Zero(t, row.Attempts)
				require.Equal(t, receipt, *row.Receipt)
				require.Equal(t, 1, r.seen.count(&r.seen.lost))
				require.Equal(t, 1, r.seen.count(&r.seen.reclaimed))
				require.LessOrEqual(t, len(r.arrived("t")), 2)
				require.Equal(t, 1, strings.Count(r.log.String(), "the row had changed"), "one warning")
				time.Sleep(5 * time.Second)
				require.Empty(t, relay.Leftovers(slow.Relay))
				r.end(slow)
				r.end(heir)
			})
		})
	}
}

// TestCase_C09: the end in the middle of a batch, by grace and by force.
func TestCase_C09(t *testing.T) {
	for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
		setup := func(t *testing.T, grace time.Duration) *rig {
			r := newRig(t, 4)
			r.opts.Claim, r.opts.Batch, r.opts.DrainTimeout = claim, 100, grace
			r.sink.Latency = func(string, int32) time.Duration { return 5 * time.Second }
			r.commit(many("e", 500, "a", "b", "c", "d", "e", "f")...)
			return r
		}
		t.Run(string(claim)+" with enough grace", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, 30*time.Second)
				l := r.run()
				time.Sleep(3 * time.Second)
				r.end(l)
				sent := len(r.arrived("t"))
				require.Positive(t, sent, "what was handed over is awaited")
				require.Len(t, r.db.Pending(), 500-sent, "and marked")
				for _, row := range r.db.Pending() {
					require.Equal(t, relay.StateNew, row.State, "the rest is released")
					require.Zero(t, row.Attempts)
				}
			})
		})
		t.Run(string(claim)+" with little grace", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, time.Second)
				l := r.run()
				time.Sleep(1100 * time.Millisecond)
				began := time.Now()
				r.end(l)
				require.LessOrEqual(t, time.Since(began), 4*time.Second)
				require.Len(t, r.db.Pending(), 500)
				for _, row := range r.db.Pending() {
					require.Equal(t, relay.StateNew, row.State)
				}
			})
		})
		t.Run(string(claim)+" by force", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := setup(t, 30*time.Second)
				l := r.run()
				time.Sleep(7 * time.Second)
				r.kill(l)
				l = r.run()
				time.Sleep(3 * time.Minute) // claim timeout and the rest
				require.Empty(t, r.db.Pending(), "no SQL is needed")
				require.LessOrEqual(t, len(r.arrived("t")), 500+300, "doubles within what was in flight")
				r.end(l)
			})
		})
	}
}

// TestCase_C10: a black hole for one topic holds up no other, and what waited for it goes on by itself.
func TestCase_C10(t *testing.T) {
	virtual(t, 2, func(t *testing.T, r *rig) {
		r.sink.Silence = r.silentUntil("dark", 5*time.Minute)
		l := r.run()
		for i := range 300 {
			tx := r.db.Begin()
			dark, light := r.row(fmt.Sprintf("d%d-%03d", i%7, i)), r.row(fmt.Sprintf("l%d-%03d", i%7, i))
			dark.Topic = "dark"
			tx.Insert(dark, light)
			tx.Commit()
			committed := time.Since(r.start)
			time.Sleep(2 * time.Second)
			require.GreaterOrEqual(t, r.at("t", light.EventID), time.Duration(0), "%s has not arrived", light.EventID)
			require.Less(t, r.at("t", light.EventID)-committed, 1600*time.Millisecond)
		}
		require.Len(t, r.arrived("dark"), 300, "the black hole closed five minutes ago")
		require.Less(t, r.at("dark", "d0-000"), 5*time.Minute+5*time.Second)
		r.end(l)
	})
}

// TestCase_C11: a person presses retry while the first delivery is under way.
func TestCase_C11(t *testing.T) {
	for _, relays := range []int{1, 3} {
		t.Run(fmt.Sprint(relays), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				if relays > 1 {
					r.opts.Claim = relay.ClaimRows
				}
				r.opts.PollInterval = 100 * time.Millisecond
				r.sink.Latency = func(string, int32) time.Duration { return 2 * time.Second }
				ids := many("e", 30, "a", "b", "c")
				r.commit(ids...)
				var ls []*life
				for range relays {
					ls = append(ls, r.run())
				}
				for range 10 {
					time.Sleep(time.Second)
					r.retry(ids...)
				}
				require.Len(t, r.arrived("t"), 30, "each once")
				for _, l := range ls {
					r.end(l)
				}
			})
		})
	}
}

// TestCase_C16: what is in flight is bounded in bytes, whatever the rows weigh, and a row larger than
// every bound still goes.
func TestCase_C16(t *testing.T) {
	virtual(t, 2, func(t *testing.T, r *rig) {
		r.opts.BatchBytes, r.opts.Batch = 100_000, 500
		r.sink.Latency = func(string, int32) time.Duration { return 100 * time.Millisecond }
		tx := r.db.Begin()
		for i := range 200 {
			row := r.row(fmt.Sprintf("k%d-%03d", i%9, i))
			row.Payload = make([]byte, 20_000)
			if i == 100 {
				row.Payload = make([]byte, 1_000_000)
			}
			tx.Insert(row)
		}
		tx.Commit()
		l := r.run()
		var most int64
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			most = max(most, l.Status().FlightBytes)
		}
		require.Empty(t, r.db.Pending())
		require.LessOrEqual(t, most, int64(300_000+1_001_000), "three batches, and the one that is too large")
		r.end(l)
	})
}

// TestCase_D01: a thousand rows that cannot be sent stand in front of a thousand good ones.
func TestCase_D01(t *testing.T) {
	virtual(t, 2, func(t *testing.T, r *rig) {
		r.opts.Batch = 100
		tx := r.db.Begin()
		for i := range 1000 {
			tx.InsertMalformed(r.row(fmt.Sprintf("bad%d-x", i)), errors.New("headers: invalid JSON at 14"))
		}
		tx.Commit()
		r.commit(many("good", 1000, "a", "b", "c")...)
		l := r.run()
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.arrived("t"), 1000)
		require.Equal(t, relay.StateDead, r.state("bad7-x").State)
		require.Equal(t, "[permanent] ROW_MALFORMED: headers: invalid JSON at 14 (repair the row, then postrider events retry)", r.state("bad7-x").LastError)
		r.commit("a-more")
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.arrived("t"), 1001)
		r.end(l)
	})
}
