package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// TestGroup_Carry: metadata takes lists of transactions while it has room, and while no commit outside of
// transactions could hide them.
func TestGroup_Carry(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(parsed(t, properties("127.0.0.1:1")), Options{}, GroupOptions{Name: "x", Relay: "a", Table: "t", Lanes: 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.lend.Close(context.Background()) })
	list := func(lanes ...int32) map[int32]string {
		lists := map[int32]string{}
		for _, lane := range lanes {
			lists[lane] = strings.Repeat("x", 500)
		}
		return lists
	}
	require.Zero(t, g.carry(list(0)), "a lane that is not this relay's")
	g.logs[0], g.logs[1] = &laneLog{plain: true}, &laneLog{}
	g.own[0], g.own[1] = true, true
	require.Zero(t, g.carry(list(0, 1)), "the owner is not noted yet")
	require.Empty(t, g.logs[1].carried, "all lanes take their list, or none does")
	g.settledPlain(map[int32]committed{0: {}}, context.DeadlineExceeded)
	require.Zero(t, g.carry(list(0)), "that commit may still be applied")
	require.True(t, g.recordsOnly, "in any lane, for as long as the relay runs")
	g.recordsOnly = false
	g.settledPlain(map[int32]committed{0: {}}, nil)

	first := g.carry(list(0, 1))
	require.NotZero(t, first)
	require.True(t, g.logs[0].openList())
	g.id, g.gen = "m", 1                        // a member
	g.commitOffsets(t.Context(), []int32{0, 1}) // there is no broker: it would take three seconds
	require.False(t, g.logs[0].plain, "nothing is committed for a lane outside of the transaction that is open")
	g.kept([]int32{0, 1}, first)
	require.False(t, g.logs[0].openList())
	require.Len(t, parseNote(pointer(g.metadata(0))).Sent, 1)
	n := 1
	for ; g.carry(list(0)) != 0; n++ {
		require.LessOrEqual(t, len(g.metadata(0)), maxMetadata)
	}
	require.Greater(t, n, 4)
	g.uncarry([]int32{0, 1}, first)
	require.NotZero(t, g.carry(list(0)), "what is marked makes room")
	g.carryNoMore()
	require.Zero(t, g.carry(list(1)))
}

func pointer(s string) *string { return &s }

// TestNote_Sent: what cannot be read is not taken for nothing.
func TestNote_Sent(t *testing.T) {
	t.Parallel()
	for _, damaged := range []string{`{"sent":[{"n":1,"l":"***"}]}`, `{"sent":[{"n":1,"l":"AA"}]}`, `{"sent":`, `by hand`} {
		_, err := parseNote(&damaged).sent()
		require.ErrorIs(t, err, errProgress, damaged)
	}
	for _, none := range []string{"", `{"relay":"a"}`} {
		rows, err := parseNote(&none).sent()
		require.NoError(t, err)
		require.Empty(t, rows)
	}
}

// TestGroup_CarriedIsTakenOver: what a relay had sent in small transactions and did not mark before it fell silent is
// known to the one that takes its lanes, and nothing else is.
func TestGroup_CarriedIsTakenOver(t *testing.T) {
	t.Parallel()
	eachGroup(t, func(t *testing.T, p groupPlace) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 2, Flows: 1}
		a := p.start(t, o, newKeeper(t, all, "a"), Options{})
		until(t, 20*time.Second, "a has all", func() bool { return a.owns(0) && a.owns(1) })
		topic := newTopic(t, p.seed, 2, nil)
		s := openTx(t, p.seed, a.Group, Options{})
		want := map[relay.RowID]relay.SentRow{}
		for n := range 8 {
			recs := []relay.Record{row(topic, "k", fmt.Sprint(n), 0), row(topic, "l", fmt.Sprint(n), 1)}
			results := wellSent(t, sendTx(t, s, recs...))
			for i := range recs {
				want[recs[i].Row] = relay.SentRow{Row: recs[i].Row, Event: recs[i].Event, Receipt: results[i].Receipt}
			}
			if n%2 == 0 { // these are marked
				mark(results)
				delete(want, recs[0].Row)
				delete(want, recs[1].Row)
			}
		}
		for _, records := range committedRecords(t, p.seed, a.topic) {
			require.Empty(t, records, "no progress record was written")
		}
		b := newKeeper(t, &ownership{owner: map[int32]string{}}, "b")
		second := p.start(t, o, b, Options{})
		until(t, 60*time.Second, "b has one", func() bool { return second.owns(0) != second.owns(1) })
		require.NoError(t, a.end(t))
		until(t, 60*time.Second, "b has both", func() bool { return second.owns(0) && second.owns(1) })
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range b.taken {
			for _, sent := range l.Sent {
				require.Equal(t, want[sent.Row], sent)
				delete(want, sent.Row)
			}
		}
		require.Empty(t, want, "sent, not marked, and not known to the next owner")
	})
}

// TestTransactions_LittleMetadata: a broker that takes little metadata with an offset costs one transaction.
func TestTransactions_LittleMetadata(t *testing.T) {
	t.Parallel()
	k := cluster(t, kfake.SeedTopics(1, "t"))
	seed := k.ListenAddrs()[0]
	k.ControlKey(int16(kmsg.TxnOffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		req := r.(*kmsg.TxnOffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewTxnOffsetCommitResponseTopic()
			t.Topic, t.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				if len(*rp.Metadata) < 90 {
					return nil, nil, false
				}
				p := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				p.Partition, p.ErrorCode = rp.Partition, kerr.OffsetMetadataTooLarge.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
	g := newLanes(t, seed, 1)
	g.carries = true
	log := &lines{}
	g.reader.log = slog.New(slog.NewTextHandler(log, nil))
	s := openTx(t, seed, g, Options{})
	for n := range 3 {
		mark(wellSent(t, sendTx(t, s, row("t", "k", fmt.Sprint(n), 0))))
	}
	require.True(t, log.has("offset.metadata.max.bytes"))
	require.Len(t, committedRecords(t, seed, g.topic)[0], 3)
	inOrderCommitted(t, seed, "t", 1, 3)
}
