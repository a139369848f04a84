package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// farAway is a network whose answers take their time.
func farAway(rtt time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		time.Sleep(rtt)
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &farConn{c, rtt}, err
	}
}

type farConn struct {
	net.Conn
	rtt time.Duration
}

func (c *farConn) Write(b []byte) (int, error) {
	time.Sleep(c.rtt)
	return c.Conn.Write(b)
}

// leaveUnmarked lets a relay send rows of each lane that are never marked, and end.
func leaveUnmarked(t *testing.T, seed string, o GroupOptions, times int) {
	t.Helper()
	all := &ownership{owner: map[int32]string{}}
	a := startGroup(t, seed, o, newKeeper(t, all, "a"), Options{})
	until(t, 20*time.Second, "a has all", func() bool { return all.has("a") == int(o.Lanes) && a.owns(0) })
	a.carryNoMore()
	topic := newTopic(t, seed, 1, nil)
	s := openTx(t, seed, a, Options{})
	for n := range times {
		var recs []relay.Record
		for lane := range o.Lanes {
			r := row(topic, fmt.Sprint("k", lane), fmt.Sprint(n, "-", lane), lane)
			r.Row = manyBytes + r.Row // progress that takes a record
			recs = append(recs, r)
		}
		wellSent(t, sendTx(t, s, recs...))
	}
	require.NoError(t, a.end(t))
}

// TestGroup_TakeOverReadsAtOnce: what the last owner left of sixteen lanes is read in as many requests as that of one,
// however far the brokers are.
func TestGroup_TakeOverReadsAtOnce(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	var reads, ends atomic.Int32
	for key, n := range map[kmsg.Key]*atomic.Int32{kmsg.Fetch: &reads, kmsg.ListOffsets: &ends} {
		k.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			n.Add(1)
			return nil, nil, false
		})
	}
	b := successor(t, k.ListenAddrs()[0], Options{}, 16)
	reads.Store(0)
	ends.Store(0)
	requireSent(t, b, 16)
	require.EqualValues(t, 1, reads.Load(), "requests that read")
	require.EqualValues(t, 2, ends.Load(), "requests for the end, and for where nothing is open")
}

// successor is a relay that is about to take lanes over of which two transactions each are not marked.
func successor(t *testing.T, seed string, opts Options, lanes int32) *Group {
	t.Helper()
	o := GroupOptions{Name: groupName(t), Table: "t", Lanes: lanes, Flows: 1}
	leaveUnmarked(t, seed, o, 2)
	o.Relay = "b"
	b, err := NewGroup(parsed(t, properties(seed)), opts, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	require.NoError(t, b.prepare(t.Context()))
	return b
}

func requireSent(t *testing.T, b *Group, lanes int32) {
	t.Helper()
	began := time.Now()
	taken, _, err := b.barrier(t.Context(), allLanes(lanes))
	require.NoError(t, err)
	t.Logf("%d lanes: %s", lanes, time.Since(began).Round(100*time.Microsecond))
	for _, l := range taken {
		require.Len(t, l.Sent, 2, "lane %d", l.Lane)
	}
}

// TestGroup_TakeOverTime shows how long the barrier of a take-over lasts; it logs, and judges nothing.
func TestGroup_TakeOverTime(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, seed string) {
		for _, rtt := range []time.Duration{0, 3 * time.Millisecond} {
			b := successor(t, seed, Options{Dial: farAway(rtt)}, 16)
			for _, what := range []string{"the last owner's transactions ended", "again, ended already"} {
				t.Log(rtt, what)
				requireSent(t, b, 16)
			}
		}
	})
}

// TestGroup_ManyRuns: however many runs of relays have come and gone, a lane's partition holds few records once it is
// compacted, a list that is not marked is never among those that compaction took, and a take-over reads nothing else.
func TestGroup_ManyRuns(t *testing.T) {
	t.Parallel()
	const runs, flows, lanes = 12, 2, 4
	run := func(t *testing.T, seed string, compact func()) {
		o := GroupOptions{Name: groupName(t), Table: "t", Lanes: lanes, Flows: flows}
		topic := newTopic(t, seed, 1, nil)
		all := &ownership{owner: map[int32]string{}}
		waiting := map[int32]relay.RowID{}
		for n := range runs {
			k := newKeeper(t, all, "a")
			g := startGroup(t, seed, o, k, Options{})
			until(t, 20*time.Second, "all lanes are open", func() bool {
				return !slices.ContainsFunc(allLanes(lanes), func(lane int32) bool { return !g.owns(lane) })
			})
			g.carryNoMore()
			k.mu.Lock()
			for _, l := range k.taken {
				if n > 0 {
					require.Len(t, l.Sent, 2, "run %d, lane %d: what is not marked, what came behind it, and nothing else", n, l.Lane)
					require.Equal(t, waiting[l.Lane], l.Sent[0].Row)
				}
			}
			k.mu.Unlock()
			for flow := range flows {
				s, err := newTransactions(parsed(t, properties(seed)), Options{}, g, flow)
				require.NoError(t, err)
				for i := range 5 {
					var recs []relay.Record
					for lane := int32(flow); lane < lanes; lane += flows {
						recs = append(recs, row(topic, fmt.Sprint(lane), fmt.Sprint(n, i), lane))
						if i == 3 {
							waiting[lane] = recs[len(recs)-1].Row
						}
					}
					if sent := wellSent(t, sendTx(t, s, recs...)); i != 3 {
						mark(sent)
					}
				}
				copied := row(topic, "copy", "for the dead-letter topic", int32(flow))
				copied.Row = ""
				wellSent(t, sendTx(t, s, copied))
				require.NoError(t, s.Close(t.Context()))
			}
			require.NoError(t, g.end(t))
			compact()
		}
		for lane, records := range committedRecords(t, seed, o.Name+".postrider") {
			keys := map[string]bool{}
			for _, r := range records {
				keys[string(r.Key)] = true
			}
			t.Logf("lane %d: %d records under %d keys", lane, len(records), len(keys))
			require.LessOrEqual(t, len(keys), 2*unmarked, "slots of the lane's flow, and as many for copies")
		}
	}
	t.Run("compacted", func(t *testing.T) {
		t.Parallel()
		k := cluster(t)
		run(t, k.ListenAddrs()[0], k.Compact)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		run(t, realKafka(t), func() {})
	})
}
