package demo

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/kafka"
)

// What `postrider run` comes with.
const (
	lanes = 16
	flows = 2
)

// controlTopic is where the relay notes its progress.
const controlTopic = outboxName + ".postrider"

// openFlows gives the relay its lanes, and its ways to Kafka in transactions, as `postrider run` does with nothing
// but an address.
func openFlows(ctx context.Context, addr, table string, log *slog.Logger, o *relay.Options) (err error) {
	cfg, problems, _ := kafka.Parse(map[string]string{"bootstrap.servers": addr, "client.id": "demo-relay"})
	for _, p := range problems {
		return fmt.Errorf("set up Kafka: %s: %s", p.Property, p.Reason)
	}
	opts := kafka.Options{Logger: log}
	group, err := kafka.NewGroup(cfg, opts, kafka.GroupOptions{Name: o.Name, Relay: o.Name, Table: table, Lanes: lanes, Flows: flows})
	if err != nil {
		return fmt.Errorf("set up the lanes: %w", err)
	}
	o.Lanes, o.LaneCount = group, lanes
	for n := range flows {
		flow, err := kafka.NewTransactions(cfg, opts, group, n)
		if err != nil {
			closeFlows(ctx, o)
			_ = group.Close(ctx)
			return fmt.Errorf("set up Kafka: %w", err)
		}
		o.Flows = append(o.Flows, flow)
	}
	return nil
}

func closeFlows(ctx context.Context, o *relay.Options) {
	for _, f := range o.Flows {
		_ = f.Close(ctx)
	}
}
