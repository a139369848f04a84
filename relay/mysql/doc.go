// Package mysql reads and settles an outbox table in MySQL and MariaDB: the relay's Store and Admin.
// It owns everything about these servers (URL and session, how a table is found, checked and scanned,
// claims, marks, the owner's lock) and refuses to know Kafka, configuration and what the events mean.
//
// Every read begins at the oldest new row of the index that gives them in order, and is one statement:
// nothing is concluded from an id, since ids are handed out before they commit. Rows are locked and
// marked by primary key in READ COMMITTED, so that no gap is ever locked against a service's INSERT.
// Indexes are forced: on a table whose statistics are old, both servers would rather walk the primary
// key over all sent rows than the index of new ones.
package mysql
