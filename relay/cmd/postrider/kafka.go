package main

import (
	"errors"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// checkKafka lets the Kafka client judge the properties of the kafka section.
func checkKafka(properties map[string]string) error {
	_, problems, _ := kafka.Parse(properties)
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = &relay.SetupError{Kind: relay.SetupUsage, Thing: "kafka." + p.Property, Reason: p.Reason, Fix: p.Fix}
	}
	return errors.Join(errs...)
}

// kafkaNotices are lines about properties that were accepted and change nothing.
func kafkaNotices(cfg *config.Loaded) []string {
	if len(cfg.Kafka) == 0 {
		return nil
	}
	_, _, notices := kafka.Parse(cfg.Kafka.Reveal())
	lines := make([]string, len(notices))
	for i, n := range notices {
		lines[i] = "kafka." + n.String()
	}
	return lines
}
