package app

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// flow is a way to Kafka.
type flow interface {
	relay.Sink
	Ping(ctx context.Context) error
	CheckTopics(ctx context.Context, names []string) []kafka.Finding
	Health() kafka.Health
}

// openFlows gives the relay its ways to Kafka, and its part in the group of lanes if it shares them. It waits for
// a cluster that does not answer.
func (a *app) openFlows(ctx context.Context, store Store, o *relay.Options) (flows []flow, err error) {
	var group *kafka.Group
	n := a.cfg.Relay.Flows
	if o.Claim == relay.ClaimLanes {
		if group, err = a.newGroup(ctx, store); err != nil {
			return nil, err
		}
		n = min(n, a.cfg.Relay.Lanes)
		o.Lanes, o.LaneCount = group, int32(a.cfg.Relay.Lanes)
	}
	defer func() {
		if err == nil {
			return
		}
		for _, f := range flows {
			_ = f.Close(ctx)
		}
		if group != nil {
			_ = group.Close(ctx)
		}
	}()
	for i := range n {
		f, err := a.newFlow(group, i)
		if err != nil {
			return flows, fmt.Errorf("set up the Kafka client: %w", err)
		}
		flows, o.Flows = append(flows, f), append(o.Flows, f)
	}
	_, err = await(ctx, a, theKafka, func() (struct{}, error) { return struct{}{}, flows[0].Ping(ctx) })
	if err != nil {
		return flows, err
	}
	for _, f := range flows[0].CheckTopics(ctx, a.knownTopics()) {
		if f.Minor {
			a.log.Info("about the topics", "topic", f.Topic, "notice", f.Problem)
			continue
		}
		a.log.Warn("about a topic", "topic", f.Topic, "problem", f.Problem, "advice", f.Advice)
	}
	return flows, nil
}

func (a *app) newFlow(group *kafka.Group, number int) (flow, error) {
	if a.cfg.Relay.Delivery == config.ExactlyOnce {
		return kafka.NewTransactions(a.kafka, a.sinkOptions(), group, number)
	}
	return kafka.NewSink(a.kafka, a.sinkOptions())
}

func (a *app) newGroup(ctx context.Context, store Store) (*kafka.Group, error) {
	table, err := store.Identity(ctx)
	if err != nil {
		return nil, err
	}
	c := a.cfg.Relay
	o := kafka.GroupOptions{
		Name: a.cfg.Outbox.Name, Relay: c.Name, Table: table, Lanes: int32(c.Lanes), SessionTimeout: c.SessionTimeout,
		GiveTimeout: c.ShutdownTimeout, Replication: int16(max(c.CreateTopics.ReplicationFactor, 0)), Hooks: a.metrics,
	}
	if c.Delivery == config.ExactlyOnce {
		o.Flows = min(c.Flows, c.Lanes)
	}
	group, err := kafka.NewGroup(a.kafka, kafka.Options{Logger: a.log}, o)
	if err != nil {
		return nil, fmt.Errorf("set up the group of lanes: %w", err)
	}
	return group, nil
}
