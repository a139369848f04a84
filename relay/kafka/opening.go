package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// openAll opens lanes as they are assigned, and notes offsets now and then, until ctx ends.
func (g *Group) openAll(ctx context.Context) {
	const every = 5 * time.Second
	tick := time.NewTicker(every)
	defer tick.Stop()
	pause := firstPause
	for ctx.Err() == nil {
		again := false
		attempt, lanes, m := g.nextOpening(ctx)
		if len(lanes) > 0 {
			if err := g.open(attempt, lanes, m); err != nil && attempt.Err() == nil {
				g.log.Warn("lanes could not be taken over, trying again", "lanes", lanes, "error", err.Error())
				g.doubt(err)
				again = true
			}
			again = again || attempt.Err() != nil
		}
		g.endOpening()
		if !again {
			pause = firstPause
			select {
			case <-ctx.Done():
			case <-g.work:
			case <-tick.C:
				g.mu.Lock()
				own := sorted(g.own)
				g.mu.Unlock()
				g.keepLows(own)
				g.commitOffsets(ctx, own)
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-g.work:
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// Pauses between attempts to take lanes over.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 3 * time.Second
)

// nextOpening says which lanes are assigned and not open, under which membership.
func (g *Group) nextOpening(ctx context.Context) (attempt context.Context, lanes []int32, m member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane := range g.have {
		if !g.own[lane] {
			lanes = append(lanes, lane)
		}
	}
	slices.Sort(lanes)
	attempt, g.undo = context.WithCancel(ctx)
	return attempt, lanes, g.membership()
}

func (g *Group) endOpening() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undo()
	g.undo = nil
}

// open takes lanes over: what earlier owners had open is ended, what they had sent is marked, the lanes are
// read, and this relay is noted as their owner.
func (g *Group) open(ctx context.Context, lanes []int32, m member) error {
	taken, ends, err := g.barrier(ctx, lanes)
	if err != nil {
		g.startOver(ctx, err)
		return err
	}
	g.calls <- struct{}{}
	err = g.keeper.Take(ctx, taken)
	<-g.calls
	if err != nil {
		return err
	}
	g.mu.Lock()
	for i, lane := range lanes {
		g.logs[lane] = &laneLog{next: ends[i], plain: true} // until the owner is noted
		g.lows[lane] = taken[i].Low
		g.late[lane] = true
	}
	g.mu.Unlock()
	g.keepLows(lanes)
	err = g.noteOwner(ctx, lanes, m)
	g.mu.Lock()
	var gone, back []int32
	since := time.Now()
	for _, lane := range lanes {
		delete(g.late, lane)
		at, have := g.have[lane]
		switch {
		case !have || g.id != m.id:
			gone = append(gone, lane)
		case err != nil:
			back = append(back, lane)
		default:
			g.own[lane] = true
			if at.Before(since) {
				since = at
			}
		}
	}
	if open := len(lanes) - len(gone) - len(back); open > 0 {
		g.o.Hooks.TookOver(open, time.Since(since))
	}
	g.notify()
	g.mu.Unlock()
	g.lose(gone)
	g.giveBack(ctx, back)
	return err
}

// giveBack gives up lanes that are this relay's and were not noted as such, most often because it stops.
func (g *Group) giveBack(ctx context.Context, lanes []int32) {
	if len(lanes) == 0 {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.o.GiveTimeout)
	defer cancel()
	g.calls <- struct{}{}
	g.keeper.Give(within, lanes)
	<-g.calls
}

// startOver gives up the client for single requests after an error that is no broker's answer. It remembers which broker
// is the group's coordinator until one says otherwise, and a broker that is gone says nothing.
func (g *Group) startOver(ctx context.Context, err error) {
	var answer *kerr.Error
	if ctx.Err() == nil && !errors.As(err, &answer) {
		g.lend.renew(g.lend.current(), err.Error())
	}
}
