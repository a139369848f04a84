package config

import (
	"maps"
	"slices"

	"github.com/postrider/postrider/relay"
)

// DefaultPreset is the product's own table, as `postrider schema apply` makes it.
const DefaultPreset = "postrider"

// preset is a known table. Columns that installations of it may lack are marked optional ("?").
type preset struct {
	table   string
	columns relay.Columns
	states  relay.States
}

var presets = map[string]preset{
	DefaultPreset: {
		table: "outbox_events",
		columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic", MessageKey: "message_key", Payload: "payload",
			Headers: "headers", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at",
			LastError: "last_error", CreatedAt: "created_at", UpdatedAt: "updated_at", SentAt: "sent_at",
			KafkaTopic: "kafka_topic", KafkaPartition: "kafka_partition", KafkaOffset: "kafka_offset",
		},
		states: relay.States{New: "NEW", Sending: "SENDING", Sent: "SENT", Failed: "FAILED", Dead: "DEAD"},
	},
	"article-postgres": {
		table: "outbox_events",
		columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic?", MessageKey: "message_key?", Payload: "payload",
			Headers: "headers?", Status: "status", RetryCount: "retry_count", NextRetryAt: "next_retry_at",
			LastError: "last_error?", CreatedAt: "created_at?", UpdatedAt: "updated_at?", SentAt: "sent_at?",
			KafkaTopic: "kafka_topic?", KafkaPartition: "kafka_partition?", KafkaOffset: "kafka_offset?",
		},
		states: relay.States{New: "NEW", Sending: "SENDING", Sent: "SENT", Failed: "FAILED", Dead: "DEAD"},
	},
	"article-mysql": {
		table: "outbox_event",
		columns: relay.Columns{
			ID: "id", EventID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id",
			EventType: "event_type", Topic: "topic?", MessageKey: "message_key?", Payload: "payload",
			Headers: "headers?", Status: "status", RetryCount: "retry_count",
			NextRetryAt: "next_retry_at|next_retry_time", LastError: "last_error?",
			CreatedAt: "created_at?", UpdatedAt: "updated_at", SentAt: "sent_at?",
			KafkaTopic: "kafka_topic?", KafkaPartition: "kafka_partition?", KafkaOffset: "kafka_offset?",
		},
		states: relay.States{New: "PENDING", Sending: "PROCESSING", Sent: "SENT", Failed: "PENDING", Dead: "FAILED"},
	},
}

// Presets lists the names that outbox.preset takes.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

func (p preset) apply(o *Outbox) {
	o.Table, o.Columns, o.States = p.table, p.columns, p.states
}
