package crashtest

import (
	"fmt"
	"strings"
)

// Rules say which promises a run is held to.
type Rules struct {
	// Ordered asks for the order of first occurrences per key (P3). A table that several relays share
	// by claiming rows keeps none.
	Ordered bool
	// MaxDoubles is how many records too many may stand in the topics: what was in flight when a relay
	// was killed or lost what it owned (P4).
	MaxDoubles int
}

// Finding is one broken promise.
type Finding struct {
	Promise string // "P1 no loss", …
	EventID string // empty when it is not about one event
	Text    string
}

func (f Finding) String() string {
	if f.EventID == "" {
		return f.Promise + ": " + f.Text
	}
	return f.Promise + ": event " + f.EventID + " " + f.Text
}

// The promises that Check holds a run to.
const (
	NoLoss      = "P1 no loss"
	NoPhantom   = "P2 no phantom"
	Ordered     = "P3 order"
	Doubles     = "P4 duplicates"
	HonestState = "P9 honest state"
	SameBytes   = "P11 same bytes"
	NoAttempts  = "P08 an outage costs no attempts"
	Settled     = "every row is settled"
	AllOrNone   = "row and business data in one commit"
)

// Report is the result of a comparison.
type Report struct {
	Committed  int // events in the ledger
	RolledBack int // events of transactions that were rolled back
	Unknown    int // events of transactions whose outcome the writer did not learn
	Delivered  int // different events of the ledger in the topics
	Doubled    int // records beyond the first of each event
	Findings   []Finding
}

// maxShown is how many findings of a promise String shows.
const maxShown = 8

// String is the summary, and the findings behind it.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events committed, %d rolled back, %d of unknown outcome; %d delivered, %d doubled; %d findings",
		r.Committed, r.RolledBack, r.Unknown, r.Delivered, r.Doubled, len(r.Findings))
	shown := map[string]int{}
	for _, f := range r.Findings {
		if shown[f.Promise]++; shown[f.Promise] <= maxShown {
			fmt.Fprintf(&b, "\n  %s", f)
		}
	}
	for _, promise := range promises {
		if more := shown[promise] - maxShown; more > 0 {
			fmt.Fprintf(&b, "\n  %s: %d more", promise, more)
		}
	}
	return b.String()
}

var promises = []string{NoLoss, NoPhantom, Ordered, Doubles, HonestState, SameBytes, NoAttempts, Settled, AllOrNone}
