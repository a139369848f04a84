package kafka

import (
	"context"
	"fmt"
	"net"
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
