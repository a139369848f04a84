//go:build synctests

package sim

import (
	"bytes"
	"database/sql"
	"fmt"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// entry is what the table and the ledger say of one event that was committed.
type entry struct {
	outbox.Event
	seq, counter int
	retries      int
	status       string
	lastError    string
	topic        sql.NullString
	partition    sql.NullInt32
	offset       sql.NullInt64
}

// ledger reads what was committed, by event id.
func (w *world) ledger() map[string]*entry {
	rows, err := w.db.Query(`SELECT l.event_id, l.seq, l.counter, coalesce(o.status, ''), coalesce(o.retry_count, 0), coalesce(o.last_error, ''), o.kafka_topic, o.kafka_partition, o.kafka_offset
FROM ledger l LEFT JOIN outbox_events o ON o.event_id = l.event_id`)
	require.NoError(w.t, err)
	defer rows.Close()
	all := map[string]*entry{}
	for rows.Next() {
		e := &entry{}
		require.NoError(w.t, rows.Scan(&e.ID, &e.seq, &e.counter, &e.status, &e.retries, &e.lastError, &e.topic, &e.partition, &e.offset))
		e.Event = w.written[e.ID]
		all[e.ID] = e
	}
	require.NoError(w.t, rows.Err())
	return all
}

// check holds the promises over the table, the ledger and what readers of the topics see.
func (w *world) check() {
	ledger := w.ledger()
	committed, all := w.read(kgo.ReadCommitted()), w.read(kgo.ReadUncommitted())
	w.checkTopics("a read_committed reader", ledger, committed, true)
	w.checkTopics("a read_uncommitted reader", ledger, all, false)
	seen := map[string][]*kgo.Record{}
	for _, r := range committed {
		seen[eventID(r)] = append(seen[eventID(r)], r)
	}
	for id, e := range ledger {
		w.checkEvent(id, e, seen[id])
	}
}

func eventID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "event_id" {
			return string(h.Value)
		}
	}
	return ""
}

// checkTopics holds what is promised of the records alone, in their order.
func (w *world) checkTopics(reader string, ledger map[string]*entry, records []*kgo.Record, committed bool) {
	seen := map[string]bool{}
	last := map[string]*entry{} // by topic and key
	for _, r := range records {
		id := eventID(r)
		e := ledger[id]
		if e == nil {
			w.fail("P2: %s sees event %s in topic %s, which was not committed", reader, id, r.Topic)
			continue
		}
		w.checkBytes(reader, e, r)
		if seen[id] {
			if committed && !(w.atLeastOnce && w.mayDouble()) {
				w.fail("P4: %s sees event %s again: %s", reader, id, at(r))
			}
			continue
		}
		seen[id] = true
		if !w.ordered() || w.excused[e.AggregateID] || !committed && w.probes() || w.onDead == relay.OnDeadSkip && (w.wasDead[id] || w.revived[id]) {
			continue
		}
		of := r.Topic + " " + e.AggregateID
		if before := last[of]; before != nil && before.counter > e.counter {
			w.fail("P3: %s sees event %s (%d of key %s) after %s (%d): %s", reader, id, e.counter, e.AggregateID, before.ID, before.counter, at(r))
		}
		last[of] = e
	}
}

func at(r *kgo.Record) string { return fmt.Sprintf("%s/%d at %d", r.Topic, r.Partition, r.Offset) }

// checkBytes holds P11.
func (w *world) checkBytes(reader string, e *entry, r *kgo.Record) {
	if r.Topic != e.Topic || string(r.Key) != e.AggregateID || !bytes.Equal(r.Value, e.Payload) || (r.Value == nil) != (e.Payload == nil) {
		w.fail("P11: %s sees event %s with other bytes than were written", reader, e.ID)
	}
	for name, value := range e.Headers {
		found := false
		for _, h := range r.Headers {
			found = found || h.Key == name && string(h.Value) == value
		}
		if !found {
			w.fail("P11: %s sees event %s without its header %s", reader, e.ID, name)
		}
	}
}

// checkEvent holds what the table says of an event against what a reader of committed records sees.
func (w *world) checkEvent(id string, e *entry, seen []*kgo.Record) {
	if e.retries > 0 && w.troubleOf(id) == none {
		w.fail("P08: event %s has %d attempts and nothing is wrong with it: %s", id, e.retries, e.lastError)
	}
	if w.hopeless(id) && e.status != "DEAD" {
		w.fail("P9: event %s cannot be sent (%s) and is %s", id, marks[w.troubleOf(id)], e.status)
	}
	switch e.status {
	case "SENT":
		if len(seen) == 0 {
			w.fail("P1, P9: event %s is SENT and in no topic", id)
			return
		}
		for _, r := range seen {
			if e.topic.String == r.Topic && e.partition.Valid && e.partition.Int32 == r.Partition && e.offset.Valid && e.offset.Int64 == r.Offset {
				return
			}
		}
		w.fail("P9: event %s has the receipt %s/%d at %d and stands at %s", id, e.topic.String, e.partition.Int32, e.offset.Int64, at(seen[0]))
	case "DEAD":
		if w.troubleOf(id) == none {
			w.fail("P6: event %s is DEAD and nothing is wrong with it: %s", id, e.lastError)
		}
		if len(seen) > 0 && !(w.atLeastOnce && w.mayDouble()) {
			w.fail("P9: event %s is DEAD and in its topic: %s", id, at(seen[0]))
		}
		if e.lastError == "" {
			w.fail("P9: event %s is DEAD without a reason", id)
		}
	case "":
		w.fail("P1: event %s has no row", id)
	default:
		w.fail("P1: event %s is left %s", id, e.status)
	}
}

// probes says that the sink may offer records to brokers alone, in transactions that it aborts, to find out which of
// them are refused: a reader of uncommitted records sees those.
func (w *world) probes() bool { return w.bad > 0 || !w.calm() }

// mayDouble says that something happened in which at-least-once may send an event again.
func (w *world) mayDouble() bool { return w.kills > 0 || !w.calm() }

// checkMemory holds P8: a relay with nothing to do holds nothing.
func (w *world) checkMemory(ps []*process) {
	for _, p := range ps {
		if s := p.relay.Status(); s.InFlight > 0 || s.FlightBytes > 0 || s.Late > 0 || s.BlockedKeys > 0 {
			w.fail("P8: %s is idle and holds %d events of %d bytes, %d late answers, %d keys", p.name, s.InFlight, s.FlightBytes, s.Late, s.BlockedKeys)
		}
	}
}
