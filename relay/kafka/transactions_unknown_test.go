package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// swift are settings under which a client gives up soon.
var swift = []string{"request.timeout.ms", "1000", "socket.connection.setup.timeout.ms", "500", "retry.backoff.ms", "10", "retry.backoff.max.ms", "50"}

// The request that ends a transaction, or its answer, is lost, once or until the client gives up: what was
// reported is there once, and nothing else.
func TestTransactions_EndLost(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			for mode, name := range map[tapFault]string{tapLoseRequest: "request", tapLoseAnswer: "answer", tapSwallow: "request swallowed", tapSwallowAnswer: "answer swallowed"} {
				for _, times := range []int{1, 2, 1000} {
					for _, rows := range []bool{true, false} {
						t.Run(fmt.Sprint(name, times, rows), func(t *testing.T) {
							t.Parallel()
							endLost(t, seed, lanes, mode, times, rows)
						})
					}
				}
			}
		})
	})
}

func endLost(t *testing.T, seed string, lanes laneMaker, mode tapFault, times int, rows bool) {
	topic := newTopic(t, seed, 2, nil)
	g := lanes(t, seed, 2)
	wire := newOneFault()
	s := openTx(t, seed, g, Options{Dial: wire.dial, Patience: 200 * time.Millisecond}, swift...)
	make := func(n int) (recs []relay.Record) {
		for i := range 4 {
			r := row(topic, fmt.Sprint("k", i), fmt.Sprint(n), int32(i%2))
			if !rows {
				r.Row = "" // copies for the dead-letter topic
			}
			recs = append(recs, r)
		}
		return recs
	}
	for n := range unmarked { // all slots have their ids
		insist(t, s, make(n)...)
	}
	wire.set(int16(kmsg.EndTxn), mode, times)
	wire.heard(int16(kmsg.InitProducerID), func() { wire.set(0, tapPass, 0) }) // it asks what became of it, and all is well
	started := time.Now()
	insist(t, s, make(unmarked)...)
	require.Less(t, time.Since(started), transactionTimeout/2, "it is not the transaction's timeout that ends it")
	insist(t, s, make(unmarked+1)...)
	inOrderCommitted(t, seed, topic, 4, unmarked+2)
}

// insist offers records until they are sent, those that are reported as unsent again, as a relay does.
func insist(t *testing.T, s relay.Sink, recs ...relay.Record) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for len(recs) > 0 {
		require.True(t, time.Now().Before(deadline), "records are left")
		var again []relay.Record
		results := sendTx(t, s, recs...)
		for i, r := range results {
			if r.Failure != nil {
				require.Equal(t, relay.ClassUnavailable, r.Failure.Class, "%v", r.Failure)
				again = append(again, recs[i])
			}
		}
		mark(results)
		recs = again
	}
}

// inOrderCommitted is inOrder for readers of committed records.
func inOrderCommitted(t *testing.T, seed, topic string, keys, each int) {
	t.Helper()
	counted(t, readCommitted(t, seed, topic), keys, each)
}

// A commit is applied, its answer lost, and a successor takes the id over before the client's next try: the
// error says that the producer was fenced, and the records are there.
func TestTransactions_FencedThoughCommitted(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			topic := newTopic(t, seed, 1, nil)
			g := lanes(t, seed, 1)
			wire := newOneFault()
			s := openTx(t, seed, g, Options{Dial: wire.dial}, "retry.backoff.ms", "500")
			mark(wellSent(t, sendTx(t, s, row(topic, "k", "0", 0))))
			wire.set(int16(kmsg.EndTxn), tapLoseAnswer, 1)
			fenced := make(chan error, 1)
			go func() {
				<-wire.hit
				adm := admin(t, seed)
				ctx := contextOf(t)
				id := fmt.Sprintf("%s/%s/0/2", g.topic, g.name)
				for ctx.Err() == nil {
					d, err := adm.DescribeTransactions(ctx, id)
					if state := d[id].State; err == nil && state != "Ongoing" && state != "PrepareCommit" {
						break
					}
				}
				fenced <- initProducer(ctx, plainClient(t, seed), id)
			}()
			r := sendTx(t, s, row(topic, "k", "1", 0))
			require.NoError(t, <-fenced)
			mark(wellSent(t, r))
			mark(wellSent(t, sendTx(t, s, row(topic, "k", "2", 0))))
			inOrderCommitted(t, seed, topic, 1, 3)
		})
	})
}

// A transaction whose id somebody else takes over before its end is not committed, and is sent again.
func TestTransactions_FencedBeforeItsEnd(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			topic := newTopic(t, seed, 1, nil)
			g := lanes(t, seed, 1)
			s := openTx(t, seed, g, Options{})
			mark(wellSent(t, sendTx(t, s, row(topic, "k", "0", 0))))
			c := plainClient(t, seed)
			var once sync.Once
			g.set(func() {
				g.wait = func(ctx context.Context) (err error) {
					once.Do(func() { err = initProducer(ctx, c, fmt.Sprintf("%s/%s/0/2", g.topic, g.name)) })
					return err
				}
			})
			mark(wellSent(t, sendTx(t, s, row(topic, "k", "1", 0))))
			inOrderCommitted(t, seed, topic, 1, 2)
		})
	})
}

// TestPromise_P4_NoDoublesWhateverIsLost writes counters of many keys while requests and answers of every kind
// get lost. What is reported as unsent is offered again, as a relay does. In the end every number is there for
// a reader of committed records, once, in order, at its receipt; and the progress records say the same.
func TestPromise_P4_NoDoublesWhateverIsLost(t *testing.T) {
	eachForm(t, func(t *testing.T, lanes laneMaker) {
		both(t, func(t *testing.T, seed string) {
			for n := range uint64(3) {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					t.Parallel()
					losses(t, seed, lanes, n)
				})
			}
		})
	})
}

func losses(t *testing.T, seed string, lanes laneMaker, n uint64) {
	const keys, numbers = 20, 30
	topic := newTopic(t, seed, 4, nil)
	g := lanes(t, seed, 3)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(n, 7))
	calm := true
	wire := &tap{fault: func(key int16) tapFault {
		mu.Lock()
		defer mu.Unlock()
		often := 0
		switch kmsg.Key(key) {
		case kmsg.EndTxn, kmsg.TxnOffsetCommit:
			often = 6
		case kmsg.Produce, kmsg.InitProducerID, kmsg.AddPartitionsToTxn:
			often = 25
		}
		if calm || often == 0 || random.IntN(often) > 0 {
			return tapPass
		}
		return tapFault(1 + random.IntN(4))
	}}
	s := openTx(t, seed, g, Options{Dial: wire.dial, Patience: 150 * time.Millisecond}, swift...)
	w := &lossWriter{seed: seed, g: g, next: make([]int, keys), receipts: map[relay.Receipt]string{}, rows: map[relay.RowID]relay.SentRow{}}
	choice := rand.New(rand.NewPCG(n, 8))
	w.write(t, s, topic, numbers, choice)
	mu.Lock()
	calm = false
	mu.Unlock()
	deadline := time.Now().Add(60 * time.Second)
	for w.left(numbers) && time.Now().Before(deadline) {
		w.write(t, s, topic, numbers, choice)
	}
	require.False(t, w.left(numbers), "records are left")
	mu.Lock()
	calm = true
	mu.Unlock()
	require.NoError(t, s.Close(contextOf(t)))
	inOrderCommitted(t, seed, topic, keys, numbers)
	for p, held := range readCommitted(t, seed, topic) {
		for _, r := range held {
			require.Equal(t, string(r.Key)+" "+string(r.Value), w.receipts[relay.Receipt{Topic: topic, Partition: int32(p), Offset: r.Offset}])
		}
	}
	for _, records := range committedRecords(t, seed, g.topic) {
		for _, r := range records {
			rows, err := decodeProgress(r.Value)
			require.NoError(t, err)
			for _, row := range rows {
				if want, wanted := w.rows[row.Row]; wanted || !g.carries { // what large transactions carried on was seen before
					require.Equal(t, want, row)
				}
				delete(w.rows, row.Row)
			}
		}
	}
	require.Empty(t, w.rows, "neither in records nor in metadata")
}

// listed are the rows that the metadata of the group's offsets lists, once stable.
func listed(t *testing.T, seed string, g *testLanes) map[relay.RowID]relay.SentRow {
	t.Helper()
	rows := map[relay.RowID]relay.SentRow{}
	for _, o := range groupOffsets(t, seed, g) {
		sent, err := parseNote(&o.Metadata).sent()
		require.NoError(t, err)
		for _, row := range sent {
			rows[row.Row] = row
		}
	}
	return rows
}

// lossWriter offers numbers of keys, each from the first that is not sent.
type lossWriter struct {
	seed     string
	g        *testLanes
	next     []int
	receipts map[relay.Receipt]string
	rows     map[relay.RowID]relay.SentRow
}

func (w *lossWriter) left(numbers int) bool {
	for _, n := range w.next {
		if n < numbers {
			return true
		}
	}
	return false
}

func (w *lossWriter) write(t *testing.T, s *Transactions, topic string, numbers int, random *rand.Rand) {
	var recs []relay.Record
	var of []int
	large := false
	for k, from := range w.next {
		for n := from; n < min(numbers, from+random.IntN(4)); n++ {
			r := row(topic, fmt.Sprint("k", k), fmt.Sprint(n), int32(k%3))
			if random.IntN(50) == 0 {
				r.Row, large = manyBytes+r.Row, true
			}
			recs = append(recs, r)
			of = append(of, k)
		}
	}
	results := sendTx(t, s, recs...)
	var there map[relay.RowID]relay.SentRow
	if w.g.carries {
		there = listed(t, w.seed, w.g)
	}
	stopped := map[int]bool{}
	for i, r := range results {
		k := of[i]
		if r.Failure != nil {
			require.Equal(t, relay.ClassUnavailable, r.Failure.Class, "%v", r.Failure)
			stopped[k] = true
			continue
		}
		require.False(t, stopped[k], "sent behind one that was not")
		w.next[k]++
		w.receipts[r.Receipt] = string(recs[i].Key) + " " + string(recs[i].Value)
		w.rows[recs[i].Row] = relay.SentRow{Row: recs[i].Row, Event: recs[i].Event, Receipt: r.Receipt}
		if w.g.carries && !large {
			require.Equal(t, w.rows[recs[i].Row], there[recs[i].Row], "whoever takes the lane over learns of each row that is sent and not marked")
			delete(w.rows, recs[i].Row)
		}
	}
	mark(results)
}
