package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

// single is a delivery of -delivery beside those of the configuration: claim: single, at least once.
const single = "single"

// productConfig is the product as it comes, with nothing tuned but what -delivery asks for.
func productConfig(b *bed, s settings) *config.Config {
	c := config.Default()
	c.Database.URL = config.NewSecret(b.url)
	c.Kafka = config.Properties{"bootstrap.servers": config.NewSecret(s.kafka)}
	c.HTTP.Listen = "127.0.0.1:0"
	c.Relay.Name = "bench"
	c.Outbox.Name = b.name
	switch s.delivery {
	case "":
	case single:
		c.Relay.Claim, c.Relay.Delivery = relay.ClaimSingle, config.AtLeastOnce
	default:
		c.Relay.Claim, c.Relay.Delivery = relay.ClaimLanes, s.delivery
	}
	return &c
}

// product runs the whole relay until nothing is due: start, checks and stop are in the time.
func product(delivery string) func(context.Context, *bed, settings, string, int) error {
	return func(ctx context.Context, b *bed, s settings, _ string, _ int) error {
		s.delivery = delivery
		return app.Run(ctx, app.Options{Config: productConfig(b, s), Logger: warnings(), UntilDrained: true})
	}
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
