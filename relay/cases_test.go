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

// everyWay is virtual, and the same with three relays that share lanes, in both kinds of delivery.
func everyWay(t *testing.T, partitions int32, f func(t *testing.T, r *rig)) {
	t.Helper()
	virtual(t, partitions, f)
	for delivery, exact := range map[string]bool{"at-least-once": false, "exactly-once": true} {
		t.Run("lanes/"+delivery, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, partitions)
				r.share(3, exact)
				f(t, r)
			})
		})
	}
}

// TestCase_O01: the head of a key fails for ten seconds; its successors wait, other keys do not, and a
// restart in the middle changes nothing.
func TestCase_O01(t *testing.T) {
	everyWay(t, 1, func(t *testing.T, r *rig) {
		r.refuse(func(id string) *relay.Failure {
			if id == "K-1" && time.Since(r.start) < 10*time.Second {
				return retriable()
			}
			return nil
		})
		ls := r.runAll()
		r.commit("K-1", "L-1", "K-2", "M-1", "K-3")
		time.Sleep(time.Second)
		require.ElementsMatch(t, []string{"L-1", "M-1"}, r.arrived("t"))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, blocked(ls))
		r.end(ls...)
		ls = r.runAll()
		r.commit("L-2", "K-4")
		time.Sleep(time.Second)
		require.Len(t, r.arrived("t"), 3)
		require.Equal(t, []string{"L-1", "L-2"}, r.ofKey("t", "L"))
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"K-1", "K-2", "K-3", "K-4"}, r.ofKey("t", "K"))
		require.Len(t, r.arrived("t"), 7, "each once")
		r.idle(ls...)
		r.end(ls...)
	})
}

// TestCase_O01_Dead: what follows a head that is given up is a matter of policy.
func TestCase_O01_Dead(t *testing.T) {
	for _, policy := range []string{relay.OnDeadHold, relay.OnDeadSkip} {
		t.Run(policy, func(t *testing.T) {
			everyWay(t, 1, func(t *testing.T, r *rig) {
				r.opts.OnDead = policy
				r.refuse(func(id string) *relay.Failure {
					if id == "K-1" {
						return permanent()
					}
					return nil
				})
				ls := r.runAll()
				r.commit("K-1", "K-2", "L-1", "K-3")
				time.Sleep(5 * time.Second)
				if policy == relay.OnDeadSkip {
					require.Equal(t, []string{"K-2", "K-3"}, r.ofKey("t", "K"))
					require.Len(t, r.arrived("t"), 3)
					r.end(ls...)
					return
				}
				require.Equal(t, []string{"L-1"}, r.arrived("t"))
				r.end(ls...)
				ls = r.runAll()
				time.Sleep(5 * time.Second)
				require.Equal(t, []string{"L-1"}, r.arrived("t"), "a restart does not change it")
				r.discard("K-1")
				time.Sleep(3 * time.Second)
				require.Equal(t, []string{"L-1", "K-2", "K-3"}, r.arrived("t"))
				r.end(ls...)
			})
		})
	}
}

// TestCase_O03: a record in the middle of a pipelined batch is refused, those behind it wait until a
// person has made room.
func TestCase_O03(t *testing.T) {
	everyWay(t, 1, func(t *testing.T, r *rig) {
		var limit atomic.Bool
		limit.Store(true)
		r.sink.Check = func(rec *relay.Record) *relay.Failure {
			if limit.Load() && eventID(rec) == "K-1" {
				return permanent()
			}
			return nil
		}
		ls := r.runAll()
		r.commit("K-1", "K-2", "K-3")
		time.Sleep(5 * time.Second)
		require.Empty(t, r.arrived("t"))
		require.Equal(t, relay.StateDead, r.state("K-1").State)
		require.Equal(t, relay.StateNew, r.state("K-2").State)
		limit.Store(false)
		r.retry("K-1")
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"K-1", "K-2", "K-3"}, r.arrived("t"))
		r.end(ls...)
	})
}

// TestCase_P01: one oversize record costs its neighbours nothing, and is tried once.
func TestCase_P01(t *testing.T) {
	everyWay(t, 1, func(t *testing.T, r *rig) {
		var tries atomic.Int64
		r.refuse(func(id string) *relay.Failure {
			if id == "big-1" {
				tries.Add(1)
				return permanent()
			}
			return nil
		})
		ls := r.runAll()
		r.commit(append(append(many("a", 50, "k", "l", "m"), "big-1"), many("b", 50, "k", "l", "m")...)...)
		time.Sleep(time.Minute)
		require.Len(t, r.arrived("t"), 100)
		require.Equal(t, relay.StateDead, r.state("big-1").State)
		require.Equal(t, 1, r.state("big-1").Attempts)
		require.Equal(t, "[permanent] MESSAGE_TOO_LARGE: too large", r.state("big-1").LastError)
		require.EqualValues(t, 1, tries.Load())
		r.end(ls...)
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
			everyWay(t, 3, func(t *testing.T, r *rig) {
				kind(r)
				var calls atomic.Int64
				r.store.Fault = func(relaytest.FakeCall) relaytest.FakeFault { calls.Add(1); return relaytest.FakeFault{} }
				r.opts.Retry = relay.Backoff{MaxAttempts: 5}
				ls := r.runAll()
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
				require.Less(t, calls.Load(), int64(20*outage.Seconds())*int64(len(ls)), "twenty calls a second and relay at most")
				time.Sleep(5 * time.Second)
				require.Empty(t, r.db.Pending(), "P7: sent within five seconds")
				require.Len(t, r.arrived("t"), len(ids))
				last := map[string]string{}
				for _, id := range r.arrived("t") {
					key, _, _ := strings.Cut(id, "-")
					require.Less(t, last[key], id)
					last[key] = id
				}
				r.idle(ls...)
				r.end(ls...)
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
	everyWay(t, 1, func(t *testing.T, r *rig) {
		r.sink.Silence = r.silentUntil("", time.Minute)
		r.commit(many("e", 20, "a", "b", "c")...)
		ls := r.runAll()
		time.Sleep(20 * time.Second)
		r.kill(ls...)
		require.Len(t, r.db.Pending(), 20)
		for _, row := range r.db.Pending() {
			require.Equal(t, relay.StateNew, row.State)
		}
		time.Sleep(time.Minute)
		ls = r.runAll()
		time.Sleep(time.Second)
		require.Len(t, r.arrived("t"), 20)
		r.end(ls...)
	})
}

// TestCase_C08: an answer that comes after the claim, or the lane, was taken over does not touch the newer
// state.
func TestCase_C08(t *testing.T) {
	ways := map[string]func(r *rig){
		"rows": func(r *rig) {
			r.opts.Claim, r.opts.ClaimTimeout, r.store.ClaimTimeout = relay.ClaimRows, 5*time.Second, 5*time.Second
		},
		"lanes/at-least-once": func(r *rig) { r.share(2, false) },
		"lanes/exactly-once":  func(r *rig) { r.share(2, true) },
	}
	for name, way := range ways {
		for _, fails := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/fails %v", name, fails), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, 1)
					way(r)
					lateAnswer(r, fails)
				})
			})
		}
	}
}

// lateAnswer lets one relay wait twelve seconds for an answer, which another relay does not wait for.
func lateAnswer(r *rig, fails bool) {
	r.sink.Latency = func(string, int32) time.Duration { return 12 * time.Second }
	if fails {
		r.refuse(func(string) *relay.Failure { return retriable() })
	}
	slow := r.run()
	r.commit("K-9")
	time.Sleep(3 * time.Second)
	r.sink.Latency, r.sink.Answer = nil, nil
	heir := r.run()
	if r.group != nil {
		slow.member.Pause(15 * time.Second) // what its threads began goes on: the worst kind of pause
	} else {
		require.Equal(r, relay.StateSending, r.state("K-9").State)
	}
	time.Sleep(8 * time.Second)
	require.Equal(r, relay.StateSent, r.state("K-9").State, "taken over")
	receipt := *r.state("K-9").Receipt
	time.Sleep(10 * time.Second)
	row := r.state("K-9")
	require.Equal(r, relay.StateSent, row.State)
	require.Zero(r, row.Attempts)
	require.Equal(r, receipt, *row.Receipt)
	if r.exact {
		require.Equal(r, []string{"K-9"}, r.arrived("t"), "the broker fences")
	} else {
		require.Equal(r, 1, r.seen.count(&r.seen.lost))
		require.LessOrEqual(r, len(r.arrived("t")), 2)
		require.Equal(r, 1, strings.Count(r.log.String(), "the row had changed"), "one warning")
	}
	if r.group == nil {
		require.Equal(r, 1, r.seen.count(&r.seen.reclaimed))
	}
	time.Sleep(5 * time.Second)
	r.idle(slow)
	r.end(slow, heir)
}

// TestCase_C09: the end in the middle of a batch, by grace and by force.
func TestCase_C09(t *testing.T) {
	ways := map[string]func(r *rig){
		"single":              func(*rig) {},
		"rows":                func(r *rig) { r.opts.Claim = relay.ClaimRows },
		"lanes/at-least-once": func(r *rig) { r.share(3, false) },
		"lanes/exactly-once":  func(r *rig) { r.share(3, true) },
	}
	for name, way := range ways {
		setup := func(t *testing.T, grace time.Duration) *rig {
			r := newRig(t, 4)
			way(r)
			r.opts.Batch, r.opts.DrainTimeout = 100, grace
			r.sink.Latency = func(string, int32) time.Duration { return 5 * time.Second }
			return r
		}
		t.Run(name+"/with enough grace", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { endWithGrace(setup(t, 30*time.Second)) })
		})
		t.Run(name+"/with little grace", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { endWithLittleGrace(setup(t, time.Second)) })
		})
		t.Run(name+"/by force", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { endByForce(setup(t, 30*time.Second)) })
		})
	}
}

// facing is a rig's relays at work, with 500 events in front of them.
func facing(r *rig) []*life {
	ls := r.runAll()
	r.commit(many("e", 500, "a", "b", "c", "d", "e", "f")...)
	return ls
}

func endWithGrace(r *rig) {
	ls := facing(r)
	time.Sleep(3 * time.Second)
	r.end(ls...)
	sent := len(r.arrived("t"))
	require.Positive(r, sent, "what was handed over is awaited")
	require.Len(r, r.db.Pending(), 500-sent, "and marked")
	for _, row := range r.db.Pending() {
		require.Equal(r, relay.StateNew, row.State, "the rest is released")
		require.Zero(r, row.Attempts)
	}
}

func endWithLittleGrace(r *rig) {
	ls := facing(r)
	time.Sleep(1100 * time.Millisecond)
	began := time.Now()
	r.end(ls...)
	require.LessOrEqual(r, time.Since(began), 4*time.Second)
	require.Len(r, r.db.Pending(), 500)
	for _, row := range r.db.Pending() {
		require.Equal(r, relay.StateNew, row.State)
	}
}

func endByForce(r *rig) {
	ls := facing(r)
	time.Sleep(7 * time.Second)
	r.kill(ls...)
	ls = r.runAll()
	time.Sleep(3 * time.Minute) // claim timeout and the rest
	require.Empty(r, r.db.Pending(), "no SQL is needed")
	doubles := len(ls) * 300
	if r.exact {
		doubles = 0
	}
	require.LessOrEqual(r, len(r.arrived("t")), 500+doubles, "doubles within what was in flight")
	r.end(ls...)
}

// TestCase_C10: a black hole for one topic holds up no other, and what waited for it goes on by itself.
func TestCase_C10(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
		r.sink.Silence = r.silentUntil("dark", 5*time.Minute)
		ls := r.runAll()
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
		r.idle(ls...)
		r.end(ls...)
	})
}

// TestCase_C11: a person presses retry while the first delivery is under way.
func TestCase_C11(t *testing.T) {
	ways := map[string]func(r *rig){
		"1":                   func(*rig) {},
		"3":                   func(r *rig) { r.opts.Claim, r.relays = relay.ClaimRows, 3 },
		"lanes/at-least-once": func(r *rig) { r.share(3, false) },
		"lanes/exactly-once":  func(r *rig) { r.share(3, true) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1)
				way(r)
				r.opts.PollInterval = 100 * time.Millisecond
				r.sink.Latency = func(string, int32) time.Duration { return 2 * time.Second }
				ids := many("e", 30, "a", "b", "c")
				r.commit(ids...)
				ls := r.runAll()
				for range 10 {
					time.Sleep(time.Second)
					r.retry(ids...)
				}
				require.Len(t, r.arrived("t"), 30, "each once")
				r.end(ls...)
			})
		})
	}
}

// TestCase_C16: what is in flight is bounded in bytes, whatever the rows weigh, and a row larger than
// every bound still goes.
func TestCase_C16(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
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
		ls := r.runAll()
		var most int64
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			for _, l := range ls {
				most = max(most, l.Status().FlightBytes)
			}
		}
		require.Empty(t, r.db.Pending())
		require.LessOrEqual(t, most, int64(300_000+1_001_000), "three batches, and the one that is too large")
		r.idle(ls...)
		r.end(ls...)
	})
}

// TestCase_D01: a thousand rows that cannot be sent stand in front of a thousand good ones.
func TestCase_D01(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
		r.opts.Batch = 100
		tx := r.db.Begin()
		for i := range 1000 {
			tx.InsertMalformed(r.row(fmt.Sprintf("bad%d-x", i)), errors.New("headers: invalid JSON at 14"))
		}
		tx.Commit()
		r.commit(many("good", 1000, "a", "b", "c")...)
		ls := r.runAll()
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.arrived("t"), 1000)
		require.Equal(t, relay.StateDead, r.state("bad7-x").State)
		require.Equal(t, "[permanent] ROW_MALFORMED: headers: invalid JSON at 14 (repair the row, then postrider events retry)", r.state("bad7-x").LastError)
		r.commit("a-more")
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.arrived("t"), 1001)
		r.end(ls...)
	})
}
