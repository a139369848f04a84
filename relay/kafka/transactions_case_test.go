package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// openSink opens a sink with the settings of tests.
type openSink func(t *testing.T, seed string) relay.Sink

// eachDelivery runs a test with the sinks of both kinds of delivery.
func eachDelivery(t *testing.T, f func(t *testing.T, open openSink)) {
	t.Run("at-least-once", func(t *testing.T) {
		f(t, func(t *testing.T, seed string) relay.Sink { return open(t, parsed(t, properties(seed)), Options{}) })
	})
	t.Run("exactly-once", func(t *testing.T) {
		f(t, func(t *testing.T, seed string) relay.Sink {
			return marking{openTx(t, seed, newLanes(t, seed, 3), Options{})}
		})
	})
}

// TestCase_P11_OneNameForTwoRelays: two relays have the same name and the same configuration, as copies of one pod
// have. Their transactional ids are different all the same: neither fences the other, and each sends what is its own.
func TestCase_P11_OneNameForTwoRelays(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 2, nil)
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: groupName(t), Relay: "relay", Table: "t", Lanes: 4, Flows: 1}
		const writes = 20
		var groups []*running
		for _, name := range []string{"a", "b"} {
			groups = append(groups, startGroup(t, seed, o, newKeeper(t, all, name), Options{}))
		}
		until(t, 30*time.Second, "both have half", func() bool { return all.has("a") == 2 && all.has("b") == 2 })
		require.NotEqual(t, groups[0].run(), groups[1].run())
		done := make(chan error, len(groups))
		for _, g := range groups {
			s, err := NewTransactions(parsed(t, properties(seed)), Options{}, g.Group, 0)
			require.NoError(t, err)
			closeLater(t, s)
			go func() { done <- writeOwn(t.Context(), s, g, topic, writes) }()
		}
		for range groups {
			require.NoError(t, <-done)
		}
		counted(t, readCommitted(t, seed, topic), 4, writes)
		of := map[string]string{} // transactional ids, and whose they are
		for lane, records := range committedRecords(t, seed, groups[0].topic) {
			for _, r := range records {
				id := transactionOf(r)
				if of[id] == "" {
					of[id] = all.owner[int32(lane)]
				}
				require.Equal(t, all.owner[int32(lane)], of[id], "%s is of one relay", id)
			}
		}
		require.LessOrEqual(t, len(of), 2*unmarked, "nobody lost an id, or there would be new ones")
	})
}

// writeOwn writes numbers under a key for each lane that the relay has.
func writeOwn(ctx context.Context, s *Transactions, g *running, topic string, writes int) error {
	for n := range writes {
		var recs []relay.Record
		for lane := range int32(4) {
			if g.owns(lane) {
				recs = append(recs, row(topic, fmt.Sprint("lane-", lane), fmt.Sprint(n), lane))
			}
		}
		p := begin(ctx, s, recs...)
		for i := range recs {
			r := p.result(i)
			if r.Failure != nil {
				return fmt.Errorf("write %d: %w", n, r.Failure)
			}
			r.Marked()
		}
	}
	return nil
}

// TestCase_P11_TimedOut: a relay stands still in a transaction until brokers have ended it (transaction.timeout.ms).
// It takes a new id by itself; what it had sent is seen once.
func TestCase_P11_TimedOut(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 1)
		s := openTx(t, seed, g, Options{})
		insist(t, s, row(topic, "k", "0", 0))
		var ended time.Duration
		g.set(func() {
			g.wait = func(context.Context) error { // between the records and the offsets
				g.set(func() { g.wait = nil })
				started := time.Now()
				ended = -1
				for ended < 0 && time.Since(started) < 60*time.Second {
					if id := openTransaction(t, seed, g); id == "" {
						ended = time.Since(started)
					}
				}
				return nil
			}
		})
		insist(t, s, row(topic, "k", "1", 0))
		require.Greater(t, ended, transactionTimeout/2, "the broker's own time ended it")
		insist(t, s, row(topic, "k", "2", 0))
		inOrderCommitted(t, seed, topic, 1, 3)
	})
}

// openTransaction names a transaction that the lanes' relay has open; "" for none. It looks twice a second.
func openTransaction(t *testing.T, seed string, g *testLanes) string {
	time.Sleep(500 * time.Millisecond)
	adm := admin(t, seed)
	listed, err := adm.ListTransactions(t.Context(), nil, []string{"Ongoing", "PrepareAbort", "PrepareEpochFence"})
	if err != nil {
		return err.Error()
	}
	for id := range listed {
		if len(id) > len(g.topic) && id[:len(g.topic)] == g.topic {
			return id
		}
	}
	return ""
}

// TestCase_C10_SilentPartitionOfTransactions: one topic does not answer. Two relays that send in transactions go on
// with the other one, and with the first by themselves once it answers.
func TestCase_C10_SilentPartitionOfTransactions(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "hole", "open"))
	seed := k.ListenAddrs()[0]
	const relays, writes = 2, 20
	var sinks []relay.Sink
	for i := range relays {
		s := openTx(t, seed, newLanes(t, seed, 2), Options{Patience: 300 * time.Millisecond})
		sinks = append(sinks, s)
		insist(t, s, row("hole", fmt.Sprint("r", i), "0", 0), row("open", fmt.Sprint("r", i), "0", 1))
	}
	resume := stall(k, "hole")
	for n := range writes {
		for i, s := range sinks {
			results := sendTx(t, s, row("hole", fmt.Sprint("r", i), "1", 0), row("open", fmt.Sprint("r", i), fmt.Sprint(n+1), 1))
			require.Equal(t, relay.ClassUnavailable, results[0].Failure.Class)
			require.Nil(t, results[1].Failure)
			mark(results)
		}
	}
	resume()
	for i, s := range sinks {
		insist(t, s, row("hole", fmt.Sprint("r", i), "1", 0))
	}
	inOrderCommitted(t, seed, "hole", relays, 2)
	inOrderCommitted(t, seed, "open", relays, writes+1)
}

// TestTransactions_ReadUncommitted: what a transaction wrote that was aborted, a reader of uncommitted records sees
// too: committed events twice, but no others. A reader of committed records sees each once.
func TestTransactions_ReadUncommitted(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 2)
		s := openTx(t, seed, g, Options{})
		insist(t, s, row(topic, "k", "0", 0), row(topic, "l", "0", 1))
		g.set(func() {
			g.wait = func(context.Context) error { // between the records and the offsets
				g.set(func() { g.wait, g.foreign[1] = nil, true })
				return nil
			}
		})
		results := sendTx(t, s, row(topic, "k", "1", 0), row(topic, "l", "1", 1))
		require.Nil(t, results[0].Failure)
		require.Equal(t, relay.ClassFenced, results[1].Failure.Class)
		mark(results)
		require.Equal(t, []string{"0", "0", "1"}, valuesOf(readCommitted(t, seed, topic)[0]), "the other lane's event is its new owner's to send")
		var all []string
		for _, r := range stableRecords(t, seed, topic, kgo.ReadUncommitted())[0] {
			all = append(all, string(r.Value))
		}
		require.Equal(t, []string{"0", "0", "1", "1", "1"}, all)
	})
}

// TestGroup_ControlTopicDeleted: a relay that is started after the control topic was deleted makes it anew and takes
// all lanes.
func TestGroup_ControlTopicDeleted(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, seed string) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 3, Flows: 1}
		first := startGroup(t, seed, o, newKeeper(t, all, "a"), Options{})
		until(t, 20*time.Second, "owned", func() bool { return all.has("a") == 3 })
		answers, err := admin(t, seed).DeleteTopics(t.Context(), first.topic)
		require.NoError(t, err)
		require.NoError(t, answers.Error())
		_ = first.end(t)
		startGroup(t, seed, o, newKeeper(t, all, "b"), Options{})
		until(t, 30*time.Second, "owned again", func() bool { return all.has("b") == 3 })
	})
}

// TestGroup_TakeOverFreesReaders: a relay falls silent with a transaction open. Readers of committed records pass as
// soon as its lanes are another's, not when the transaction's time has run out.
func TestGroup_TakeOverFreesReaders(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 2, Flows: 1, SessionTimeout: 6 * time.Second}
		route := &sink{}
		a := newKeeper(t, &ownership{owner: map[int32]string{}}, "a")
		silent := startGroup(t, seed, o, a, Options{Dial: route.dial})
		until(t, 20*time.Second, "a has all", func() bool { return silent.owns(0) && silent.owns(1) })
		left := plainClient(t, seed, kgo.TransactionalID(silent.topic+"/"+silent.run()+"/0/99"), kgo.TransactionTimeout(2*time.Minute))
		require.NoError(t, left.BeginTransaction())
		require.NoError(t, left.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("open")}).FirstErr())
		route.swallow(true)
		heir := startGroup(t, seed, o, newKeeper(t, &ownership{owner: map[int32]string{}}, "b"), Options{})
		until(t, 40*time.Second, "b has all", func() bool { return heir.owns(0) && heir.owns(1) })
		began := time.Now()
		require.Empty(t, committedRecords(t, seed, topic)[0])
		require.Less(t, time.Since(began), 5*time.Second)
		route.swallow(false)
	})
}
