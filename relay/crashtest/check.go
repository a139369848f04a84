package crashtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Check compares what the writers, the ledger, the table and the topics say.
func Check(h History, rules Rules) Report {
	c := newChecker(h)
	c.attempts()
	c.rows()
	c.records()
	c.loss()
	if rules.Ordered {
		c.order()
	}
	if c.report.Doubled > rules.MaxDoubles {
		c.find(Doubles, "", "%d records too many, at most %d were in flight when relays were stopped; most often: %s",
			c.report.Doubled, rules.MaxDoubles, c.mostDoubled())
	}
	return c.report
}

type checker struct {
	History
	ledger map[string]Entry
	row    map[string]Row
	at     map[Place]Record
	of     map[string][]Record // by event id, in the order of their places
	report Report
}

func newChecker(h History) *checker {
	c := &checker{History: h, ledger: map[string]Entry{}, row: map[string]Row{}, at: map[Place]Record{}, of: map[string][]Record{}}
	for _, e := range h.Ledger {
		c.ledger[e.EventID] = e
	}
	c.Records = slices.Clone(h.Records)
	slices.SortFunc(c.Records, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	for _, r := range c.Records {
		c.at[r.Place] = r
		c.of[r.EventID] = append(c.of[r.EventID], r)
	}
	c.report.Committed = len(c.ledger)
	return c
}

func (c *checker) find(promise, id, format string, args ...any) {
	c.report.Findings = append(c.report.Findings, Finding{Promise: promise, EventID: id, Text: fmt.Sprintf(format, args...)})
}

// attempts holds the writers' own knowledge against the ledger: a database that lost a commit, or a
// library that wrote past a rollback, would make everything after it meaningless.
func (c *checker) attempts() {
	for _, a := range c.Attempts {
		for _, id := range a.EventIDs {
			_, committed := c.ledger[id]
			switch a.Outcome {
			case Committed:
				if !committed {
					c.find(AllOrNone, id, "was committed, and is not in the ledger")
				}
			case RolledBack:
				c.report.RolledBack++
				if committed {
					c.find(AllOrNone, id, "was rolled back, and is in the ledger")
				}
			case Unknown:
				c.report.Unknown++
			}
		}
	}
}

// rows looks at the table alone, and holds it against the ledger and the topics.
func (c *checker) rows() {
	for _, r := range c.Rows {
		if _, twice := c.row[r.EventID]; twice {
			c.find(AllOrNone, r.EventID, "has two rows")
		}
		c.row[r.EventID] = r
		if _, committed := c.ledger[r.EventID]; !committed {
			c.find(AllOrNone, r.EventID, "has a row, and is not in the ledger")
		}
		if r.Status != "SENT" {
			c.find(Settled, r.EventID, "is left in state %s%s", r.Status, reason(r))
		}
		if r.RetryCount != 0 {
			c.find(NoAttempts, r.EventID, "has retry_count %d%s", r.RetryCount, reason(r))
		}
		c.receipt(r)
	}
	for id := range c.ledger {
		if _, known := c.row[id]; !known {
			c.find(AllOrNone, id, "is in the ledger, and has no row")
		}
	}
}

func reason(r Row) string {
	if r.LastError == "" {
		return ""
	}
	return " (" + r.LastError + ")"
}

// receipt holds that SENT means acknowledged: the receipt leads to the event's own record.
func (c *checker) receipt(r Row) {
	switch {
	case r.Status != "SENT":
		if r.Receipt != nil {
			c.find(HonestState, r.EventID, "is %s and has a receipt", r.Status)
		}
		return
	case r.Receipt == nil:
		c.find(HonestState, r.EventID, "is SENT without a receipt")
		return
	}
	rec, exists := c.at[*r.Receipt]
	switch {
	case !exists:
		c.find(HonestState, r.EventID, "is SENT, and nothing stands at its receipt %s", *r.Receipt)
	case rec.EventID != r.EventID:
		c.find(HonestState, r.EventID, "is SENT, and event %s stands at its receipt %s", rec.EventID, *r.Receipt)
	}
}

// records holds each record against the ledger.
func (c *checker) records() {
	for _, r := range c.Records {
		e, committed := c.ledger[r.EventID]
		switch {
		case !committed:
			c.find(NoPhantom, r.EventID, "stands at %s, and was not committed", r.Place)
			continue
		case r.Hash != e.Hash:
			c.find(SameBytes, r.EventID, "has other bytes at %s", r.Place)
		case r.Key != e.Key:
			c.find(SameBytes, r.EventID, "has key %q instead of %q at %s", r.Key, e.Key, r.Place)
		}
		if c.of[r.EventID][0].Place != r.Place {
			c.report.Doubled++
		}
	}
}

// loss looks for events that Kafka never got. An event that is DEAD with its reason is not lost.
func (c *checker) loss() {
	for id := range c.ledger {
		r := c.row[id]
		switch {
		case len(c.of[id]) > 0:
			c.report.Delivered++
		case r.Status != "DEAD" || r.LastError == "":
			c.find(NoLoss, id, "was committed, is %s, and is in no topic", cmp.Or(r.Status, "without a row"))
		}
	}
}

// order holds that the first occurrences of a key's events stand in the order of its counter, which
// is the order of the commits.
func (c *checker) order() {
	last, topic := map[string]Entry{}, map[string]Place{}
	seen := map[string]bool{}
	for _, r := range c.Records {
		e, committed := c.ledger[r.EventID]
		if !committed || seen[r.EventID] {
			continue
		}
		seen[r.EventID] = true
		before, known := last[e.Key]
		switch {
		case known && (topic[e.Key].Topic != r.Topic || topic[e.Key].Partition != r.Partition):
			c.find(Ordered, r.EventID, "of key %q stands at %s, earlier ones stand at %s", e.Key, r.Place, topic[e.Key])
		case known && e.Counter < before.Counter:
			c.find(Ordered, r.EventID, "number %d of key %q stands at %s, behind number %d", e.Counter, e.Key, r.Place, before.Counter)
			continue // the later ones are held against the one that overtook
		}
		last[e.Key], topic[e.Key] = e, r.Place
	}
}

// mostDoubled names the events with the most records, and how many.
func (c *checker) mostDoubled() string {
	var ids []string
	for id, rs := range c.of {
		if len(rs) > 1 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(c.of[b]), len(c.of[a])), cmp.Compare(a, b))
	})
	var said []string
	for _, id := range ids[:min(3, len(ids))] {
		said = append(said, fmt.Sprintf("event %s %d times", id, len(c.of[id])))
	}
	return strings.Join(said, ", ")
}
