package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// manyBytes is a row that is too much for a position's metadata.
var manyBytes = relay.RowID(strings.Repeat("r", 2*maxCarried))

// Close while a Write stands anywhere on its way: it is over when Close's time is, nothing is reported
// afterwards, and nothing of it comes to be committed unless its end had been sent.
func TestTransactions_CloseOnTheWay(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		for _, stage := range []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
			t.Run(kmsg.NameForKey(int16(stage)), func(t *testing.T) {
				t.Parallel()
				topic := newTopic(t, seed, 1, nil)
				wire := newOneFault()
				s := openTx(t, seed, newLanes(t, seed, 1), Options{Dial: wire.dial})
				mark(wellSent(t, sendTx(t, s, row(topic, "k", "0", 0))))
				wire.set(int16(stage), tapSwallow, 1000)
				written := make(chan *pending)
				next := row(topic, "k", "1", 0)
				if stage == kmsg.AddPartitionsToTxn {
					next.Row = manyBytes // small transactions do without
				}
				go func() { written <- begin(t.Context(), s, next) }()
				<-wire.hit
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				started := time.Now()
				err := s.Close(ctx)
				require.ErrorContains(t, err, "1 records are not answered")
				require.Less(t, time.Since(started), time.Second)
				p := <-written
				require.Zero(t, p.reported(), "%v", p.results)
				require.NoError(t, s.Close(t.Context()))
				require.Zero(t, begin(t.Context(), s, row(topic, "k", "2", 0)).reported())
				inOrderCommitted(t, seed, topic, 1, 1)
				require.Less(t, time.Since(started), transactionTimeout/2, "readers do not wait for what was left")
			})
		}
	})
}

// Close waits for the Write under way, and lets no new one in.
func TestTransactions_CloseWaits(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 1)
		s := openTx(t, seed, g, Options{})
		in, out := make(chan struct{}), make(chan struct{})
		g.set(func() { g.wait = func(context.Context) error { close(in); <-out; return nil } })
		written := make(chan *pending)
		go func() { written <- begin(t.Context(), s, row(topic, "k", "0", 0)) }()
		<-in
		closed := make(chan error)
		go func() { closed <- s.Close(contextOf(t)) }()
		<-s.stop
		require.Zero(t, begin(t.Context(), s, row(topic, "k", "1", 0)).reported())
		close(out)
		require.NoError(t, <-closed)
		require.Nil(t, (<-written).result(0).Failure)
		inOrderCommitted(t, seed, topic, 1, 1)
	})
}

// A Write whose context ends returns at once. The transaction under way is brought to its end, and reported;
// what was not begun goes back.
func TestTransactions_ContextEnds(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 1, nil)
		g := newLanes(t, seed, 1)
		s := openTx(t, seed, g, Options{})
		in, out := make(chan struct{}), make(chan struct{})
		g.set(func() { g.wait = func(context.Context) error { close(in); <-out; return nil } })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-in; cancel() }()
		p := begin(ctx, s, row(topic, "k", "0", 0))
		require.Zero(t, p.reported(), "its fate is not known")
		late := begin(ctx, s, row(topic, "k", "1", 0))
		require.Equal(t, CodeCancelled, late.result(0).Failure.Code)
		close(out)
		p.await(t, 1)
		require.Nil(t, p.result(0).Failure)
		inOrderCommitted(t, seed, topic, 1, 1)
	})
}

// An outage from before the first record to the end of a transaction, whose outcome is not known then: the
// events cost nothing, and all goes on by itself when the brokers are back.
func TestTransactions_Outage(t *testing.T) {
	both(t, func(t *testing.T, seed string) {
		topic := newTopic(t, seed, 2, nil)
		g := newLanes(t, seed, 2)
		wire := newLink()
		wire.set(linkCut, "")
		s := openTx(t, seed, g, Options{Dial: wire.dial, Patience: 200 * time.Millisecond}, swift...)
		recs := func(n int) []relay.Record {
			return []relay.Record{row(topic, "a", fmt.Sprint(n), 0), row(topic, "b", fmt.Sprint(n), 1)}
		}
		for _, r := range sendTx(t, s, recs(0)...) {
			require.Equal(t, relay.ClassUnavailable, r.Failure.Class)
			require.Equal(t, CodeUnreachable, r.Failure.Code)
		}
		require.Error(t, s.Health().Trouble)
		wire.set(linkUp, "")
		insist(t, s, recs(0)...)

		wire.set(linkCut, "")
		for _, r := range sendTx(t, s, recs(1)...) {
			require.Equal(t, relay.ClassUnavailable, r.Failure.Class)
		}
		wire.set(linkUp, "")
		insist(t, s, recs(1)...)

		g.set(func() { g.wait = func(context.Context) error { wire.set(linkCut, ""); return nil } })
		for _, r := range sendTx(t, s, recs(2)...) {
			require.Equal(t, relay.ClassUnavailable, r.Failure.Class)
		}
		g.set(func() { g.wait = nil })
		wire.set(linkUp, "")
		insist(t, s, recs(2)...)
		require.NoError(t, s.Health().Trouble)
		inOrderCommitted(t, seed, topic, 2, 3)
	})
}
