// Package demo is the whole product in one process, for a first look and for a check of the promises:
// an order service on SQLite, the relay, an in-process Kafka on a real port, two consumers with an
// inbox, and a recorder that reads every record and compares it with the database. It owns the
// example, its faults, its view and its verdict. It refuses to know the command line, and holds no
// rule of the relay: what it runs is the library, the store and the sink that a service would use.
package demo
