package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

// testLanes is a group whose lanes are all this relay's unless told otherwise. Its membership is the nameless
// one that brokers let through, unless told otherwise.
type testLanes struct {
	reader *Group
	topic  string
	id     [16]byte
	name   string

	mu      sync.Mutex
	as      member
	carries bool // in the offsets' metadata, what is little
	foreign map[int32]bool
	logs    map[int32]*laneLog
	refused []member
	wait    func(ctx context.Context) error // in with, before anything else
	changed func()                          // after stale
}

// newLanes makes a control topic with so many lanes.
func newLanes(t testing.TB, seed string, n int32) *testLanes {
	t.Helper()
	topic := newTopic(t, seed, n, map[string]string{"cleanup.policy": "compact"})
	found, err := admin(t, seed).ListTopics(t.Context(), topic)
	require.NoError(t, err)
	l := &testLanes{
		topic: topic, id: found[topic].ID, name: fmt.Sprint("run-", topicNumber.Add(1)),
		as: member{group: topic, generation: -1}, foreign: map[int32]bool{}, logs: map[int32]*laneLog{},
	}
	l.reader = &Group{topic: topic, topicID: l.id, runID: l.name, lend: open(t, parsed(t, properties(seed)), Options{}), log: slog.Default(),
		logs: map[int32]*laneLog{}, own: map[int32]bool{}}
	for lane := range n {
		l.reader.logs[lane], l.reader.own[lane] = &laneLog{}, true
	}
	return l
}

type laneMaker func(t testing.TB, seed string, n int32) *testLanes

// eachForm runs a test with progress in records, and in the metadata of offsets.
func eachForm(t *testing.T, f func(t *testing.T, lanes laneMaker)) {
	t.Helper()
	t.Run("records", func(t *testing.T) { f(t, newLanes) })
	t.Run("metadata", func(t *testing.T) {
		f(t, func(t testing.TB, seed string, n int32) *testLanes {
			l := newLanes(t, seed, n)
			l.carries = true
			return l
		})
	})
}

func (l *testLanes) carry(rows map[int32]string) uint64 {
	if !l.carries {
		return 0
	}
	return l.reader.carry(rows)
}

func (l *testLanes) kept(lanes []int32, number uint64)    { l.reader.kept(lanes, number) }
func (l *testLanes) uncarry(lanes []int32, number uint64) { l.reader.uncarry(lanes, number) }
func (l *testLanes) carryNoMore()                         { l.reader.carryNoMore() }

func (l *testLanes) committedList(ctx context.Context, lanes []int32, number uint64) (bool, error) {
	return l.reader.committedList(ctx, lanes, number)
}

func (l *testLanes) metadata(lane int32) string {
	if l.carries {
		return l.reader.metadata(lane)
	}
	return fmt.Sprint("lane ", lane)
}

func (l *testLanes) with(ctx context.Context, lanes []int32, f func(m member) error) error {
	l.mu.Lock()
	wait, m := l.wait, l.as
	l.mu.Unlock()
	if wait != nil {
		if err := wait(ctx); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(lanes, func(lane int32) bool { return !l.owns(lane) }) {
		return errNotOwner
	}
	return f(m)
}

func (l *testLanes) owns(lane int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.foreign[lane]
}

func (l *testLanes) stale(m member) {
	l.mu.Lock()
	l.refused = append(l.refused, m)
	changed := l.changed
	l.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func (l *testLanes) doubt(error)                 {}
func (l *testLanes) control() (string, [16]byte) { return l.topic, l.id }
func (l *testLanes) run() string                 { return l.name }

func (l *testLanes) noted(lane int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.logs[lane]
	if g == nil {
		g = &laneLog{}
		l.logs[lane] = g
	}
	g.pending, g.next = append(g.pending, offset), offset+1
}

func (l *testLanes) dropped(lane int32, offset int64) { l.marked(lane, offset) }

func (l *testLanes) marked(lane int32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.logs[lane]; g != nil {
		g.pending = slices.DeleteFunc(g.pending, func(o int64) bool { return o == offset })
	}
}

func (l *testLanes) from(lane int32) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch g := l.logs[lane]; {
	case g == nil && l.carries:
		return 0
	case g == nil:
		return -1
	case len(g.pending) > 0:
		return g.pending[0]
	default:
		return g.next
	}
}

func (l *testLanes) readCommitted(ctx context.Context, lane int32, from, to int64, each func(*kgo.Record)) error {
	return l.reader.readCommitted(ctx, lane, from, to, each)
}

func (l *testLanes) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// openTx makes a transactional sink that is closed with the test.
func openTx(t testing.TB, seed string, g lanes, o Options, more ...string) *Transactions {
	t.Helper()
	s, err := newTransactions(parsed(t, properties(seed, more...)), o, g, 0)
	require.NoError(t, err)
	closeLater(t, s)
	return s
}

var rowNumber = struct {
	sync.Mutex
	n int
}{}

// row makes a record of a lane.
func row(topic, key, value string, lane int32) relay.Record {
	rowNumber.Lock()
	defer rowNumber.Unlock()
	rowNumber.n++
	r := record(topic, key, value)
	r.Row, r.Event, r.Lane = relay.RowID(fmt.Sprint(rowNumber.n)), relay.HashEvent(value), lane
	return r
}

// sendTx writes and expects a report of each.
func sendTx(t testing.TB, s relay.Sink, recs ...relay.Record) []relay.Result {
	t.Helper()
	p := begin(t.Context(), s, recs...)
	require.Equal(t, len(recs), p.reported())
	require.Empty(t, p.twice)
	out := make([]relay.Result, len(recs))
	for i := range recs {
		out[i] = p.result(i)
	}
	return out
}

// mark tells that all are marked.
func mark(rs []relay.Result) {
	for _, r := range rs {
		if r.Marked != nil {
			r.Marked()
		}
	}
}

// wellSent expects receipts.
func wellSent(t testing.TB, rs []relay.Result) []relay.Result {
	t.Helper()
	for i, r := range rs {
		require.Nil(t, r.Failure, "record %d: %v", i, r.Failure)
	}
	return rs
}

// readCommitted reads what a reader of committed records sees of a topic, once nothing of it is open.
func readCommitted(t testing.TB, seed, topic string) [][]relaytest.SinkRecord {
	t.Helper()
	var held [][]relaytest.SinkRecord
	for p, records := range committedRecords(t, seed, topic) {
		held = append(held, nil)
		for _, r := range records {
			var headers []relay.Header
			for _, h := range r.Headers {
				headers = append(headers, relay.Header{Name: h.Key, Value: h.Value})
			}
			held[p] = append(held[p], relaytest.SinkRecord{Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: headers})
		}
	}
	return held
}

// committedRecords waits until nothing of the topic is open, and reads it by partition.
func committedRecords(t testing.TB, seed, topic string) [][]*kgo.Record {
	t.Helper()
	return stableRecords(t, seed, topic, kgo.ReadCommitted())
}

// stableRecords is committedRecords for readers of either isolation level.
func stableRecords(t testing.TB, seed, topic string, level kgo.IsolationLevel) [][]*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	adm := admin(t, seed)
	var ends kadm.ListedOffsets
	require.Eventually(t, func() bool {
		var err error
		ends, err = adm.ListEndOffsets(ctx, topic)
		stable, err2 := adm.ListCommittedOffsets(ctx, topic)
		if err != nil || err2 != nil || ends.Error() != nil || stable.Error() != nil {
			return false
		}
		for p, end := range ends[topic] {
			if stable[topic][p].Offset < end.Offset {
				return false
			}
		}
		return true
	}, 60*time.Second, 5*time.Millisecond, "topic %s has open transactions", topic)
	held := make([][]*kgo.Record, len(ends[topic]))
	from, next := map[int32]kgo.Offset{}, map[int32]int64{}
	for p, end := range ends[topic] {
		if end.Offset > 0 {
			from[p] = kgo.NewOffset().AtStart()
			next[p] = end.Offset
		}
	}
	c := plainClient(t, seed, kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	defer c.Close()
	for len(next) > 0 {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				held[r.Partition] = append(held[r.Partition], r)
			}
			if r.Offset+1 >= next[r.Partition] {
				delete(next, r.Partition)
			}
		})
	}
	return held
}
