package relay_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// sharing runs a test with relays that share lanes, in both kinds of delivery.
func sharing(t *testing.T, relays int, partitions int32, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	for delivery, exact := range map[string]bool{"at-least-once": false, "exactly-once": true} {
		t.Run("lanes/"+delivery, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, partitions)
				r.share(relays, exact)
				f(t, r)
			})
		})
	}
}

// TestCase_C01: an id that was drawn first commits last, while the lanes go to other relays. It is sent within
// one poll interval.
func TestCase_C01(t *testing.T) {
	everyWay(t, 2, func(t *testing.T, r *rig) {
		ls := r.runAll()
		late := r.db.Begin()
		late.Insert(r.row("K-1"), r.row("M-1"))
		r.commit("L-1", "N-1")
		time.Sleep(10 * time.Second)
		require.ElementsMatch(t, []string{"L-1", "N-1"}, r.arrived("t"))
		r.end(ls[0])
		ls[0] = r.run()
		r.commit("L-2", "N-2")
		time.Sleep(10 * time.Second)
		late.Commit()
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.arrived("t"), 6)
		require.Empty(t, r.db.Pending())
		r.end(ls...)
	})
}

// TestCase_C06: the database's clock is minutes away from the relays'. Claims and lanes stay where they are, and
// a retry comes when its backoff is over, neither sooner nor later.
func TestCase_C06(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			clocks := func(t *testing.T, r *rig) {
				r.db.Skew = skew
				r.opts.ClaimTimeout, r.store.ClaimTimeout = 30*time.Second, 30*time.Second
				r.sink.Latency = func(string, int32) time.Duration { return 20 * time.Second }
				var tries atomic.Int64
				r.refuse(func(id string) *relay.Failure {
					if id != "K-1" {
						return nil
					}
					if tries.Add(1) == 1 {
						return retriable()
					}
					return nil
				})
				r.opts.Retry = relay.Backoff{Initial: 10 * time.Second}
				ls := r.runAll()
				r.commit("K-1", "L-1", "M-1")
				time.Sleep(25 * time.Second)
				require.ElementsMatch(t, []string{"L-1", "M-1"}, r.arrived("t"))
				time.Sleep(20 * time.Second)
				require.Len(t, r.arrived("t"), 2, "K-1 is under way again")
				require.Equal(t, 2, int(tries.Load())+len(r.db.Pending()), "one attempt is behind it, one before it")
				time.Sleep(12 * time.Second)
				require.Len(t, r.arrived("t"), 3, "each once")
				require.Zero(t, r.seen.count(&r.seen.reclaimed))
				r.end(ls...)
			}
			everyWay(t, 2, clocks)
			t.Run("rows", func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, 2)
					r.opts.Claim, r.relays = relay.ClaimRows, 2
					clocks(t, r)
				})
			})
		})
	}
}

// TestCase_O02_OneKey: what is behind a slow relay's records of a key does not go out through a faster one.
func TestCase_O02_OneKey(t *testing.T) {
	sharing(t, 3, 1, func(t *testing.T, r *rig) {
		r.opts.Batch = 5
		slow := map[string]bool{}
		r.sink.Latency = func(string, int32) time.Duration { return time.Second }
		ls := append(r.runAll(), func() *life { r.sink.Latency = nil; return r.run() }())
		time.Sleep(time.Second)
		for i := range 8 { // some of these keys are the slow relays', some the fast one's
			key := fmt.Sprint("k", i)
			slow[key] = true
			r.commit(many("e", 10, key)...)
		}
		time.Sleep(time.Minute)
		for key := range slow {
			require.Equal(t, many("e", 10, key), r.ofKey("t", key))
		}
		r.end(ls...)
	})
}

// o02 commits many events of many keys while relays with Kafka near and far are killed one after the other.
func o02(r *rig) (ls []*life, each int, keys []string) {
	const nKeys, rows = 100, 20
	for i := range nKeys {
		keys = append(keys, fmt.Sprint("k", i))
	}
	dice := rand.New(rand.NewPCG(2, 2))
	r.opts.Batch = 25
	r.sink.Latency = func(topic string, p int32) time.Duration { // drawn by partition and time, so that it does not depend on who asks
		return time.Duration(rand.New(rand.NewPCG(uint64(p), uint64(time.Since(r.start)))).IntN(1500)) * time.Millisecond
	}
	r.sink.Written = func(n int) int { return n / 2 }
	r.store.Fault = func(c relaytest.FakeCall) (f relaytest.FakeFault) {
		if c.Op == "Settle" {
			f.Wait = 700 * time.Millisecond // a kill finds something sent and not marked
		}
		return f
	}
	ls = r.runAll()
	for i := range rows {
		for _, n := range dice.Perm(nKeys) {
			r.commit(fmt.Sprintf("%s-e%04d", keys[n], i))
		}
		time.Sleep(time.Second)
		if i%5 == 4 {
			r.kill(ls[i%len(ls)])
			ls[i%len(ls)] = r.run()
		}
	}
	time.Sleep(3 * time.Minute)
	require.Empty(r, r.db.Pending())
	return ls, rows, keys
}

// firsts are the first occurrences of a key's events.
func (r *rig) firsts(topic, key string) (ids []string, doubles int) {
	seen := map[string]bool{}
	for _, id := range r.ofKey(topic, key) {
		if seen[id] {
			doubles++
			continue
		}
		seen[id] = true
		ids = append(ids, id)
	}
	return ids, doubles
}

// TestCase_O02: several relays with different ways to Kafka, one killed every five seconds. Every key comes in
// order; exactly-once also each event once.
func TestCase_O02(t *testing.T) {
	sharing(t, 3, 8, func(t *testing.T, r *rig) {
		ls, rows, keys := o02(r)
		sum := 0
		for _, key := range keys {
			ids, doubles := r.firsts("t", key)
			require.Equal(t, many("e", rows, key), ids)
			sum += doubles
		}
		if r.exact {
			require.Zero(t, sum)
		}
		require.LessOrEqual(t, sum, 4*3*25*2, "four kills, three batches a flow")
		r.idle(ls...)
		r.end(ls...)
	})
}

// TestCase_O02_RowsGiveOrderUp: the same with claims on rows loses nothing, and keeps no order: what is said of
// claim: rows is no more than the truth, and the check above can fail.
func TestCase_O02_RowsGiveOrderUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8)
		r.opts.Claim, r.relays = relay.ClaimRows, 3
		ls, rows, keys := o02(r)
		wrong := 0
		for _, key := range keys {
			ids, _ := r.firsts("t", key)
			require.ElementsMatch(t, many("e", rows, key), ids)
			if fmt.Sprint(ids) != fmt.Sprint(many("e", rows, key)) {
				wrong++
			}
		}
		require.Positive(t, wrong)
		r.end(ls...)
	})
}

// TestCase_O07: transactions on one key that overlap. Nothing is lost; what is there together goes in row order;
// where the transactions wait for each other, in the order of the commits.
func TestCase_O07(t *testing.T) {
	everyWay(t, 1, func(t *testing.T, r *rig) {
		first, second := r.db.Begin(), r.db.Begin()
		first.Insert(r.row("K-1"))
		second.Insert(r.row("K-2"))
		second.Commit()
		first.Commit()
		ls := r.runAll()
		time.Sleep(time.Second)
		require.Equal(t, []string{"K-1", "K-2"}, r.arrived("t"), "both were there: row order")

		first, second = r.db.Begin(), r.db.Begin()
		first.Insert(r.row("K-3"))
		second.Insert(r.row("K-4"))
		second.Commit()
		time.Sleep(time.Second)
		first.Commit()
		time.Sleep(time.Second)
		require.Equal(t, []string{"K-1", "K-2", "K-4", "K-3"}, r.arrived("t"), "one was there before the other: commit order")

		for i := 5; i < 9; i++ { // the second waits for the first's row lock
			tx := r.db.Begin()
			tx.Insert(r.row(fmt.Sprint("K-", i)))
			time.Sleep(time.Second)
			tx.Commit()
		}
		time.Sleep(time.Second)
		require.Equal(t, []string{"K-5", "K-6", "K-7", "K-8"}, r.arrived("t")[4:])
		r.end(ls...)
	})
}

// TestPromise_P7_TakeOver: a relay that dies is replaced within the session timeout and two seconds, one that is
// stopped within a second; none of their keys waits longer, and what the others have does not wait at all.
func TestPromise_P7_TakeOver(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(r *rig, l *life)
		limit time.Duration
	}{
		"killed":  {func(r *rig, l *life) { r.kill(l) }, rigSession + 2*time.Second},
		"frozen":  {func(_ *rig, l *life) { l.member.Pause(time.Minute) }, rigSession + 2*time.Second},
		"stopped": {func(r *rig, l *life) { r.end(l) }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			sharing(t, 2, 4, func(t *testing.T, r *rig) {
				if name == "frozen" { // its threads stand still too
					r.sink.Latency = func(string, int32) time.Duration { return 2 * time.Minute }
				}
				leaving := r.run()
				r.sink.Latency = nil
				staying := r.run()
				time.Sleep(time.Second)
				r.commit(many("e", 64, "a", "b", "c", "d", "e", "f", "g", "h")...)
				time.Sleep(500 * time.Millisecond)
				c.leave(r, leaving)
				at := time.Now()
				r.commit(many("f", 64, "a", "b", "c", "d", "e", "f", "g", "h")...)
				time.Sleep(c.limit)
				require.Len(t, r.arrived("t"), 128, "after %s", time.Since(at))
				for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
					require.Len(t, r.ofKey("t", key), 16)
					require.IsIncreasing(t, r.ofKey("t", key))
				}
				if name == "frozen" {
					r.kill(leaving)
				}
				r.end(staying)
			})
		})
	}
}

// TestCase_C10_LanesMove: relays join while one topic does not answer. In transactions nothing waits for the topic,
// so the keys of the lanes that move wait for seconds at most.
func TestCase_C10_LanesMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		r.share(1, true)
		r.sink.Silence = r.silentUntil("dark", 5*time.Minute)
		ls := r.runAll()
		for i := range 60 {
			if i == 10 || i == 20 {
				ls = append(ls, r.run())
			}
			tx := r.db.Begin()
			var light []string
			for key := range 8 {
				dark, row := r.row(fmt.Sprintf("d%d-%03d", key, i)), r.row(fmt.Sprintf("l%d-%03d", key, i))
				dark.Topic = "dark"
				tx.Insert(dark, row)
				light = append(light, row.EventID)
			}
			tx.Commit()
			committed := time.Since(r.start)
			time.Sleep(4 * time.Second)
			for _, id := range light {
				require.GreaterOrEqual(t, r.at("t", id), committed, "%s has not arrived", id)
			}
		}
		require.Greater(t, r.group.Moves(), 8, "lanes have moved")
		r.kill(ls...)
	})
}

// TestSwitch_Delivery: relays that send at least once are replaced one by one by relays that send in transactions,
// and back, while services write. Both share the lanes meanwhile: each key keeps its order, and as long as relays end
// in order nothing comes twice.
func TestSwitch_Delivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		r.share(3, false)
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		n := 0
		write := func() {
			for range 20 {
				for _, key := range keys {
					r.commit(fmt.Sprintf("%s-%04d", key, n))
				}
				n++
				time.Sleep(100 * time.Millisecond)
			}
		}
		r.sink.Latency = func(string, int32) time.Duration { return 150 * time.Millisecond }
		ls := r.runAll()
		for _, exact := range []bool{true, false} {
			r.exact = exact
			for i := range ls {
				write()
				r.end(ls[i])
				ls[i] = r.run()
			}
			write()
		}
		time.Sleep(20 * time.Second)
		require.Empty(t, r.db.Pending())
		require.Len(t, r.arrived("t"), n*len(keys), "each once")
		for _, key := range keys {
			require.IsIncreasing(t, r.ofKey("t", key))
		}
		r.end(ls...)
	})
}
