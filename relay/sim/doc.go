// Package sim runs whole relays, unchanged, in virtual time: package relay, its real Kafka side over an in-process
// cluster and a network in memory, and its real SQLite side on a file. Faults are drawn from a seed; after each run
// the promises are held against what readers of the topics see, against the table and the ledger, and against memory
// and goroutines.
//
// It owns the scenarios, the faults and the promises as invariants. It refuses to know how the relay keeps them: it
// speaks to it as its environment does. All of it is tests, built with -tags synctests (docs/simulation.md).
package sim
