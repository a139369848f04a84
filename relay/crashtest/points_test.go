//go:build unix

package crashtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/outbox"
)

// killPoint is a place in a relay's work. As everywhere in this package it is reached by holding the ways to
// Kafka and to the database, not by hooks in the product.
type killPoint struct {
	name string
	once bool // of a transaction: exactly-once only
	much bool // unlike its neighbours: each run has it in all ways, on PostgreSQL
	mark bool // where databases differ: each run has it on all of them
	// reach brings a relay to the point with events under way, inFlight of them unless the name says so, and
	// returns it. relays[0] runs and has all lanes.
	reach func(t *testing.T, w *world) *process
}

// many events make a transaction whose progress takes records of its own; that of a few travels with the offsets.
const many = 5 * inFlight

var killPoints = []killPoint{
	{name: "after the read", reach: toKafka(inFlight, false, asks(kmsg.AddPartitionsToTxn, kmsg.Produce))},
	{name: "sent, no answer", much: true, reach: toRecords(inFlight, true, true)},
	{name: "before the progress, many events", once: true, reach: toRecords(many, false, false)},
	{name: "progress, no answer, many events", once: true, reach: toRecords(many, false, true)},
	{name: "before the offsets", once: true, reach: toKafka(inFlight, false, asks(kmsg.TxnOffsetCommit))},
	{name: "before the offsets, many events", once: true, reach: toKafka(many, false, asks(kmsg.TxnOffsetCommit))},
	{name: "offsets, no answer", once: true, reach: toKafka(inFlight, true, asks(kmsg.TxnOffsetCommit))},
	{name: "before the end", once: true, much: true, reach: toKafka(inFlight, false, asks(kmsg.EndTxn))},
	{name: "before the end, many events", once: true, reach: toKafka(many, false, asks(kmsg.EndTxn))},
	{name: "ended, no answer", once: true, much: true, reach: toKafka(inFlight, true, asks(kmsg.EndTxn))},
	{name: "ended, no answer, many events", once: true, reach: toKafka(many, true, asks(kmsg.EndTxn))},
	{name: "acknowledged, before the mark", much: true, reach: beforeTheMark(inFlight)},
	{name: "acknowledged, before the mark, many events", once: true, reach: beforeTheMark(many)},
	{name: "in the mark", mark: true, reach: inTheMark},
	{name: "marked, no answer", mark: true, reach: afterTheMark},
	{name: "in a revocation", much: true, reach: inARevocation},
	{name: "in a take-over, before it reads", reach: inATakeOver(func(_ *world, heir *process) *point {
		heir.kafka.point.at(asks(kmsg.OffsetFetch), false)
		return &heir.kafka.point
	})},
	{name: "in a take-over, before its marks", once: true, much: true, reach: inATakeOver(func(w *world, heir *process) *point {
		heir.db.point.at(w.marks(), false)
		return &heir.db.point
	})},
	{name: "in a take-over, before it is noted", reach: inATakeOver(func(_ *world, heir *process) *point {
		heir.kafka.point.at(asks(kmsg.OffsetCommit), false)
		return &heir.kafka.point
	})},
}

// toKafka commits n events and goes on until the relay sends a request of the kind: that is held, or its answer is.
func toKafka(n int, answer bool, is func([]byte) bool) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		r := w.relays[0]
		r.kafka.point.at(is, answer)
		w.commit(t, n, keys...)
		r.kafka.point.reached(t)
		return r
	}
}

// toRecords goes on until the relay sends events, or the progress records of its lanes.
func toRecords(n int, events, answer bool) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		if w.settings.delivery == atLeastOnce {
			return toKafka(n, answer, asks(kmsg.Produce))(t, w)
		}
		return toKafka(n, answer, produces(w.topics.id(t, w.control()), events))(t, w)
	}
}

func (p *point) reached(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, p.met.Load, func() string { return "no relay comes to the point" })
}

// marks is the kind of the database's requests that mark events as sent: they name topics, as no other does.
func (w *world) marks() func([]byte) bool { return having(w.topics.names[0]) }

// beforeTheMark: Kafka has answered for n events, and the mark does not come to the database.
func beforeTheMark(n int) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		r := w.relays[0]
		r.db.point.at(w.marks(), false)
		w.commit(t, n, keys...)
		r.db.point.reached(t)
		return r
	}
}

// inTheMark: the database works on the mark, held up by a row lock that ends when the relay is struck.
func inTheMark(t *testing.T, w *world) *process {
	r := beforeTheMark(inFlight)(t, w)
	lock, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.Exec("UPDATE outbox_events SET aggregate_type = aggregate_type")
	require.NoError(t, err)
	r.db.heal()
	w.db.lockWait(t)
	w.struck = func() { _ = lock.Rollback() }
	return r
}

// afterTheMark: the database has marked, and its answer does not come.
func afterTheMark(t *testing.T, w *world) *process {
	r := w.relays[0]
	is := w.marks()
	if w.db.dialect != outbox.Postgres { // where a mark is a transaction
		is = having(query("COMMIT"))
	}
	r.db.point.at(is, true)
	w.commit(t, inFlight, keys...)
	r.db.point.reached(t)
	eventually(t, 20*time.Second, func() bool {
		n, err := w.db.count(t.Context(), "SENT")
		return err == nil && n > len(keys)
	}, func() string { return "the database does not mark" })
	return r
}

// inARevocation: another relay has come, and the first is to give lanes up, which waits for what is in flight.
func inARevocation(t *testing.T, w *world) *process {
	var r *process
	if w.settings.delivery == exactlyOnce {
		r = toKafka(inFlight, false, asks(kmsg.EndTxn))(t, w)
	} else {
		r = toRecords(inFlight, true, true)(t, w)
	}
	w.relays[1].start(t)
	var state string
	eventually(t, 60*time.Second, func() bool {
		shares := w.shares(t)
		state = shares.String()
		return shares.stable && len(shares.lanes) == 2 && shares.total() < laneCount
	}, func() string { return "no lanes are being given up: " + state })
	return r
}

// inATakeOver: a relay was killed with marks that it owed, and its heir comes to a point of its own.
func inATakeOver(at func(w *world, heir *process) *point) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		beforeTheMark(inFlight)(t, w)
		w.relays[0].db.down() // the mark never arrives
		w.relays[0].kill()
		heir := w.relays[1]
		p := at(w, heir)
		heir.start(t)
		p.reached(t)
		return heir
	}
}
