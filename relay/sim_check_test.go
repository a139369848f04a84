package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/relaytest"
)

func discarded(r relaytest.FakeRow) bool { return strings.HasPrefix(r.LastError, "discarded:") }

// act is a person who looks at dead events now and then.
func (w *world) act(over <-chan struct{}) {
	admin := w.db.Open(relaytest.FakeStoreOptions{StoreOptions: relay.StoreOptions{Name: "people"}})
	for i := 0; ; i++ {
		r := w.draw("person", i)
		select {
		case <-over:
			return
		case <-time.After(time.Duration(r.Int64N(int64(10 * time.Second)))):
		}
		for _, row := range w.db.Pending() {
			if row.State != relay.StateDead || discarded(row) {
				continue
			}
			one := relay.Filter{EventIDs: []string{row.EventID}}
			switch n := r.IntN(8); {
			case n < 2:
				_, _, _ = admin.Retry(context.Background(), one, false)
			case n < 4:
				w.giveUp(admin, one)
			case n == 4 && w.onDead == relay.OnDeadHold && row.Key != nil && !(w.lanes > 0 && w.cursor):
				// Else no gate leads back to it: a relay that takes the lane over begins to read behind it.
				s := relay.StateNew
				w.db.Edit(row.EventID, relaytest.Edit{State: &s})
			case n == 5:
				w.mu.Lock()
				w.deleted[row.EventID] = true
				w.mu.Unlock()
				w.db.Edit(row.EventID, relaytest.Edit{Delete: true})
			}
		}
	}
}

// giveUp discards dead events, as a person does.
func (w *world) giveUp(admin relay.Admin, f relay.Filter) {
	_, _, _ = admin.Discard(context.Background(), f, "not needed", false)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range w.db.Pending() {
		if row.State == relay.StateDead && discarded(row) {
			w.givenUp[row.EventID] = true
		}
	}
}

// checkDead holds that nothing is DEAD which is in its topic, once every relay knows what became of its work.
func (w *world) checkDead() {
	sent := map[string]bool{}
	for _, topic := range w.kafka.Topics() {
		for _, p := range w.kafka.Records(topic) {
			for _, r := range p {
				sent[r.Header("event_id")] = sent[r.Header("event_id")] || topic != w.deadTopic
			}
		}
	}
	for _, row := range w.db.Pending() {
		if row.State == relay.StateDead && !discarded(row) && sent[row.EventID] {
			w.fail("P9: event %s is DEAD and yet in its topic: %v", row.EventID, row)
		}
	}
}

// checkMemory holds P8: a relay with nothing to do holds nothing.
func (w *world) checkMemory(ss []*session) {
	for _, s := range ss {
		if left := relay.Leftovers(s.relay); left != "" {
			w.fail("P8: %s is idle and holds %s", s.name, left)
		}
	}
}

// arrival is one occurrence of an event in a topic.
type arrival struct {
	id    string
	at    time.Time
	acked bool
}

// check1 holds the promises over table, topics and ledger.
func (w *world) check1() {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string][]arrival{}
	for _, topic := range w.kafka.Topics() {
		for _, p := range w.kafka.Records(topic) {
			first := map[string]bool{}
			last := map[string]commit{}
			for _, r := range p {
				id := r.Header("event_id")
				c, committed := w.ledger[id]
				if !committed || r.At.Before(c.at) {
					w.fail("P2: event %s is in topic %s and was not committed", id, topic)
				}
				if topic == w.deadTopic {
					continue
				}
				seen[id] = append(seen[id], arrival{id, r.At, r.Acked})
				if first[id] || !c.serial || !w.ordered() || w.wasDead[id] && w.onDead == relay.OnDeadSkip {
					continue
				}
				first[id] = true
				if before, any := last[c.key]; any && before.seq > c.seq {
					w.fail("P3: event %s of key %s came after a later one: %v", id, c.key, w.story(p, c.key))
				}
				last[c.key] = c
			}
		}
	}
	for id, c := range w.ledger {
		w.checkEvent(id, c, seen[id])
	}
}

// story tells what came of a key into a partition.
func (w *world) story(p []relaytest.FakeRecord, key string) (lines []string) {
	for _, r := range p {
		id := r.Header("event_id")
		row, _ := w.db.Row(id)
		if w.ledger[id].key == key {
			lines = append(lines, fmt.Sprintf("%s row %s commit %d at %s acked %v dead %v;", id, row.ID, w.ledger[id].seq,
				r.At.Sub(w.start), r.Acked, w.wasDead[id]))
		}
	}
	return lines
}

func (w *world) checkEvent(id string, c commit, seen []arrival) {
	row, there := w.db.Row(id)
	if !there {
		if !w.deleted[id] {
			w.fail("event %s has no row", id)
		}
		return
	}
	unacked := 0
	for _, a := range seen {
		if !a.acked {
			unacked++
		}
	}
	if w.lanes > 0 && !w.plain && len(seen) > 1 {
		w.fail("P4: event %s is %d times in its topic for a read_committed reader: %v", id, len(seen), seen)
	}
	if allowed := 1 + unacked + w.excused[id] + row.Reclaims; len(seen) > allowed && !w.parts() {
		w.fail("P4: event %s is %d times in its topic, crashes and unknown outcomes account for %d: %v", id, len(seen), allowed, seen)
	}
	if row.Attempts > w.verdicts[id]+w.unsettled[id] {
		w.fail("P08: event %s has %d attempts and was told %d verdicts", id, row.Attempts, w.verdicts[id])
	}
	switch row.State {
	case relay.StateSent:
		if len(seen) == 0 {
			w.fail("P1, P9: event %s is SENT and in no topic", id)
		}
		w.checkReceipt(id, row)
	case relay.StateDead:
		if w.verdicts[id] == 0 || row.LastError == "" {
			w.fail("P9: event %s is DEAD without a verdict: %v", id, row)
		}
		w.checkDeadLetter(id, row)
	default:
		w.fail("P1: event %s was not sent: %v", id, row)
	}
}

func (w *world) checkReceipt(id string, row relaytest.FakeRow) {
	if row.Receipt == nil {
		w.fail("P9: event %s is SENT without a receipt", id)
		return
	}
	p := w.kafka.Records(row.Receipt.Topic)
	if int(row.Receipt.Partition) >= len(p) || int(row.Receipt.Offset) >= len(p[row.Receipt.Partition]) ||
		p[row.Receipt.Partition][row.Receipt.Offset].Header("event_id") != id {
		w.fail("P9: event %s has the receipt of something else: %+v", id, *row.Receipt)
	}
}

func (w *world) checkDeadLetter(id string, row relaytest.FakeRow) {
	if w.deadTopic == "" || strings.Contains(row.LastError, "no copy in the dead-letter topic") {
		return
	}
	for _, p := range w.kafka.Records(w.deadTopic) {
		if slices.ContainsFunc(p, func(r relaytest.FakeRecord) bool { return r.Header("event_id") == id }) {
			return
		}
	}
	w.fail("event %s is DEAD and neither in the dead-letter topic nor noted as missing there: %v", id, row)
}
