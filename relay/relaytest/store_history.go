package relaytest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

func historyCases() []storeCase {
	return []storeCase{
		{name: "Promise_P1_P2_P3 random writers: nothing lost, no phantom, keys in order", run: historyRandom},
	}
}

// historyRandom lets writers commit and roll back at random while a reader fetches, fails, hands back
// and settles. Each key has one writer, so its events have an order: the number in the event's id.
func historyRandom(b *bed) {
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	writers, each := 4, 60
	if b.h.Traits.OneWriter {
		writers, each = 2, 25
	}
	var (
		wg        sync.WaitGroup
		mu        sync.Mutex
		committed = map[string]bool{}
		writing   = true
	)
	for w := range writers {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for i := range each {
				tx := b.table.Begin(b.T)
				var rows []NewRow
				for j := range 1 + rnd.IntN(3) {
					rows = append(rows, event(fmt.Sprintf("k%d-%04d-%d", w, i, j), fmt.Sprintf("k%d", w)))
				}
				tx.Insert(rows...)
				if rnd.IntN(5) == 0 {
					tx.Rollback()
					continue
				}
				tx.Commit()
				mu.Lock()
				for _, r := range rows {
					committed[r.EventID] = true
				}
				mu.Unlock()
			}
		})
	}
	go func() {
		wg.Wait()
		mu.Lock()
		writing = false
		mu.Unlock()
	}()

	c := b.open()
	first := map[string]string{} // key -> the last event that came for the first time
	seen := map[string]bool{}
	sent := 0
	rnd := rand.New(rand.NewPCG(seed, 99))
	deadline := time.Now().Add(2 * patience)
	for {
		for _, e := range c.fetchOnce(1+rnd.IntN(20), int64(1000+rnd.IntN(5000))).Events {
			if !seen[e.ID] {
				require.Less(b, first[*e.Key], e.ID, "key %s: an event was overtaken", *e.Key)
				first[*e.Key] = e.ID
				seen[e.ID] = true
			}
		}
		sent += c.actAtRandom(rnd)
		mu.Lock()
		done := !writing && sent == len(committed)
		mu.Unlock()
		if done {
			break
		}
		if time.Now().After(deadline) {
			mu.Lock()
			for id := range committed {
				if !seen[id] {
					b.Errorf("event %s was committed and never came", id)
				}
			}
			mu.Unlock()
			require.Fail(b, "not everything came")
		}
	}
	for id := range seen {
		require.True(b, committed[id], "phantom %s", id)
	}
	require.Empty(b, c.fetch())
}

// actAtRandom does with the busy rows what a relay may do: send a prefix of each key, fail its head, or
// hand rows back; a key whose head failed is blocked until the head is sent. It returns how many were
// sent.
func (c *client) actAtRandom(rnd *rand.Rand) (sent int) {
	c.Helper()
	byKey := map[string][]relay.Event{}
	for _, e := range sortedByID(values(c.busy)) {
		byKey[*e.Key] = append(byKey[*e.Key], e)
	}
	for key, evs := range byKey {
		if rnd.IntN(3) == 0 {
			continue // still in flight
		}
		n := rnd.IntN(len(evs) + 1)
		if n == 0 && c.headOf(key) != "" {
			continue // the head is sent or still in flight, never handed back
		}
		for _, e := range evs[:n] {
			c.sent(e.ID)
			sent++
			if c.headOf(key) == e.Row {
				c.reopen(key)
			}
		}
		if n == len(evs) || rnd.IntN(2) == 0 {
			continue
		}
		if c.headOf(key) == "" && rnd.IntN(2) == 0 {
			head := evs[n]
			c.blocked = append(c.blocked, relay.Blocked{Key: key, Head: head.Row})
			c.settle(c.outcome(head.ID, relay.StateFailed, func(o *relay.Outcome) { o.RetryAfter = 0 }))
			n++
		}
		var rest []string
		for _, e := range evs[n:] {
			rest = append(rest, e.ID)
		}
		if c.headOf(key) != "" || rnd.IntN(2) == 0 {
			c.handBack(rest...)
		}
	}
	return sent
}

func (c *client) headOf(key string) relay.RowID {
	for _, b := range c.blocked {
		if b.Key == key {
			return b.Head
		}
	}
	return ""
}

func sortedByID(evs []relay.Event) []relay.Event {
	for i := range evs {
		for j := i; j > 0 && evs[j].ID < evs[j-1].ID; j-- {
			evs[j], evs[j-1] = evs[j-1], evs[j]
		}
	}
	return evs
}
