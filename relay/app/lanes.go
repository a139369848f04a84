package app

import (
	"fmt"
	"net/url"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/kafka"
)

// shareLanes lets the relay take part in the group of its outbox's name, with one sink a flow.
func (a *app) shareLanes(o *relay.Options, first *kafka.Sink) error {
	if o.Claim != relay.ClaimLanes {
		return nil
	}
	c := a.cfg.Relay
	group, err := kafka.NewGroup(a.kafka, kafka.Options{Logger: a.log}, kafka.GroupOptions{
		Name: a.cfg.Outbox.Name, Relay: c.Name, Table: a.identity(), Lanes: int32(c.Lanes), SessionTimeout: c.SessionTimeout,
		GiveTimeout: c.ShutdownTimeout,
	})
	if err != nil {
		return fmt.Errorf("set up the group of lanes: %w", err)
	}
	o.Lanes, o.LaneCount, o.Flows = group, int32(c.Lanes), []relay.Sink{first}
	for len(o.Flows) < min(c.Flows, c.Lanes) {
		next, err := kafka.NewSink(a.kafka, a.sinkOptions())
		if err != nil {
			return fmt.Errorf("set up the Kafka client: %w", err)
		}
		o.Flows = append(o.Flows, next)
	}
	return nil
}

// identity names database and table for people and for comparison: lanes belong to one table.
func (a *app) identity() string {
	u, err := url.Parse(a.cfg.DatabaseURL())
	if err != nil {
		return a.cfg.Outbox.Table
	}
	if u.Opaque != "" {
		return u.Scheme + ":" + u.Opaque + " " + a.cfg.Outbox.Table
	}
	return u.Scheme + "://" + u.Host + u.Path + " " + a.cfg.Outbox.Table
}
