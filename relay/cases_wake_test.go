package relay_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestCase_W06: nobody tells the relay of commits. What commits while it is idle arrives within one poll
// interval, and announcements, lost or for nothing, change only how soon.
func TestCase_W06(t *testing.T) {
	virtual(t, 2, func(t *testing.T, r *rig) {
		r.opts.PollInterval = 500 * time.Millisecond
		l := r.run()
		random := rand.New(rand.NewPCG(6, 6))
		for i := range 200 {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second)))) // idle again, anywhere in its sleep
			if i%3 == 0 {
				l.Wake() // for nothing
			}
			id := fmt.Sprintf("k%d-%03d", i%5, i)
			r.commit(id)
			committed := time.Since(r.start)
			time.Sleep(r.opts.PollInterval)
			require.GreaterOrEqual(t, r.at("t", id), committed, "%s has not arrived", id)
		}
		require.Len(t, r.arrived("t"), 200, "each once")
		require.Empty(t, relay.Leftovers(l.Relay))
		r.end(l)
	})
}
