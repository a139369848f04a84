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
	// reach brings a relay to the point with inFlight events under way, and returns it. relays[0] runs and has
	// all lanes.
	reach func(t *testing.T, w *world) *process
}

var killPoints = []killPoint{
	{name: "after the read", reach: toKafka(false, asks(kmsg.AddPartitionsToTxn, kmsg.Produce))},
	{name: "sent, no answer", much: true, reach: toRecords(true, true)},
	{name: "before the progress", once: true, reach: toRecords(false, false)},
	{name: "progress, no answer", once: true, reach: toRecords(false, true)},
	{name: "before the offsets", once: true, reach: toKafka(false, asks(kmsg.TxnOffsetCommit))},
	{name: "offsets, no answer", once: true, reach: toKafka(true, asks(kmsg.TxnOffsetCommit))},
	{name: "before the end", once: true, reach: toKafka(false, asks(kmsg.EndTxn))},
	{name: "ended, no answer", much: true, once: true, reach: toKafka(true, asks(kmsg.EndTxn))},
	{name: "acknowledged, before the mark", much: true, reach: beforeTheMark},
	{name: "in the mark", mark: true, reach: inTheMark},
	{name: "marked, no answer", mark: true, reach: afterTheMark},
	{name: "in a revocation", much: true, reach: inARevocation},
	{name: "in a take-over, before it reads", reach: inATakeOver(func(heir *process) { heir.kafka.point.at(asks(kmsg.OffsetFetch), false) })},
	{name: "in a take-over, before its marks", once: true, much: true, reach: func(t *testing.T, w *world) *process {
		return inATakeOver(func(heir *process) { heir.db.point.at(w.marks(), false) })(t, w)
	}},
	{name: "in a take-over, before it is noted", reach: inATakeOver(func(heir *process) { heir.kafka.point.at(asks(kmsg.OffsetCommit), false) })},
}

// toKafka goes on until the relay sends a request of the kind: that is held, or its answer is.
func toKafka(answer bool, is func([]byte) bool) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		r := w.relays[0]
		r.kafka.point.at(is, answer)
		w.commit(t, inFlight, keys...)
		r.kafka.point.reached(t)
		return r
	}
}

// toRecords goes on until the relay sends events, or the progress records of its lanes.
func toRecords(events, answer bool) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		if w.settings.delivery == atLeastOnce {
			return toKafka(answer, asks(kmsg.Produce))(t, w)
		}
		return toKafka(answer, produces(w.topics.id(t, w.control()), events))(t, w)
	}
}

func (p *point) reached(t *testing.T) {
	t.Helper()
	eventually(t, 60*time.Second, p.met.Load, func() string { return "no relay comes to the point" })
}

// marks is the kind of the database's requests that mark events as sent: they name topics, as no other does.
func (w *world) marks() func([]byte) bool { return having(w.topics.names[0]) }

// beforeTheMark: Kafka has answered for everything, and the mark does not come to the database.
func beforeTheMark(t *testing.T, w *world) *process {
	r := w.relays[0]
	r.db.point.at(w.marks(), false)
	w.commit(t, inFlight, keys...)
	r.db.point.reached(t)
	return r
}

// inTheMark: the database works on the mark, held up by a row lock that ends when the relay is struck.
func inTheMark(t *testing.T, w *world) *process {
	r := beforeTheMark(t, w)
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
		r = toKafka(false, asks(kmsg.EndTxn))(t, w)
	} else {
		r = toRecords(true, true)(t, w)
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

// inATakeOver: a relay was killed with marks that it owed, and its heir is about to do something.
func inATakeOver(about func(heir *process)) func(*testing.T, *world) *process {
	return func(t *testing.T, w *world) *process {
		beforeTheMark(t, w)
		w.relays[0].db.down() // the mark never arrives
		w.relays[0].kill()
		heir := w.relays[1]
		about(heir)
		heir.start(t)
		if heir.kafka.point.is.Load() != nil {
			heir.kafka.point.reached(t)
		} else {
			heir.db.point.reached(t)
		}
		return heir
	}
}
