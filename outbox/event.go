package outbox

// Event is what a service writes beside its business data: one fact, addressed to Kafka.
// The zero value is not valid: AggregateType, AggregateID and Type are required wherever the table
// has a column for them.
type Event struct {
	// ID names the event for good: the relay sends it as the header event_id and every inbox
	// recognises a repetition by it. Empty: Write draws a UUIDv7. A caller that may repeat its
	// transaction after a COMMIT whose outcome it did not learn must choose the id itself, once
	// (see NewID), because a drawn id differs at each attempt.
	ID string

	// AggregateType is the kind of thing the event is about, such as "Order". The relay's default
	// topic is made from it.
	AggregateType string

	// AggregateID names the thing, such as an order number. It is the record's key unless Key is set.
	AggregateID string

	// Type says what happened, such as "OrderCreated".
	Type string

	// Topic is the Kafka topic. Empty: the column stays NULL and the relay routes the event.
	Topic string

	// Key is the record's key, which decides the partition and with it the order. Nil: the column
	// stays NULL and AggregateID is the key. An empty slice that is not nil is an empty key, which
	// is not the same as no key.
	Key []byte

	// Payload becomes the record's value, byte for byte. Nil: NULL, a tombstone on a compacted
	// topic. An empty slice that is not nil is an empty value.
	Payload []byte

	// Headers become record headers beside the relay's own. The names event_id, event_type,
	// aggregate_type and aggregate_id are the relay's; "content-type" overrides the relay's default.
	// Names and values are UTF-8 text. Empty: the column stays NULL.
	Headers map[string]string
}
