package kafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// Three transactions may be committed and not marked. The next waits for one of them; the lowest offset that a
// successor must read stays where it was until then.
func TestTransactions_UnmarkedAreBounded(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 1)
		s := openTx(t, seed, g, Options{})
		var open [][]relay.Result
		for n := range unmarked {
			open = append(open, wellSent(t, sendTx(t, s, row(topic, "k", fmt.Sprint(n), 0), row(topic, "l", fmt.Sprint(n), 0))))
		}
		first := committedRecords(t, seed, g.topic)[0][0].Offset
		require.Equal(t, first, g.from(0))
		require.Equal(t, first, groupOffsets(t, seed, g)[0].At, "the group's offset is the oldest progress that is not marked")

		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		p := begin(ctx, s, row(topic, "k", "no", 0))
		p.await(t, 1)
		require.Equal(t, CodeCancelled, p.result(0).Failure.Code)

		open[0][0].Marked()
		require.Equal(t, first, g.from(0), "one of two rows is marked")
		sent := make(chan []relay.Result)
		go func() {
			sent <- sendTx(t, s, row(topic, "k", fmt.Sprint(unmarked), 0), row(topic, "l", fmt.Sprint(unmarked), 0))
		}()
		select {
		case <-sent:
			require.FailNow(t, "the slot was used again before its rows were marked")
		case <-time.After(100 * time.Millisecond):
		}
		open[0][1].Marked()
		require.Greater(t, g.from(0), first)
		wellSent(t, <-sent)
		records := committedRecords(t, seed, g.topic)[0]
		require.Len(t, records, unmarked+1)
		require.Equal(t, records[0].Key, records[unmarked].Key, "progress that is marked is superseded")
		require.Equal(t, g.from(0), records[1].Offset)
		require.Equal(t, records[1].Offset, groupOffsets(t, seed, g)[0].At)
		inOrderCommitted(t, seed, topic, 2, unmarked+1)
	})
}

// A lane that went to another relay before the offsets were committed: nothing of it is seen, and nothing is
// judged. What is of other lanes is sent.
func TestTransactions_LaneLost(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			topic := newTopic(t, seed, 2, nil)
			g := lanes(t, seed, 2)
			s := openTx(t, seed, g, Options{})
			var once atomic.Bool
			g.set(func() {
				g.wait = func(context.Context) error { // between the records and the offsets
					if once.CompareAndSwap(false, true) {
						g.set(func() { g.foreign[1] = true })
					}
					return nil
				}
			})
			results := sendTx(t, s, row(topic, "a", "mine", 0), row(topic, "b", "lost", 1), row(topic, "c", "mine", 0))
			require.Equal(t, relay.ClassFenced, results[1].Failure.Class)
			require.Nil(t, results[0].Failure)
			require.Nil(t, results[2].Failure)
			mark(results)
			var there []string
			for _, held := range readCommitted(t, seed, topic) {
				there = append(there, valuesOf(held)...)
			}
			require.Equal(t, []string{"mine", "mine"}, there)
			require.Empty(t, committedRecords(t, seed, g.topic)[1])
			require.Equal(t, relay.ClassFenced, sendTx(t, s, row(topic, "b", "still", 1))[0].Failure.Class)
		})
	})
}

// The broker does not know the membership: nothing is seen. The group is told, and asked again.
func TestTransactions_MembershipRefused(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			topic := newTopic(t, seed, 1, nil)
			g := lanes(t, seed, 1)
			s := openTx(t, seed, g, Options{})
			// A real member, so that the group is alive, and its generation is not the one that is claimed.
			joined := make(chan struct{}, 1)
			m := plainClient(t, seed, kgo.ConsumerGroup(g.topic), kgo.ConsumeTopics(g.topic), kgo.DisableAutoCommit(),
				kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
					select {
					case joined <- struct{}{}:
					default:
					}
				}))
			<-joined
			id, generation := m.GroupMetadata()
			for _, wrong := range []member{{group: g.topic, id: id, generation: generation + 1}, {group: g.topic, id: id, generation: generation - 1}, {group: g.topic, id: "nobody", generation: generation}} {
				before := len(readCommitted(t, seed, topic)[0])
				g.set(func() {
					g.as, g.refused = wrong, nil
					g.changed = func() {
						id, generation := m.GroupMetadata()
						g.set(func() { g.as = member{group: g.topic, id: id, generation: generation} })
					}
				})
				mark(wellSent(t, sendTx(t, s, row(topic, "k", fmt.Sprint(before), 0))))
				require.Equal(t, []member{wrong}, g.refused)
			}
			g.set(func() {
				g.as = member{group: g.topic, id: "nobody", generation: generation}
				g.changed = func() { g.set(func() { g.foreign[0] = true }) }
			})
			require.Equal(t, relay.ClassFenced, sendTx(t, s, row(topic, "k", "never", 0))[0].Failure.Class)
			inOrderCommitted(t, seed, topic, 1, 3)
			if l := g.logs[0]; l != nil {
				require.Empty(t, l.pending, "what was aborted keeps nothing back")
			}
			require.Empty(t, g.reader.logs[0].carried, "and stands in no list")
		})
	})
}

// A membership that stays unsettled is trouble that costs nothing, and has an end.
func TestTransactions_GroupDoesNotRest(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "t"))
	seed := k.ListenAddrs()[0]
	g := newLanes(t, seed, 1)
	s := openTx(t, seed, g, Options{Patience: 100 * time.Millisecond})
	g.set(func() { g.as = member{group: g.topic, id: "nobody", generation: 5} })
	started := time.Now()
	f := sendTx(t, s, row("t", "k", "v", 0))[0].Failure
	require.Less(t, time.Since(started), 5*time.Second)
	require.Equal(t, relay.ClassUnavailable, f.Class)
	require.Contains(t, f.Text, "the group's membership is not settled")
	require.Empty(t, readCommitted(t, seed, "t")[0])
}

// Rights that a person must give are named, at once.
func TestCase_P04_TransactionsForbidden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key  kmsg.Key
		err  *kerr.Error
		hint string
	}{
		{kmsg.InitProducerID, kerr.TransactionalIDAuthorizationFailed, "--operation Write --operation Describe --transactional-id"},
		{kmsg.TxnOffsetCommit, kerr.GroupAuthorizationFailed, "--operation Read --group"},
		{kmsg.TxnOffsetCommit, kerr.TopicAuthorizationFailed, "--operation Read --operation Write --operation Create --topic"},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, kfake.SeedTopics(1, "t"))
			seed := k.ListenAddrs()[0]
			s := openTx(t, seed, newLanes(t, seed, 1), Options{})
			fault := k.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: -1})
			started := time.Now()
			f := sendTx(t, s, row("t", "k", "v", 0))[0].Failure
			require.Less(t, time.Since(started), 2*time.Second)
			require.Equal(t, relay.ClassRelay, f.Class)
			require.Equal(t, c.err.Message, f.Code)
			require.Contains(t, f.Hint, c.hint)
			fault.Remove()
			mark(wellSent(t, sendTx(t, s, row("t", "k", "0", 0))))
			inOrderCommitted(t, seed, "t", 1, 1)
		})
	}
}
