// Package sqlite reads and settles the outbox of a SQLite file: the relay's Store and Admin. It owns
// everything about SQLite (the file's URL, its write-ahead log, how a table is found and scanned, the
// lock that lets one relay at a time work on a table) and refuses to know Kafka, configuration and
// what the events mean.
//
// A file has one writer at a time, so each write here is one short IMMEDIATE transaction, and reads
// are snapshots of the write-ahead log that block nobody. Every read begins at the oldest new row:
// nothing is concluded from an id, so that a row which commits after a later one is not passed over.
package sqlite
