package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// offer writes a key's records as the relay does: what was not sent is offered again, in order, until
// all are acknowledged; what is not answered is waited for. It fails on any verdict against a record.
func offer(t *testing.T, s *Sink, recs []relay.Record, until time.Duration) {
	t.Helper()
	deadline := time.Now().Add(until)
	for len(recs) > 0 {
		require.True(t, time.Now().Before(deadline), "%d records are left", len(recs))
		p := begin(t.Context(), s, recs...)
		for p.reported() < len(recs) {
			select {
			case <-p.changed:
			case <-time.After(time.Until(deadline)):
				require.Equal(t, len(recs), p.reported(), "answers are missing")
			}
		}
		var again []relay.Record
		for i := range recs {
			if f := p.result(i).Failure; f != nil {
				require.Equal(t, relay.ClassUnavailable, f.Class, "%v", f)
				again = append(again, recs[i])
			}
		}
		if len(again) == len(recs) {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
		recs = again
	}
}

// inOrder expects the numbers from 0 on, each once, of each key.
func inOrder(t *testing.T, seed, topic string, keys, each int) {
	t.Helper()
	counted(t, readAll(t, seed, topic), keys, each)
}

// counted expects the numbers from 0 on, each once, of each key.
func counted(t *testing.T, partitions [][]relaytest.SinkRecord, keys, each int) {
	t.Helper()
	next := map[string]int{}
	for _, held := range partitions {
		for _, r := range held {
			require.Equal(t, fmt.Sprint(next[string(r.Key)]), string(r.Value), "key %s", r.Key)
			next[string(r.Key)]++
		}
	}
	require.Len(t, next, keys)
	for key, n := range next {
		require.Equal(t, each, n, "key %s", key)
	}
}

// P08: an outage, short or long, in the middle of writing: no record is refused, none is lost, none is
// doubled, each key keeps its order, and writing goes on within seconds of the cluster's return.
func TestCase_P08_OutageCostsNoAttempt(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		for name, state := range map[string]linkState{"refused": linkCut, "silent": linkHole} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				topic := newTopic(t, seed, 4, nil)
				wire := newLink()
				s := open(t, parsed(t, properties(seed, "request.timeout.ms", "2000", "socket.connection.setup.timeout.ms", "500")),
					Options{Dial: wire.dial, Patience: 200 * time.Millisecond})
				const keys, each = 10, 60
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					for _, step := range []struct {
						state linkState
						lasts time.Duration
					}{{linkUp, 200}, {state, 3000}, {linkUp, 300}, {state, 500}, {linkUp, 0}} {
						wire.set(step.state, "")
						select {
						case <-time.After(step.lasts * time.Millisecond):
						case <-t.Context().Done():
							return
						}
					}
				}()
				for n := range each {
					var recs []relay.Record
					for k := range keys {
						recs = append(recs, record(topic, fmt.Sprint(k), fmt.Sprint(n)))
					}
					offer(t, s, recs, 20*time.Second)
					select {
					case <-time.After(10 * time.Millisecond):
					case <-t.Context().Done():
					}
				}
				<-stopped
				inOrder(t, seed, topic, keys, each)
				require.Zero(t, s.Health().Unanswered)
			})
		}
	})
}

// P7: once the cluster answers again, what waited is written within 5 s, without being offered again.
func TestSink_WaitingRecordsGoOutWhenTheClusterReturns(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		wire := newLink()
		s := open(t, parsed(t, properties(seed)), Options{Dial: wire.dial, Patience: 200 * time.Millisecond})
		require.Nil(t, send(t, s, record(topic, "k", "0"))[0].Failure)
		wire.set(linkCut, "")
		p := begin(t.Context(), s, record(topic, "k", "1"), record(topic, "k", "2"))
		require.Zero(t, p.reported())
		require.Eventually(t, func() bool { return s.Health().Trouble != nil && s.Health().Stalled() }, 5*time.Second, 10*time.Millisecond)
		require.Contains(t, s.Health().Trouble.Error(), "the connection is refused")
		require.Equal(t, []string{topic}, s.Health().Topics)
		// Long enough for the pauses between attempts to be at their longest.
		select {
		case <-time.After(2500 * time.Millisecond):
		case <-t.Context().Done():
		}
		wire.set(linkUp, "")
		returned := time.Now()
		p.await(t, 2)
		require.Less(t, time.Since(returned), 5*time.Second)
		require.Nil(t, p.result(0).Failure)
		require.NoError(t, s.Health().Trouble)
		// A record is reported before its partition is open again: that is what keeps the order.
		require.Eventually(t, func() bool { return !s.Health().Stalled() }, 5*time.Second, time.Millisecond)
		inOrder(t, seed, topic, 1, 3)
	})
}

// P09: a cluster that is down at the start. Nothing was acknowledged, so nothing may look sent; a second
// life of the relay writes it all.
func TestCase_P09_DownAtTheStart(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 2, nil)
		wire := newLink()
		wire.set(linkCut, "")
		cfg := parsed(t, properties(seed))
		first, err := NewSink(cfg, Options{Dial: wire.dial, Patience: 100 * time.Millisecond})
		require.NoError(t, err)
		setup := relay.AsSetup(first.Ping(t.Context()))
		require.Equal(t, relay.SetupUnreachable, setup.Kind)
		recs := []relay.Record{record(topic, "a", "0"), record(topic, "a", "1"), record(topic, "b", "0"), record(topic, "b", "1")}
		for range 3 {
			p := begin(t.Context(), first, recs...)
			for i := range recs {
				if f := p.result(i).Failure; f != nil {
					require.Equal(t, relay.ClassUnavailable, f.Class)
					require.Equal(t, CodeUnreachable, f.Code)
				} else {
					require.Zero(t, p.result(i).Receipt)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_ = first.Close(ctx)
		for _, held := range readAll(t, seed, topic) {
			require.Empty(t, held)
		}
		second := open(t, cfg, Options{})
		for _, r := range send(t, second, recs...) {
			require.Nil(t, r.Failure)
		}
		inOrder(t, seed, topic, 2, 2)
	})
}

// C10: the leader of one topic is a black hole; two relays go on with the other topic at full speed, and
// the first resumes by itself.
func TestCase_C10_BlackHoleForOneTopic(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "t1", "t2"))
	var address string
	for p := range int32(2) {
		require.NoError(t, k.MoveTopicPartition("t1", p, 1))
		require.NoError(t, k.MoveTopicPartition("t2", p, 0))
	}
	address = k.ListenAddrs()[1]
	seed := k.ListenAddrs()[0]
	const relays, writes = 2, 40
	wire := newLink()
	var sinks []*Sink
	for i := range relays {
		s := open(t, parsed(t, properties(seed)), Options{Dial: wire.dial, Patience: 200 * time.Millisecond})
		require.Nil(t, send(t, s, record("t1", fmt.Sprint("r", i), "0"))[0].Failure)
		require.Nil(t, send(t, s, record("t2", fmt.Sprint("r", i), "0"))[0].Failure)
		sinks = append(sinks, s)
	}
	wire.set(linkHole, address)
	var late []*pending
	var slowest time.Duration
	for n := range writes {
		for i, s := range sinks {
			started := time.Now()
			p := begin(t.Context(), s, record("t1", fmt.Sprint("r", i), fmt.Sprint(n+1)), record("t2", fmt.Sprint("r", i), fmt.Sprint(n+1)))
			took := time.Since(started)
			require.Contains(t, p.results, 1, "t2 is answered")
			require.Nil(t, p.result(1).Failure)
			if n == 0 {
				require.Equal(t, 1, p.reported(), "t1 waits for its answer")
				late = append(late, p)
				continue
			}
			slowest = max(slowest, took)
			require.Equal(t, relay.CodePartitionBusy, p.result(0).Failure.Code)
		}
	}
	require.Less(t, slowest, 200*time.Millisecond, "only the first write pays with its patience")
	wire.set(linkUp, "")
	for _, p := range late {
		p.await(t, 2)
		require.Nil(t, p.result(0).Failure)
	}
	for i, s := range sinks {
		// An answer is reported a moment before its partition takes records again.
		until(t, 5*time.Second, "the partition owes nothing", func() bool { return s.unanswered() == 0 })
		require.Nil(t, send(t, s, record("t1", fmt.Sprint("r", i), "2"))[0].Failure)
	}
	inOrder(t, seed, "t1", relays, 3)
	inOrder(t, seed, "t2", relays, writes+1)
}

// P05: the broker has forgotten the producer, or lost count of it. The sink recovers by itself: nothing
// is reported as failed, order is kept.
func TestCase_P05_ProducerForgotten(t *testing.T) {
	t.Parallel()
	for _, answer := range []*kerr.Error{kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		t.Run(answer.Message, func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			seed := k.ListenAddrs()[0]
			topic := newTopic(t, seed, 2, nil)
			s := open(t, parsed(t, properties(seed)), Options{})
			const keys, each = 6, 30
			for n := range each {
				if n%5 == 4 {
					k.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: answer, Count: 1 + n%2})
				}
				var recs []relay.Record
				for key := range keys {
					recs = append(recs, record(topic, fmt.Sprint(key), fmt.Sprint(n)))
				}
				started := time.Now()
				for _, r := range send(t, s, recs...) {
					require.Nil(t, r.Failure)
				}
				require.Less(t, time.Since(started), 5*time.Second)
			}
			inOrder(t, seed, topic, keys, each)
		})
	}
}

// P05 on a broker: the log's beginning is gone, and the producer's last records with it.
func TestCase_P05_RecordsDeletedBehindTheProducer(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		s := open(t, parsed(t, properties(seed)), Options{})
		adm := admin(t, seed)
		for n := range 3 {
			require.Nil(t, send(t, s, record(topic, "k", fmt.Sprint(n)))[0].Failure)
			var before kadm.Offsets
			before.AddOffset(topic, 0, int64(n)+1, -1)
			_, err := adm.DeleteRecords(t.Context(), before)
			require.NoError(t, err)
		}
		results := send(t, s, record(topic, "k", "3"), record(topic, "k", "4"))
		require.Nil(t, results[0].Failure)
		require.EqualValues(t, 3, results[0].Receipt.Offset)
	})
}
