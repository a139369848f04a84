package app

import (
	"context"
	"net/url"
	"time"

	"github.com/postrider/postrider/relay"
)

// Waits for servers double from firstWait to longestWait: short enough that the relay is at work
// within 5 s of their return (P7).
const (
	firstWait   = 250 * time.Millisecond
	longestWait = 4 * time.Second
)

// slowAnswer is how long a server may be silent before that is worth a line: ports that take a
// connection and say nothing are noticed only when the attempt has timed out.
const slowAnswer = 3 * time.Second

// What is waited for, as the log names it.
const (
	theDatabase = "the database"
	theKafka    = "Kafka"
)

// await calls open until it succeeds, as long as it fails for a server that does not answer. Each
// new reason is one line, and so is a first attempt that takes long.
func await[T any](ctx context.Context, a *app, what string, open func() (T, error)) (T, error) {
	var none T
	wait, said := firstWait, ""
	silent := a.address(what) + " has not answered yet; check that host and port are those of " + what
	a.server.Follow(nil, "waiting for "+what+": "+silent)
	slow := time.AfterFunc(slowAnswer, func() { a.log.Warn("waiting for "+what, "error", silent) })
	defer slow.Stop()
	for {
		got, err := open()
		slow.Stop()
		if err == nil {
			if said != "" {
				a.log.Info(what + " answers")
			}
			return got, nil
		}
		setup := relay.AsSetup(err)
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		if setup == nil || setup.Kind != relay.SetupUnreachable {
			return none, err
		}
		if line := setup.Error(); line != said {
			said = line
			a.waits(what, line)
		}
		if !sleep(ctx, wait) {
			return none, ctx.Err()
		}
		wait = min(wait*2, longestWait)
	}
}

// address is where what is waited for should be, without user and password.
func (a *app) address(what string) string {
	if what == theKafka {
		return a.cfg.Kafka.Reveal()["bootstrap.servers"]
	}
	u, err := url.Parse(a.cfg.DatabaseURL())
	if err != nil || u.Host == "" {
		return "it"
	}
	return u.Host
}

// waits tells the log, health and the service manager what the start waits for, and why.
func (a *app) waits(what, why string) {
	a.log.Warn("waiting for "+what, "error", why)
	state := "waiting for " + what + ": " + why
	if what == theKafka {
		a.server.WaitForKafka(state)
	} else {
		a.server.Follow(nil, state)
	}
	a.o.Notify("STATUS=waiting for " + what)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
