package demo

import (
	"fmt"
	"log/slog"

	"github.com/postrider/postrider/relay/kafka"
)

// openSink is the sink of `postrider run` with nothing but an address.
func openSink(addr string, log *slog.Logger) (*kafka.Sink, error) {
	cfg, problems, _ := kafka.Parse(map[string]string{"bootstrap.servers": addr, "client.id": "demo-relay"})
	for _, p := range problems {
		return nil, fmt.Errorf("set up the sink: %s: %s", p.Property, p.Reason)
	}
	sink, err := kafka.NewSink(cfg, kafka.Options{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("set up the sink: %w", err)
	}
	return sink, nil
}
