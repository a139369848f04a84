//go:build synctests

package sim

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/sqlite"
)

// recovery is how long after the last fault everything that is free must be sent.
func (w *world) recovery() time.Duration {
	d := w.session + 2*time.Second + 5*time.Second
	if slices.Contains(w.tolls, silent) || slices.ContainsFunc(w.holes, func(h hole) bool { return h.toll == silent }) {
		d += 2 * (w.drain + 15*time.Second) // the library waits for the answer to a JoinGroup as long as a rebalance may take
	}
	if w.bad > 0 || len(w.refusals) > 0 { // attempts, and pauses between them
		d += 30 * time.Second
	}
	for _, j := range w.jumps { // times of attempts were noted by the clock of before
		d += max(0, -j.by)
	}
	return d
}

// settleDown waits until all is sent that is not held by a dead event, gives those up, and waits for the rest.
func (w *world) settleDown() {
	people := w.people1()
	defer people.Close()
	began := time.Now()
	limit := w.recovery()
	for free := true; ; {
		n := w.pending(free)
		w.mu.Lock()
		if w.nursed.After(began) {
			began, limit = w.nursed, w.recovery()+2*(w.drain+15*time.Second)
		}
		w.mu.Unlock()
		switch {
		case n == 0 && !free:
			w.log.add("world", "drained")
			time.Sleep(w.recovery() / 2) // until each relay knows what is not its own any more
			return
		case n == 0:
			free, began, limit = false, time.Now(), 5*time.Minute
			continue
		case time.Since(began) > limit && free:
			w.fail("P1, P6, P7: %d events that nothing holds are left %s after the last fault", n, limit)
			return
		case time.Since(began) > limit:
			w.fail("P1: %d events are left %s after the last fault", n, limit)
			return
		case !free:
			_, _, err := people.Discard(context.Background(), relay.Filter{States: []relay.State{relay.StateDead}, Limit: 1000}, "given up", false)
			require.NoError(w.t, err)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// pending counts what still has a way to go; with free, only what is not behind a dead event of its key.
func (w *world) pending(free bool) (n int) {
	query := "SELECT count(*) FROM outbox_events e WHERE status NOT IN ('SENT', 'DEAD')"
	if free {
		query += ` AND NOT EXISTS (SELECT 1 FROM outbox_events d WHERE d.status = 'DEAD' AND d.last_error NOT LIKE 'discarded:%' AND d.aggregate_id = e.aggregate_id AND d.id < e.id)`
	} else {
		query = "SELECT count(*) FROM outbox_events WHERE status NOT IN ('SENT', 'DEAD') OR status = 'DEAD' AND last_error NOT LIKE 'discarded:%'"
	}
	require.NoError(w.t, w.db.QueryRow(query).Scan(&n))
	return n
}

// people1 is the way to the table of those who operate it.
func (w *world) people1() *sqlite.Store {
	defaults := config.Default()
	s, err := sqlite.Open(context.Background(), relay.StoreOptions{URL: "sqlite:" + w.path, Name: outboxName, Relay: "people", Table: defaults.Table(),
		Claim: relay.ClaimLanes, Lanes: w.lanes, OnDead: w.onDead})
	require.NoError(w.t, err)
	return s
}

// act is a person who looks at dead events now and then.
func (w *world) act() {
	if !w.people {
		return
	}
	people := w.people1()
	defer people.Close()
	for i := 0; ; i++ {
		d := w.draw("person", i)
		wait := d.upTo(6 * time.Second)
		if w.now()+wait > w.span {
			return
		}
		time.Sleep(wait)
		dead, err := people.List(context.Background(), relay.Filter{States: []relay.State{relay.StateDead}, Limit: 100})
		require.NoError(w.t, err)
		for _, row := range dead {
			one := relay.Filter{EventIDs: []string{row.ID}, States: []relay.State{relay.StateDead}}
			switch d.IntN(4) {
			case 0:
				w.mu.Lock()
				w.revived[row.ID] = true
				w.mu.Unlock()
				w.log.add("people", "retry", row.ID)
				_, _, err = people.Retry(context.Background(), one, false)
			case 1:
				w.log.add("people", "discard", row.ID)
				_, _, err = people.Discard(context.Background(), one, "not needed", false)
			}
			require.NoError(w.t, err)
		}
	}
}
