package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

func runCommand(c *cli) *cobra.Command {
	var untilDrained bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay events from the outbox table to Kafka",
		Long: "run reads committed events, writes them to Kafka and marks them, until it is told to stop.\n\n" +
			"It waits for a database or a Kafka that does not answer yet. SIGTERM drains: what is in flight is\n" +
			"awaited for relay.shutdown_timeout and marked, the rest is released; a second signal cuts.\n" +
			"Health is at /livez and /readyz, metrics are at /metrics of http.listen.",
		Example: "  postrider run -c postrider.yaml\n" +
			"  postrider run --database-url postgres://app@localhost/shop --bootstrap-servers localhost:9092\n" +
			"  postrider run -c postrider.yaml --until-drained --timeout 5m",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.loadConfig(needKafka)
			if err != nil {
				return err
			}
			b := buildInfo()
			err = app.Run(cmd.Context(), app.Options{
				Config: cfg, Logger: c.logger(cfg), Version: b.Version, Revision: b.Revision,
				UntilDrained: untilDrained, Notify: notifySystemd,
			})
			return because(cmd.Context(), err)
		},
	}
	cmd.Flags().BoolVar(&untilDrained, "until-drained", false, "end with 0 once nothing is due and nothing is in flight")
	return cmd
}

// logger writes to stderr in the configured form.
func (c *cli) logger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // the configuration was checked
	o := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "text" || cfg.Log.Format == "auto" && isTerminal(c.errOut) {
		return slog.New(slog.NewTextHandler(c.errOut, o))
	}
	return slog.New(slog.NewJSONHandler(c.errOut, o))
}

// withStore runs f on the configured table, for verbs that repair it; lookStore for those that look at it.
func (c *cli) withStore(ctx context.Context, f func(*config.Config, app.Store) error) error {
	return c.onStore(ctx, app.OpenStore, f)
}

func (c *cli) lookStore(ctx context.Context, f func(*config.Config, app.Store) error) error {
	return c.onStore(ctx, app.LookStore, f)
}

func (c *cli) onStore(ctx context.Context, open func(context.Context, *config.Config) (app.Store, error), f func(*config.Config, app.Store) error) error {
	cfg, err := c.loadConfig()
	if err != nil {
		return err
	}
	store, err := open(ctx, cfg)
	if err != nil {
		return because(ctx, err)
	}
	defer func() { _ = store.Close() }()
	return because(ctx, f(cfg, store))
}
