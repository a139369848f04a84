package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// keeper is a relay as its Group sees it. It notes which lanes it has, and holds that calls come one by one.
type keeper struct {
	t    testing.TB
	name string
	all  *ownership

	mu      sync.Mutex
	busy    bool
	refuse  error // of Take
	lows    map[int32]string
	taken   []relay.TakenLane
	changes int
}

// ownership is who works on which lane, over all keepers: never two at once.
type ownership struct {
	mu    sync.Mutex
	owner map[int32]string
}

func newKeeper(t testing.TB, all *ownership, name string) *keeper {
	return &keeper{t: t, name: name, all: all, lows: map[int32]string{}}
}

func (k *keeper) one() func() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy {
		k.t.Error("the keeper is called twice at once")
	}
	k.busy = true
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.busy = false
		k.changes++
	}
}

func (k *keeper) Take(_ context.Context, lanes []relay.TakenLane) error {
	defer k.one()()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return k.refuse
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	for _, l := range lanes {
		if other := k.all.owner[l.Lane]; other != "" {
			k.t.Errorf("%s takes lane %d, which %s has", k.name, l.Lane, other)
		}
		k.all.owner[l.Lane] = k.name
	}
	k.taken = append(k.taken, lanes...)
	return nil
}

func (k *keeper) Give(_ context.Context, lanes []int32) {
	defer k.one()()
	k.drop(lanes)
}

func (k *keeper) Lose(lanes []int32) {
	defer k.one()()
	k.drop(lanes)
}

func (k *keeper) drop(lanes []int32) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	for _, lane := range lanes {
		if k.all.owner[lane] == k.name {
			delete(k.all.owner, lane)
		}
	}
}

func (k *keeper) Low(lane int32) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	low, ok := k.lows[lane]
	return low, ok
}

// has counts the lanes that a keeper works on.
func (o *ownership) has(name string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, who := range o.owner {
		if who == name {
			n++
		}
	}
	return n
}

// running is one relay's part in a group, at work.
type running struct {
	*Group
	k    *keeper
	stop func()
	done chan error
}

func startGroup(t testing.TB, seed string, o GroupOptions, k *keeper, opts Options) *running {
	t.Helper()
	if o.Relay == "" {
		o.Relay = k.name
	}
	g, err := NewGroup(parsed(t, properties(seed)), opts, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Group: g, k: k, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- g.Run(ctx, k) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(20 * time.Second):
			t.Error("Run does not end")
		}
	})
	return r
}

// end stops it and returns what Run returned.
func (r *running) end(t testing.TB) error {
	t.Helper()
	r.stop()
	err := <-r.done
	r.done <- nil
	return err
}

func until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, within, 5*time.Millisecond, what)
}

// eachKafka runs a test on a broker in this process and on a real one.
func eachKafka(t *testing.T, f func(t *testing.T, seed string)) {
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		f(t, cluster(t).ListenAddrs()[0])
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		f(t, realKafka(t))
	})
}

func groupName(t testing.TB) string {
	return fmt.Sprintf("group-%d-%s", time.Now().UnixNano(), strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name()))
}

// TestGroup_Share: relays that join and leave share the lanes, each lane with one at a time, and an owner learns
// where the one before had begun to read.
func TestGroup_Share(t *testing.T) {
	t.Parallel()
	eachKafka(t, func(t *testing.T, seed string) {
		all := &ownership{owner: map[int32]string{}}
		o := GroupOptions{Name: groupName(t), Table: "postgres://db/app outbox_events", Lanes: 6}
		a := newKeeper(t, all, "a")
		for lane := range int32(6) {
			a.lows[lane] = fmt.Sprint(100 + lane)
		}
		first := startGroup(t, seed, o, a, Options{})
		until(t, 20*time.Second, "the first has all lanes", func() bool { return all.has("a") == 6 })
		b := newKeeper(t, all, "b")
		startGroup(t, seed, o, b, Options{})
		until(t, 20*time.Second, "both have half", func() bool { return all.has("a") == 3 && all.has("b") == 3 })
		require.NoError(t, first.end(t))
		began := time.Now()
		until(t, 20*time.Second, "the second has all", func() bool { return all.has("b") == 6 })
		require.Less(t, time.Since(began), 5*time.Second, "a clean stop is not waited out")
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range b.taken {
			require.Equal(t, fmt.Sprint(100+l.Lane), l.Low, "lane %d", l.Lane)
			require.Empty(t, l.Sent)
		}
	})
}

// TestGroup_TakeFails: what stands in the way of taking lanes over is tried again.
func TestGroup_TakeFails(t *testing.T) {
	t.Parallel()
	all := &ownership{owner: map[int32]string{}}
	k := newKeeper(t, all, "a")
	k.refuse = errors.New("the database does not answer")
	startGroup(t, cluster(t).ListenAddrs()[0], GroupOptions{Name: "x", Table: "t", Lanes: 2}, k, Options{})
	until(t, 20*time.Second, "tried", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.changes > 2
	})
	require.Zero(t, all.has("a"))
	k.mu.Lock()
	k.refuse = nil
	k.mu.Unlock()
	until(t, 20*time.Second, "taken", func() bool { return all.has("a") == 2 })
}

// TestGroup_Refused: what can never work is said at once, with the thing, the reason and the next step.
func TestGroup_Refused(t *testing.T) {
	t.Parallel()
	seed := cluster(t).ListenAddrs()[0]
	all := &ownership{owner: map[int32]string{}}
	o := GroupOptions{Name: "shop", Table: "postgres://db/app outbox_events", Lanes: 2}
	startGroup(t, seed, o, newKeeper(t, all, "a"), Options{})
	until(t, 20*time.Second, "owned", func() bool { return all.has("a") == 2 })
	for name, c := range map[string]struct {
		change func(*GroupOptions)
		want   []string
	}{
		"another number of lanes": {func(o *GroupOptions) { o.Lanes = 5 }, []string{"topic shop.postrider", "has 2 partitions", "relay.lanes is 5", "set relay.lanes: 2"}},
		"another table": {func(o *GroupOptions) { o.Table = "mysql://other/x outbox_event" },
			[]string{"outbox.name shop", "postgres://db/app outbox_events", "mysql://other/x outbox_event", "a name of its own"}},
	} {
		t.Run(name, func(t *testing.T) {
			other := o
			c.change(&other)
			r := startGroup(t, seed, other, newKeeper(t, all, "b"), Options{})
			select {
			case err := <-r.done:
				r.done <- nil
				require.NotNil(t, relay.AsSetup(err), "%v", err)
				for _, w := range c.want {
					require.Contains(t, err.Error(), w)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on")
			}
		})
	}
}

// TestGroup_Rights: a right that is missing is named with the command that grants it.
func TestGroup_Rights(t *testing.T) {
	t.Parallel()
	topic := func(op kmsg.ACLOperation) kfake.ACL {
		return topicACL(op, "shop.postrider", kmsg.ACLResourcePatternTypeLiteral)
	}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: "shop.postrider", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	for name, c := range map[string]struct {
		acls  []kfake.ACL
		flows int
		want  []string
	}{
		"no group": {[]kfake.ACL{topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 0, []string{"group shop.postrider", "--operation Read --group shop.postrider"}},
		"no topic": {[]kfake.ACL{group}, 0, []string{"topic shop.postrider", "--operation Create --topic shop.postrider"}},
		"no transactional ids": {[]kfake.ACL{group, topic(kmsg.ACLOperationRead), topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate)}, 2,
			[]string{"transactional ids shop.postrider/", "--operation Write --operation Describe --transactional-id shop.postrider --resource-pattern-type prefixed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "app", "app", c.acls...))
			cfg := parsed(t, properties(k.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN",
				"sasl.jaas.config", `org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="app";`))
			g, err := NewGroup(cfg, Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}, GroupOptions{Name: "shop", Relay: "a", Table: "t", Lanes: 2, Flows: c.flows})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err = g.Run(ctx, newKeeper(t, &ownership{owner: map[int32]string{}}, "a"))
			setup := relay.AsSetup(err)
			require.NotNil(t, setup, "%v", err)
			require.Equal(t, relay.SetupPermission, setup.Kind)
			for _, w := range c.want {
				require.Contains(t, setup.Error(), w)
			}
		})
	}
}

// TestGroup_OldTransactions: a cluster whose transactions are not safe enough is refused before the first event.
func TestGroup_OldTransactions(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), plainClient(t, k.ListenAddrs()[0]))
	require.NoError(t, err)
	for i, f := range versions.FinalizedFeatures {
		if f.Name == "transaction.version" {
			versions.FinalizedFeatures[i].MaxVersionLevel = 1
		}
	}
	k.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl()
		answer := *versions
		answer.SetVersion(req.GetVersion())
		return &answer, nil, true
	})
	g, err := NewGroup(parsed(t, properties(k.ListenAddrs()[0])), Options{}, GroupOptions{Name: "shop", Relay: "a", Table: "t", Lanes: 2, Flows: 1})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = g.Run(ctx, newKeeper(t, &ownership{owner: map[int32]string{}}, "a"))
	require.ErrorContains(t, err, "relay.delivery: exactly-once needs the cluster's feature transaction.version to be 2, and it is 1; kafka-features.sh")
}

// TestGroup_Silent: a relay whose network has gone loses its lanes to another within the session timeout and two
// seconds, and hears of it when the network is back (P7).
func TestGroup_Silent(t *testing.T) {
	t.Parallel()
	seed := realKafka(t)
	all := &ownership{owner: map[int32]string{}}
	o := GroupOptions{Name: groupName(t), Table: "t", Lanes: 4, SessionTimeout: 6 * time.Second}
	route := &sink{}
	a, b := newKeeper(t, nil, "a"), newKeeper(t, nil, "b")
	// Each with its own view: a does not know yet that it has lost, so both have lanes for a while.
	a.all, b.all = &ownership{owner: map[int32]string{}}, all
	startGroup(t, seed, o, a, Options{Dial: route.dial})
	until(t, 20*time.Second, "a has all", func() bool { return a.all.has("a") == 4 })
	startGroup(t, seed, o, b, Options{})
	until(t, 20*time.Second, "they share", func() bool { return a.all.has("a") == 2 && all.has("b") == 2 })
	route.swallow(true)
	began := time.Now()
	until(t, 20*time.Second, "b has all", func() bool { return all.has("b") == 4 })
	require.Less(t, time.Since(began), o.SessionTimeout+2*time.Second)
	until(t, 20*time.Second, "a knows", func() bool { return a.all.has("a") == 0 })
	route.swallow(false)
	until(t, 30*time.Second, "they share again", func() bool { return a.all.has("a") == 2 && all.has("b") == 2 })
}

// sink is a network that takes what is sent and delivers nothing, as one does that lost its route. (A link blocks the
// writer, which no operating system does so soon.)
type sink struct {
	mu    sync.Mutex
	empty bool
	conns []*sinkConn
}

type sinkConn struct {
	net.Conn
	s *sink
}

func (s *sink) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty {
		return nil, errors.New("no route")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	sc := &sinkConn{c, s}
	s.conns = append(s.conns, sc)
	return sc, nil
}

func (s *sink) swallow(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.empty = yes; yes {
		return
	}
	for _, c := range s.conns {
		_ = c.Conn.Close() // what was swallowed does not come any more
	}
	s.conns = nil
}

// Write loses everything while the network swallows.
func (c *sinkConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	empty := c.s.empty
	c.s.mu.Unlock()
	if empty {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestGroup_Offsets: the lowest progress record that is not marked decides where a later owner begins.
func TestGroup_Offsets(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(parsed(t, properties("127.0.0.1:1")), Options{}, GroupOptions{Name: "x", Relay: "a", Table: "t", Lanes: 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.lend.Close(context.Background()) })
	require.EqualValues(t, -1, g.from(0), "not owned")
	g.logs[0] = &laneLog{next: 40}
	require.EqualValues(t, 40, g.from(0))
	for _, at := range []int64{44, 41, 47} {
		g.noted(0, at)
	}
	require.EqualValues(t, 41, g.from(0))
	g.marked(0, 44)
	require.EqualValues(t, 41, g.from(0))
	g.dropped(0, 41)
	require.EqualValues(t, 47, g.from(0))
	g.marked(0, 47)
	require.EqualValues(t, 48, g.from(0))
	g.marked(0, 12) // of an earlier time
	require.EqualValues(t, 48, g.from(0))
	require.True(t, slices.IsSorted(g.logs[0].pending))
}
