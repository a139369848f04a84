package relaytest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// peerCases hold who may work on a table beside whom.
func peerCases() []storeCase {
	named := func(name string) func(*relay.StoreOptions) {
		return func(o *relay.StoreOptions) { o.Name = name }
	}
	noPeers := func(tr Traits) bool { return tr.NoPeers }
	return []storeCase{
		{name: "Acquire lets one relay in and a second one wait", only: relay.ClaimSingle, run: func(b *bed) {
			peersWait(b, []*client{b.open()}, b.open(second))
		}},
		{name: "Acquire lets in any number of relays with claims, of any outbox name", only: relay.ClaimRows, run: func(b *bed) {
			peersShare(b.open(), b.open(second), b.open(named("another")))
		}},
		{name: "Acquire lets in any number of relays of the same lanes", only: relay.ClaimLanes, run: func(b *bed) {
			peersShare(b.open(), b.openLaneless(second), b.openLaneless(func(o *relay.StoreOptions) { o.Relay = "relay-3" }))
		}},
		{name: "Acquire waits for the last relay of another claim mode", skip: noPeers, run: peersModes},
		{name: "Acquire waits for a relay of another outbox name", except: relay.ClaimRows, skip: noPeers, run: func(b *bed) {
			peersWait(b, []*client{b.open()}, b.openLaneless(second, named("another")))
		}},
		{name: "Acquire waits for a relay of another number of lanes", only: relay.ClaimLanes, skip: noPeers, run: func(b *bed) {
			other := b.openLaneless(second, func(o *relay.StoreOptions) { o.Lanes++ })
			w := peersWait(b, []*client{b.open()}, other)
			require.Contains(b, w.holder, "with another outbox.name or relay.lanes than this relay's (")
		}},
		{name: "Acquire lets in all that wait, one after the other", skip: noPeers, run: peersQueue},
		{name: "Acquire ends with its context", run: ownerCancelled, only: relay.ClaimSingle},
	}
}

// acquire must succeed without waiting.
func (c *client) acquire() <-chan struct{} {
	c.Helper()
	lost, err := c.Acquire(c.ctx, noStandby(c.bed))
	require.NoError(c, err)
	return lost
}

// waiting is an Acquire that had to wait.
type waiting struct {
	holder string
	told   chan string
	in     chan error
}

// mustWait starts an Acquire and returns when it was told to wait.
func (c *client) mustWait() *waiting {
	c.Helper()
	w := &waiting{told: make(chan string, 10), in: make(chan error, 1)}
	go func() {
		_, err := c.Acquire(c.ctx, func(holder string) { w.told <- holder })
		w.in <- err
	}()
	select {
	case w.holder = <-w.told:
	case err := <-w.in:
		require.Fail(c, "two relays have the table that may not work beside one another", "%v", err)
	case <-time.After(patience):
		require.Fail(c, "the relay was not told to wait")
	}
	return w
}

func (w *waiting) outside(b *bed) {
	b.Helper()
	select {
	case err := <-w.in:
		require.Fail(b, "two relays have the table that may not work beside one another", "%v", err)
	default:
	}
}

func (w *waiting) inside(b *bed) {
	b.Helper()
	select {
	case err := <-w.in:
		require.NoError(b, err)
	case <-time.After(patience):
		require.Fail(b, "the relay did not get the table")
	}
	require.Empty(b, w.told, "standby is called once")
}

// peersWait holds that the newcomer waits until the last of the holders is gone.
func peersWait(b *bed, holders []*client, newcomer *client) *waiting {
	b.Helper()
	var lost []<-chan struct{}
	for _, c := range holders {
		lost = append(lost, c.acquire())
	}
	w := newcomer.mustWait()
	require.Contains(b, w.holder, fmt.Sprintf("claim: %s", b.claim), "who holds the table, and in which mode")
	for i, c := range holders {
		w.outside(b)
		select {
		case <-lost[i]:
			require.Fail(b, "a relay lost the table to a waiting one")
		default:
		}
		require.NoError(b, c.Close())
	}
	w.inside(b)
	return w
}

func peersShare(relays ...*client) {
	for _, c := range relays {
		select {
		case <-c.acquire():
			require.Fail(c, "lost at once")
		default:
		}
	}
}

// otherModes are the claim modes that the table is tried with beside this one.
func (b *bed) otherModes() (others []relay.ClaimMode) {
	for _, m := range b.h.Claims {
		if m != b.claim {
			others = append(others, m)
		}
	}
	return others
}

func inMode(name string, mode relay.ClaimMode) func(*relay.StoreOptions) {
	return func(o *relay.StoreOptions) { o.Relay, o.Claim, o.Lanes = name, mode, suiteLanes }
}

func peersModes(b *bed) {
	for _, other := range b.otherModes() {
		holders := []*client{b.open()}
		if b.claim != relay.ClaimSingle {
			holders = append(holders, b.open(second))
		}
		newcomer := b.openLaneless(inMode("newcomer", other))
		peersWait(b, holders, newcomer)
		require.NoError(b, newcomer.Close())
	}
}

// peersQueue: of relays that wait and may not work beside one another one gets in at a time, and none is forgotten.
func peersQueue(b *bed) {
	others := b.otherModes()
	if len(others) < 2 {
		others = []relay.ClaimMode{relay.ClaimSingle, relay.ClaimSingle}
	}
	holder := b.open()
	holder.acquire()
	queue := map[*client]*waiting{}
	for i, mode := range others {
		c := b.openLaneless(inMode(fmt.Sprintf("newcomer-%d", i), mode))
		queue[c] = c.mustWait()
	}
	require.NoError(b, holder.Close())
	for len(queue) > 0 {
		in := b.nextIn(queue)
		delete(queue, in)
		for _, w := range queue {
			w.outside(b)
		}
		require.NoError(b, in.Close())
	}
}

// nextIn waits until one of those that wait has got in.
func (b *bed) nextIn(queue map[*client]*waiting) *client {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		for c, w := range queue {
			select {
			case err := <-w.in:
				require.NoError(b, err)
				return c
			default:
			}
		}
	}
	require.Fail(b, "nobody got the table")
	return nil
}
