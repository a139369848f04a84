//go:build unix

package crashtest

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

var timesSection = section{
	title: "Times",
	about: "Two relays share the lanes, and one of them goes: what is written to 24 keys at that moment is sent by the other.\n" +
		"A clean stop costs no session.",
	columns: []string{"delivery", "what"},
	took:    "all sent after",
}

// TestTakeOver_Times: the lanes of a relay that is killed, or frozen, are another's within the session timeout and a
// moment, those of one that stops in order at once. What a quiet machine takes is in the account; here are bounds for
// a busy one.
func TestTakeOver_Times(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 24 {
		many = append(many, fmt.Sprint("key-", i))
	}
	number := 0
	for _, delivery := range []string{exactlyOnce, atLeastOnce} {
		for _, c := range []struct {
			what   string
			strike func(*process)
			most   time.Duration
		}{
			{"killed", (*process).kill, 2 * sessionTimeout},
			{"frozen", func(p *process) { p.signal(syscall.SIGSTOP) }, 2 * sessionTimeout},
			{"stopped", func(p *process) { p.signal(syscall.SIGTERM) }, sessionTimeout - time.Second},
		} {
			if !long() && delivery != exactlyOnce {
				continue
			}
			number++
			t.Run(delivery+"/"+c.what, func(t *testing.T) {
				t.Parallel()
				w := sharedWorld(t, postgres, settings{claim: relay.ClaimLanes, relays: 2, delivery: delivery})
				w.start(t)
				w.divided(t, laneCount/2, laneCount/2)
				w.commit(t, len(many), many...)
				w.drained(t, 60*time.Second)
				began := time.Now()
				c.strike(w.relays[0])
				w.commit(t, len(many), many...)
				w.drained(t, 60*time.Second)
				took := time.Since(began)
				if c.what == "stopped" { // a second signal would cut it
					code, _ := w.relays[0].ended(t, 20*time.Second)
					require.Equal(t, 0, code, w.relays[0].tail(5))
				}
				w.relays[0].signal(syscall.SIGCONT)
				w.terminated(t)
				doubles := 0
				if delivery == atLeastOnce {
					doubles = len(many)
				}
				r := w.good(t, Rules{Ordered: true, MaxDoubles: doubles})
				account.add(line{timesSection, number, []string{delivery, c.what}, r, w.uncommitted(t), took})
				t.Logf("all sent %s after one of two relays was %s", took.Round(time.Millisecond), c.what)
				require.Less(t, took, c.most)
			})
		}
	}
}
