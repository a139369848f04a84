package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/relay"
)

// prepare sees to the control topic and that it is this table's. It waits for a cluster that does not answer.
func (g *Group) prepare(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		within, cancel := context.WithTimeout(ctx, g.lend.cfg.requestTimeout)
		err := g.checkControl(within)
		cancel()
		if forbidden(err) && relay.AsSetup(err) == nil {
			err = g.setup(err)
		}
		if err == nil || relay.AsSetup(err) != nil {
			return err
		}
		g.log.Warn("the control topic cannot be looked at yet", "topic", g.topic, "error", err.Error())
		if rest(ctx, pause) != nil {
			return nil
		}
	}
}

func (g *Group) checkControl(ctx context.Context) error {
	if err := g.checkTransactions(ctx); err != nil {
		return err
	}
	if err := g.checkProtocol(ctx); err != nil {
		return err
	}
	t, err := g.controlTopic(ctx)
	if err != nil {
		return err
	}
	if err := g.checkRights(t); err != nil {
		return err
	}
	if err := g.checkTopic(ctx, t); err != nil {
		return err
	}
	g.mu.Lock()
	g.topicID = t.ID
	g.mu.Unlock()
	left, err := g.offsetFetch(ctx, allLanes(g.o.Lanes), false)
	if err != nil {
		return err
	}
	for _, l := range left {
		if err := g.readable(l); err != nil {
			return err
		}
	}
	return nil
}

func allLanes(n int32) []int32 {
	lanes := make([]int32, n)
	for i := range lanes {
		lanes[i] = int32(i)
	}
	return lanes
}

// readable refuses lanes that belong to another outbox, or were last worked on by a relay that this one is too old for.
func (g *Group) readable(l left) error {
	n := l.note
	switch {
	case n.Format > noteFormat:
		return unreadable(l.lane, "", fmt.Errorf("%w: format %d, and this one reads %d", errNewer, n.Format, noteFormat))
	case n.Table == "" || n.Table == g.o.Table:
		return nil
	}
	return &relay.SetupError{Kind: relay.SetupConflict, Thing: "outbox.name " + g.o.Name,
		Reason: fmt.Sprintf("belongs to %s (relay %s); this relay is on %s", n.Table, n.Relay, g.o.Table),
		Fix:    "give this outbox a name of its own (outbox.name)"}
}

// unreadable is the account of what was left of a lane and must not be guessed at.
func unreadable(lane int32, where string, err error) error {
	if !errors.Is(err, errNewer) {
		return fmt.Errorf("lane %d, %s: %w", lane, where, err)
	}
	return &relay.SetupError{Kind: relay.SetupConflict, Thing: fmt.Sprintf("progress of lane %d", lane), Reason: err.Error(), Err: err,
		Fix: "run that version until all it sent is marked, or use it here"}
}

// controlTopic looks the topic up and makes it when it is missing.
func (g *Group) controlTopic(ctx context.Context) (kadm.TopicDetail, error) {
	adm := kadm.NewClient(g.lend.current().Client)
	ctx = kadm.WithAuthorizedOps(ctx)
	for {
		ts, err := adm.ListTopics(ctx, g.topic)
		if err != nil {
			return kadm.TopicDetail{}, fmt.Errorf("look the control topic up: %w", err)
		}
		t := ts[g.topic]
		switch {
		case t.Err == nil && len(t.Partitions) > 0:
			return t, nil
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			if err := g.createControl(ctx, adm); err != nil {
				return kadm.TopicDetail{}, err
			}
		case t.Err != nil && !kerr.IsRetriable(t.Err):
			return kadm.TopicDetail{}, g.setup(t.Err)
		}
		if err := rest(ctx, firstPause); err != nil {
			return kadm.TopicDetail{}, fmt.Errorf("look the control topic up: %w", err)
		}
	}
}

// createControl makes the topic: compacted, since only the newest records count, in segments small enough to be
// compacted soon.
func (g *Group) createControl(ctx context.Context, adm *kadm.Client) error {
	replication := g.o.Replication
	if replication == 0 {
		replication = -1
	}
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"),
		"segment.bytes":  kadm.StringPtr("16777216"),
		"segment.ms":     kadm.StringPtr("3600000"),
	}
	answers, err := adm.CreateTopics(ctx, g.o.Lanes, replication, settings, g.topic)
	if err != nil {
		return fmt.Errorf("create the control topic: %w", err)
	}
	switch err := answers[g.topic].Err; {
	case err == nil:
		g.log.Info("control topic created", "topic", g.topic, "lanes", g.o.Lanes)
	case errors.Is(err, kerr.TopicAlreadyExists), kerr.IsRetriable(err):
	default:
		return g.setup(err)
	}
	return nil
}
