// Package crashtest runs the relay as real processes on real servers while both are killed, paused,
// restarted and cut off, and then compares three things: the ledger, which the writers kept in the same
// transactions as their events, the outbox table, and the topics.
//
// It owns the traffic, the faults and the comparison. It refuses to know how the relay works: it starts
// the binary, sends it signals and looks at what it left behind. The comparison (Check) is plain data in
// and findings out, so that its own tests can show that it sees each kind of defect.
//
// TestMatrix takes a relay to each point of its work, kills it there or makes it stand still, and counts what
// was lost, doubled and out of order; dev/crash runs all of its cases and those that belong to it (three
// brokers, networks, mixed fleets), and writes the page docs/crash-matrix.md. The chaos test draws its faults from a seed and prints, when it fails,
// the line that runs them again.
//
//	POSTRIDER_CRASH_REPORT=FILE all cases of the matrix, and an account of them
//	POSTRIDER_CRASH=10m         how long each database is tormented; all databases, not the short three
//	POSTRIDER_CRASH_SEED=7      draw the faults from this seed
//	POSTRIDER_CRASH_BINARY=FILE test this binary instead of building one
//	POSTRIDER_CRASH_OLDER=FILE  let this older binary work beside the one under test (TestFleet_Older)
//	POSTRIDER_CRASH_KEEP=DIR    keep the relays' logs here
package crashtest
