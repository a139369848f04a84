// Package inbox runs a handler once per event and consumer group, in the caller's own database
// transaction.
//
// It owns the statement that takes an event and the answer whether it was new. It refuses to know
// Kafka, offsets and how a transaction begins or ends.
package inbox
