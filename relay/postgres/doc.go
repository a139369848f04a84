// Package postgres is the outbox table on PostgreSQL: a relay.Store that reads due events, settles their
// outcomes and serves operators. It owns everything that is particular to PostgreSQL (catalogue, locks,
// snapshots, poolers, plans) and refuses to know Kafka, the flow of the relay and the configuration.
//
// How new rows are found. Ids are handed out before their transactions commit, so a cursor over ids
// alone loses rows. The store reads in the order of id and remembers which ids were missing below its
// cursor. Such a gap belongs to a transaction that may still commit, to one that rolled back, or to
// nobody. Every writer holds the table's ROW EXCLUSIVE lock from before its id is drawn until it ends,
// so the transactions that hold that lock after the gap was seen are the only ones that can fill it:
// when one of them ends the gap is looked at again, and when none is left one more look in a newer
// snapshot decides. A gap is never forgotten by age. See tracker.go for the bookkeeping and engine.go for
// the order of the reads, which is what keeps a later event of a key from overtaking.
package postgres
