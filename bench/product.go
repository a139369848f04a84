package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

// productConfig is the product as it comes, with nothing tuned.
func productConfig(b *bed, s settings) *config.Config {
	c := config.Default()
	c.Database.URL = config.NewSecret(b.url)
	c.Kafka = config.Properties{"bootstrap.servers": config.NewSecret(s.kafka)}
	c.HTTP.Listen = "127.0.0.1:0"
	c.Relay.Name = "bench"
	if s.delivery != "" {
		// A group of its own: lanes belong to one table.
		c.Outbox.Name = fmt.Sprintf("bench-%d", time.Now().UnixNano())
		c.Relay.Claim, c.Relay.Delivery = relay.ClaimLanes, s.delivery
	}
	return &c
}

// shared is the product with lanes, sending once or at least once.
func shared(delivery string) func(context.Context, *bed, settings, string, int) error {
	return func(ctx context.Context, b *bed, s settings, topic string, n int) error {
		s.delivery = delivery
		return product(ctx, b, s, topic, n)
	}
}

// product runs the whole relay until nothing is due: start, checks and stop are in the time. With lanes the
// control topic that it made is removed.
func product(ctx context.Context, b *bed, s settings, _ string, _ int) error {
	c := productConfig(b, s)
	err := app.Run(ctx, app.Options{Config: c, Logger: warnings(), UntilDrained: true})
	if s.delivery != "" {
		removeTopic(ctx, s.kafka, c.Outbox.Name+".postrider")
	}
	return err
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
