package main

import (
	"context"
	"log/slog"
	"os"

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
	return &c
}

// product runs the whole relay until nothing is due: start, checks and stop are in the time.
func product(ctx context.Context, b *bed, s settings, _ string, _ int) error {
	return app.Run(ctx, app.Options{Config: productConfig(b, s), Logger: warnings(), UntilDrained: true})
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
