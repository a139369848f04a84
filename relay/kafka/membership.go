package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// manageHook hears of errors that no callback tells of.
type manageHook struct{ g *Group }

// OnGroupManageError ends Run when the error is one that waiting does not cure.
func (h manageHook) OnGroupManageError(err error) {
	var e *kerr.Error
	if errors.Is(err, kerr.UnreleasedInstanceID) {
		h.g.log.Warn("another member has this relay's group.instance.id: waiting until it stops, or until its session is over", "instance", h.g.lend.cfg.InstanceID)
		return
	}
	if !errors.As(err, &e) || e.Retriable || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) {
		h.g.log.Debug("the group's management starts over", "error", err.Error())
		return
	}
	h.g.fail(h.g.setup(e))
}

func (g *Group) fail(err error) {
	select {
	case g.fatal <- err:
	default:
	}
}

// turn notes the membership under which a callback runs. When the member id is a new one, every lane was
// lost in between, whatever the callback is called: they are returned. g.mu is held.
func (g *Group) turn(c *kgo.Client, moved []int32) (lost []int32) {
	id, gen := c.GroupMetadata()
	if g.id != "" && id != g.id {
		lost = sorted(g.own)
		clear(g.own)
		clear(g.late)
		for lane := range g.have {
			g.have[lane] = time.Now() // they are to be taken over anew
		}
		g.cancelOpening()
	}
	if id != g.id || gen != g.gen {
		g.refused = -1
	}
	// The brokers' protocol moves lanes under one epoch, and epochs without lanes and without a word.
	if gen != g.counted || g.lend.cfg.consumerProtocol && len(moved) > 0 {
		g.counted = gen
		g.o.Hooks.Rebalanced()
	}
	g.client, g.id, g.gen = c, id, gen
	g.notify()
	return lost
}

// membership is what offsets are committed under. With group.protocol: consumer the member's epoch moves without a
// callback, and brokers before 4.3 take the newest only; it never moves past a lane that is being given up, and when
// the member is a new one the lanes are lost before. It is called with g.mu held.
func (g *Group) membership() member {
	if g.lend.cfg.consumerProtocol && g.client != nil && g.id != "" {
		if id, epoch := g.client.GroupMetadata(); id == g.id {
			g.gen = epoch
		}
	}
	return member{group: g.topic, id: g.id, generation: g.gen, instance: g.lend.cfg.InstanceID}
}

// notify is called with g.mu held.
func (g *Group) notify() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// cancelOpening is called with g.mu held.
func (g *Group) cancelOpening() {
	if g.undo != nil {
		g.undo()
	}
}

func (g *Group) assigned(c *kgo.Client, added []int32) {
	g.mu.Lock()
	lost := g.turn(c, added)
	if len(added) > 0 {
		clear(g.fenced) // a run may have been back since
	}
	for _, lane := range added {
		g.have[lane] = time.Now()
	}
	g.mu.Unlock()
	g.lose(lost)
	select {
	case g.work <- struct{}{}:
	default:
	}
}

// revoked gives lanes up. It may take its time: the member goes on telling that it is there.
func (g *Group) revoked(ctx context.Context, c *kgo.Client, lanes []int32) {
	g.mu.Lock()
	lost := g.turn(c, lanes)
	var give []int32
	for _, lane := range lanes {
		delete(g.have, lane)
		if g.own[lane] {
			give = append(give, lane)
		}
	}
	if len(lanes) > 0 {
		g.cancelOpening()
	}
	slices.Sort(give)
	g.mu.Unlock()
	g.lose(lost)
	if len(give) > 0 {
		g.give(ctx, give)
	}
}

func (g *Group) give(ctx context.Context, lanes []int32) {
	g.keepLows(lanes)
	within, cancel := context.WithTimeout(ctx, g.o.GiveTimeout)
	defer cancel()
	g.calls <- struct{}{}
	g.keeper.Give(within, lanes)
	<-g.calls
	g.commitOffsets(within, lanes)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		delete(g.own, lane)
		delete(g.logs, lane)
		delete(g.wrote, lane)
	}
	g.notify()
}

func (g *Group) lost() {
	g.mu.Lock()
	lost := sorted(g.own)
	clear(g.own)
	clear(g.late)
	clear(g.have)
	g.id, g.gen = "", -1
	g.cancelOpening()
	g.notify()
	g.mu.Unlock()
	g.lose(lost)
}

func (g *Group) lose(lanes []int32) {
	if len(lanes) == 0 {
		return
	}
	g.calls <- struct{}{}
	g.keeper.Lose(lanes)
	<-g.calls
}

func sorted(set map[int32]bool) []int32 { return slices.Sorted(maps.Keys(set)) }
