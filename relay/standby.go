package relay

import (
	"context"
	"strings"
	"time"
)

// standbyAgain is how long a relay that waits for relays of another kind keeps still about it.
const standbyAgain = time.Minute

// tellStandby says that another relay owns the table. To wait for one of the same kind is what a standby is for. Behind
// relays of another kind it lasts for ever, unless a deploy ends them, so that is said again until ctx ends.
func (r *Relay) tellStandby(ctx context.Context, holder string) {
	if r.o.Claim == ClaimSingle && strings.Contains(holder, "claim: "+string(ClaimSingle)) {
		r.o.Logger.Info("another relay owns the table, waiting as standby", "holder", holder)
		return
	}
	warn := func() {
		r.o.Logger.Warn("another relay owns the table, and this one may not work beside it: it sends nothing until that one stops", "holder", holder,
			"own_claim", string(r.o.Claim), "next", "stop those relays, or give this one the same relay.claim, outbox.name and relay.lanes")
	}
	warn()
	go func() {
		tick := time.NewTicker(standbyAgain)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				warn()
			}
		}
	}()
}
