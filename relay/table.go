package relay

import (
	"fmt"
	"time"
)

// Table says how the outbox looks: the configuration after presets are applied. It is pure data; a
// Store checks it against the real table when it opens.
type Table struct {
	// Name is the table, optionally schema-qualified, as the database spells it ("outbox_events",
	// "billing.Outbox"). Parts are split at dots outside double quotes or backticks and are quoted
	// by the Store, never pasted.
	Name    string
	Columns Columns
	States  States
	// TimeZone is the zone of time columns without zone: an IANA name, or empty for the session's
	// default, which is what a service's own NOW() used.
	TimeZone string
	// Own is true for the product's own layout (preset postrider), which the Store may read and mark
	// in ways that rely on its indexes.
	Own bool
	// AfterSend says what becomes of a sent row: "mark" (default) or "delete".
	AfterSend string
}

// Columns maps the logical columns to the table's. Empty means that the table has no such column.
// A value may list alternatives separated by "|": the first that exists is taken ("next_retry_at|next_retry_time").
// A trailing "?" makes a column optional: it is left out, with a notice, when the table lacks it.
type Columns struct {
	ID, EventID, AggregateType, AggregateID, EventType, Topic, MessageKey, Payload, Headers string
	Status, RetryCount, NextRetryAt, LastError                                              string
	CreatedAt, UpdatedAt, SentAt                                                            string
	KafkaTopic, KafkaPartition, KafkaOffset                                                 string
}

// States maps the relay's states to the table's words. Failed may equal New (the MySQL article: an
// event that failed goes back to PENDING with a time); Sending may be empty when claim: rows is not used.
type States struct {
	New, Sending, Sent, Failed, Dead string
}

// ClaimMode says how a relay takes rows.
type ClaimMode string

// The claim modes.
const (
	// ClaimSingle is one relay at a time on the table: rows are read, sent and settled without a claim
	// being written. A second relay waits as a standby.
	ClaimSingle ClaimMode = "single"
	// ClaimRows writes a claim to each row first (SENDING), so that any number of relays, other
	// products' included, share a table. It keeps no order between relays.
	ClaimRows ClaimMode = "rows"
	// ClaimLanes shares the keys among any number of relays, each key with one relay at a time, without
	// writing claims: order holds, and the database is not asked who owns what.
	ClaimLanes ClaimMode = "lanes"
)

// StoreOptions is what every Store needs to open.
type StoreOptions struct {
	URL   string // as in database.url; never logged
	Name  string // outbox.name: names the scan's cursor, and says with Claim who may work on the table beside this relay
	Relay string // relay.name: shown in locks and in application_name
	Table Table
	Claim ClaimMode
	Lanes int32 // claim: lanes: how many there are
	// OnDead is OnDeadHold (default) or OnDeadSkip: whether DEAD rows block their keys when gates are loaded.
	OnDead string
	// ReadOnly opens for looking only (Counts, List, Get): rights to write are not asked for.
	ReadOnly bool
	// ClaimTimeout is the age by database time from which a SENDING row counts as abandoned.
	// Defaults to 60 s; at least 1 s.
	ClaimTimeout time.Duration
	// StatementTimeout bounds every statement. Defaults to 30 s.
	StatementTimeout time.Duration
}

// Peers says beside whom a relay may work on a table: beside those for which it is the same. It is empty where
// that is nobody. Relays that claim rows may whatever their outbox is called, since a row has one claim; lanes keep
// relays apart only within one group.
func (o *StoreOptions) Peers() string {
	switch o.Claim {
	case ClaimRows:
		return "rows"
	case ClaimLanes:
		return fmt.Sprintf("lanes, %d of %s", o.Lanes, o.Name)
	}
	return ""
}

// Unlike tells of relays of lanes beside whom this one may not work. What makes them so is not known: names and numbers
// of others stand in no lock.
func (o *StoreOptions) Unlike() string {
	return fmt.Sprintf("with another outbox.name or relay.lanes than this relay's (%s, %d)", o.Name, o.Lanes)
}

// What a DEAD event does to its key.
const (
	OnDeadHold = "hold"
	OnDeadSkip = "skip"
)
