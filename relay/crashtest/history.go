package crashtest

import "fmt"

// History is what a run left behind. All of it is read after the relays have stopped.
type History struct {
	Attempts []Attempt // what the writers know
	Ledger   []Entry   // what the database says was committed
	Rows     []Row     // the outbox table
	Records  []Record  // every topic, read_committed, from offset 0
}

// Attempt is one business transaction as its writer saw it end.
type Attempt struct {
	EventIDs []string
	Outcome  Outcome
}

// Outcome is what a writer knows of its transaction.
type Outcome int

// The outcomes. After Unknown only the ledger tells.
const (
	Unknown Outcome = iota // the reply to COMMIT was lost
	Committed
	RolledBack
)

// Entry is one line of the ledger, written in the transaction of its event.
type Entry struct {
	EventID string
	Key     string
	Counter int64  // counts the events of the key in the order of their commits, from 1, without gaps
	Hash    string // of the payload
}

// Row is what the outbox table says of an event at the end.
type Row struct {
	EventID    string
	Key        string
	Status     string
	RetryCount int
	LastError  string
	Receipt    *Place // nil when the row has none
}

// Place is where a record stands.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Record is one record of a topic. EventID is empty when it carries none.
type Record struct {
	Place
	EventID string
	Key     string
	Hash    string // of the value
}

func (p Place) String() string { return fmt.Sprintf("%s/%d@%d", p.Topic, p.Partition, p.Offset) }
