package relay

import "time"

// logRevived tells of events that a relay gave up which did not know that they had been sent: a person who was
// told that they are dead need not act any more.
func (w *owner) logRevived(outs []Outcome) {
	const most = 20 // lines
	n := 0
	for i := range outs {
		if outs[i].From != StateDead {
			continue
		}
		if n++; n <= most {
			r := &outs[i].Receipt
			w.log.Warn("event was marked DEAD by a relay that had lost its lane, but it had been sent: marked SENT",
				"event_id", outs[i].EventID, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset)
		}
	}
	if n > most {
		w.log.Warn("more events that were marked DEAD had been sent: marked SENT", "events", n-most)
	}
}

// lasted is for a line of the log: how long something took, when it is long enough to be of interest.
func lasted(began time.Time) []any {
	const least = 10 * time.Millisecond
	took := time.Since(began)
	if took < least {
		return nil
	}
	return []any{"took", took.Round(time.Millisecond).String()}
}
