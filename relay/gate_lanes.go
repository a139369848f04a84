package relay

import (
	"context"
	"slices"
)

// down counts a row of a lane that is not busy any more. It must be called with the lock held, as forgetAll.
func (g *gate) down(lane int32) {
	if g.lanes == 0 {
		return
	}
	if g.flying[lane]--; g.flying[lane] > 0 {
		return
	}
	delete(g.flying, lane)
	if g.leaving[lane] {
		delete(g.leaving, lane)
		g.forgetAll([]int32{lane})
	}
	close(g.landed)
	g.landed = make(chan struct{})
}

// lanesIdle waits until nothing of the lanes is read and not settled, or until ctx ends.
func (g *gate) lanesIdle(ctx context.Context, lanes []int32) error {
	for {
		g.mu.Lock()
		busy := slices.ContainsFunc(lanes, func(l int32) bool { return g.flying[l] > 0 })
		landed := g.landed
		g.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave forgets the keys of lanes that are not this relay's any more, at once or when the last of their rows
// has come down.
func (g *gate) leave(lanes []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var idle []int32
	for _, lane := range lanes {
		if g.flying[lane] > 0 {
			g.leaving[lane] = true
		} else {
			idle = append(idle, lane)
		}
	}
	g.forgetAll(idle)
}

// forgetLanes forgets the keys of lanes of which nothing is busy.
func (g *gate) forgetLanes(lanes []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		delete(g.leaving, lane)
	}
	g.forgetAll(lanes)
}

func (g *gate) forgetAll(lanes []int32) {
	if len(lanes) == 0 {
		return
	}
	gone := func(key string) bool { return slices.Contains(lanes, LaneOf(key, g.lanes)) }
	for key, k := range g.keys {
		if !gone(key) {
			continue
		}
		for i := range k.doubts {
			delete(g.unsure, k.doubts[i].row)
		}
		if k.shut {
			g.shut--
		}
		delete(g.keys, key)
	}
	g.blocked = nil
	g.reopened = slices.DeleteFunc(g.reopened, gone)
	g.waits = slices.DeleteFunc(g.waits, func(w wait) bool { return gone(w.key) })
}
