package kafka

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
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

// of lists them.
func (o *ownership) of(name string) (lanes []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for lane, who := range o.owner {
		if who == name {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	return lanes
}

// count is how often the keeper was told of something.
func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// lines is a log to look into.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// running is one relay's part in a group, at work.
type running struct {
	*Group
	k    *keeper
	stop func()
	done chan error
}

// startGroup starts a relay; more are pairs of property and value.
func startGroup(t testing.TB, seed string, o GroupOptions, k *keeper, opts Options, more ...string) *running {
	t.Helper()
	if o.Relay == "" {
		o.Relay = k.name
	}
	g, err := NewGroup(parsed(t, properties(seed, more...)), opts, o)
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

// groupPlace is where relays share lanes, and how.
type groupPlace struct {
	seed    string
	name    string // for the group
	props   []string
	session time.Duration // until a silent member is given up
	beat    time.Duration // between words of a member
}

func (p groupPlace) consumer() bool { return len(p.props) > 0 }

// eachGroup runs a test with both protocols of groups, on a broker in this process and on a real one.
func eachGroup(t *testing.T, f func(t *testing.T, p groupPlace)) {
	consumer := []string{"group.protocol", "consumer"}
	for name, p := range map[string]groupPlace{
		"in process, classic":  {beat: heartbeat},
		"in process, consumer": {beat: 500 * time.Millisecond, props: consumer},
		"real, classic":        {beat: heartbeat},
		"real, consumer":       {beat: 500 * time.Millisecond, props: consumer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p.name, p.session = groupName(t), 6*time.Second
			if strings.HasPrefix(name, "real") {
				p.seed = realKafka(t)
				if p.consumer() {
					shortenSession(t, p.seed, p.name+".postrider")
				}
			} else {
				p.seed = cluster(t, kfake.BrokerConfigs(map[string]string{"group.consumer.session.timeout.ms": "6000",
					"group.consumer.heartbeat.interval.ms": "500"})).ListenAddrs()[0]
			}
			f(t, p)
		})
	}
}

// shortenSession has the broker wait 6 s for a silent member of the group, in place of 45.
func shortenSession(t *testing.T, seed, group string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range map[string]string{"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "500"} {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), plainClient(t, seed))
	require.NoError(t, err)
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("the broker must allow short sessions: group.consumer.min.session.timeout.ms=6000, group.consumer.min.heartbeat.interval.ms=500")
		}
		t.Skip("the broker was started before it allowed short sessions: dev/servers down kafka, then up")
	}
}

// start starts a relay there.
func (p groupPlace) start(t testing.TB, o GroupOptions, k *keeper, opts Options, more ...string) *running {
	o.SessionTimeout = p.session
	return startGroup(t, p.seed, o, k, opts, append(slices.Clone(p.props), more...)...)
}

func groupName(t testing.TB) string {
	return fmt.Sprintf("group-%d-%s", time.Now().UnixNano(), strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' || r == ',' {
			return '-'
		}
		return r
	}, t.Name()))
}
