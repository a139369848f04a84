package relay

import (
	"time"
)

// RowID names one row of the outbox in the form its Store gave it (decimal digits, uuid text, …).
// It is opaque to the relay: compared for equality, handed back, never parsed.
type RowID string

// State is what a row's status column says, in the relay's own words. Other vocabularies are
// mapped onto these by Table.States.
type State string

// The states of an event's row.
const (
	StateNew     State = "NEW"     // committed, never attempted (or released unsent)
	StateSending State = "SENDING" // claimed by a relay (claim: rows only)
	StateSent    State = "SENT"    // acknowledged by all in-sync replicas
	StateFailed  State = "FAILED"  // attempted, will be attempted again at next_retry_at
	StateDead    State = "DEAD"    // given up or refused for good; waits for a person
)

// StateDiscarded selects, in a Filter, the DEAD events that a person has given up. No event is read or
// marked with it: its state is StateDead.
const StateDiscarded State = "DISCARDED"

// Header is one record header. Order is kept, names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Event is one row of the outbox as a Source read it.
type Event struct {
	Row   RowID
	State State  // what the row said when it was read: StateNew, StateFailed or StateSending (claimed)
	Claim string // the claim's token (claim: rows); every mark is conditional on it. Empty without claims.

	ID            string
	AggregateType string
	AggregateID   string
	Type          string
	Topic         string  // empty: chosen by the Router
	Key           *string // message_key, else aggregate_id; nil only when the row has neither
	Payload       []byte  // nil: NULL in the row, a tombstone
	Headers       []Header

	RetryCount int           // attempts that ended in a verdict of the broker on this event
	CreatedAt  time.Time     // commit-side time from the database, in UTC; zero when the table has none
	Age        time.Duration // database clock at the read minus CreatedAt; 0 when unknown

	// Malformed is set when the row's own columns cannot be turned into a record (headers that are not
	// a JSON object, for example). Such an event is never sent: it becomes DEAD with this reason.
	Malformed error

	read   uint64    // position in the order of reading
	readAt time.Time // when it was read, by the relay's clock: for latencies only
	given  bool      // its share of the budget was given back
	lane   int32     // claim: lanes; else the flow
}

// Size is what the event counts against byte limits: its variable parts plus a fixed overhead a row.
func (e *Event) Size() int64 {
	const overhead = 256
	n := int64(overhead + len(e.Payload) + len(e.ID) + len(e.AggregateType) + len(e.AggregateID) + len(e.Type) + len(e.Topic))
	if e.Key != nil {
		n += int64(len(*e.Key))
	}
	for _, h := range e.Headers {
		n += int64(len(h.Name) + len(h.Value))
	}
	return n
}

// Record is an event once it is Kafka's.
type Record struct {
	Topic     string
	Partition *int32 // nil: the sink's partitioner decides by Key
	Key       []byte // nil: no key
	Value     []byte // nil: tombstone
	Headers   []Header

	// What an exactly-once sink notes of the event beside the record.
	Row   RowID
	Event uint64 // HashEvent of its id
	Lane  int32  // claim: lanes
}

// Receipt is Kafka's acknowledgement, kept in the row.
type Receipt struct {
	Topic     string
	Partition int32
	Offset    int64
}
