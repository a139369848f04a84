package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// laneDocument is one lane in the JSON that scripts rely on.
type laneDocument struct {
	kafka.LaneStatus
	// Waiting counts the lane's events that are not sent yet, among the oldest of all lanes; none when the database
	// does not tell in time.
	Waiting          *relay.Count `json:"waiting,omitempty"`
	OldestWaitingAge float64      `json:"oldest_waiting_age_seconds"`
}

// askLanes asks the cluster who has which lane; it not answering is an answer, not an error.
func askLanes(ctx context.Context, cfg *config.Config) (lanes []laneDocument, silent string) {
	none := []laneDocument{}
	if cfg.Relay.Claim != relay.ClaimLanes {
		return none, ""
	}
	props, problems, _ := kafka.Parse(cfg.Kafka.Reveal())
	if len(problems) > 0 {
		return none, "the kafka section has mistakes: postrider config validate"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	known, err := kafka.DescribeLanes(ctx, props, cfg.Outbox.Name)
	var missing *kafka.NoControlTopicError
	switch {
	case errors.As(err, &missing):
		return none, missing.Error()
	case err != nil:
		return none, "Kafka does not answer: " + err.Error()
	}
	lanes = make([]laneDocument, len(known))
	for i := range known {
		lanes[i].LaneStatus = known[i]
	}
	return lanes, ""
}

// owners names who has which lane, for people: the relay, or its run where several relays have one name, as those of one
// machine have unless told otherwise.
func owners(lanes []laneDocument) []string {
	runs := map[string]string{}
	shared := map[string]bool{}
	for i := range lanes {
		l := &lanes[i]
		if run, known := runs[l.Relay]; known && run != l.Run {
			shared[l.Relay] = true
		}
		runs[l.Relay] = l.Run
	}
	names := make([]string, len(lanes))
	for i := range lanes {
		switch l := &lanes[i]; {
		case l.Relay == "":
			names[i] = "nobody"
		case shared[l.Relay]:
			names[i] = l.Run
		default:
			names[i] = l.Relay
		}
	}
	return names
}

// shares says how many relays there are, and how many lanes each has.
func shares(lanes []laneDocument) (relays int, line string) {
	counts := map[string]int{}
	for _, name := range owners(lanes) {
		counts[name]++
	}
	free := counts["nobody"]
	delete(counts, "nobody")
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		part := fmt.Sprintf("%s %d", name, counts[name])
		if len(parts) == 0 {
			part = fmt.Sprintf("%s %s", name, number(counts[name], "lane"))
		}
		parts = append(parts, part)
	}
	if free > 0 {
		parts = append(parts, number(free, "lane")+" without a relay")
	}
	return len(counts), strings.Join(parts, ", ")
}

func number(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// unmarked tells of transactions that are sent and not marked in the table, once that is more than what is always under way.
func unmarked(l *laneDocument, now time.Time) string {
	const (
		usual = 10
		soon  = 15 * time.Second // positions are noted every few seconds
	)
	var since time.Duration
	if l.ProgressAt != nil {
		since = now.Sub(*l.ProgressAt)
	}
	what := "about " + number(int(l.Unmarked), "transaction")
	switch {
	case l.Unmarked == 0:
		return ""
	case l.Relay == "":
		return what + " for the next owner to mark as sent"
	case l.Unmarked > usual, since > soon:
		return what + " sent and not marked in the table: does the database take changes?"
	}
	return ""
}

// laneLine says how a lane fares, for people.
func laneLine(l *laneDocument, now time.Time) string {
	var parts []string
	if l.Host != "" {
		parts = append(parts, "at "+l.Host)
	}
	if l.Flow != nil {
		parts = append(parts, fmt.Sprint("flow ", *l.Flow))
	}
	if l.Waiting != nil && (l.Waiting.Value > 0 || !l.Waiting.Exact) {
		waiting := count(*l.Waiting) + " waiting"
		if l.OldestWaitingAge > 0 {
			waiting += " for up to " + age(time.Duration(l.OldestWaitingAge*float64(time.Second)))
		}
		parts = append(parts, waiting)
	}
	if text := unmarked(l, now); text != "" {
		parts = append(parts, text)
	}
	if l.ProgressAt != nil {
		parts = append(parts, "last progress "+age(max(now.Sub(*l.ProgressAt), 100*time.Millisecond))+" ago")
	}
	if l.Relay == "" && l.Last != "" {
		parts = append(parts, "last owner "+l.Last)
	}
	return strings.Join(parts, ", ")
}

// lagBound is how many waiting events are looked at for the lanes' lag, and lagTimeout how long that may take.
const (
	lagBound   = 2000
	lagTimeout = 2 * time.Second
)

// addLag says how many events of each lane wait, and for how long the oldest does. It looks at the oldest events from
// where reading begins, so that the table's history is left alone. oldest is the age of the oldest of all.
func addLag(ctx context.Context, store relay.Admin, lanes []laneDocument, oldest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	rows, err := store.List(ctx, relay.Filter{States: []relay.State{relay.StateNew, relay.StateSending, relay.StateFailed},
		After: before(lanes), Limit: lagBound})
	if err != nil {
		return
	}
	var first time.Time
	for i := range rows {
		if at := rows[i].CreatedAt; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for i := range lanes {
		lanes[i].Waiting = &relay.Count{Exact: len(rows) < lagBound}
	}
	for i := range rows {
		key := string(rows[i].Row)
		if rows[i].Key != nil {
			key = *rows[i].Key
		}
		l := &lanes[relay.LaneOf(key, int32(len(lanes)))]
		l.Waiting.Value++
		if at := rows[i].CreatedAt; !at.IsZero() {
			l.OldestWaitingAge = max(l.OldestWaitingAge, (oldest - at.Sub(first)).Seconds())
		}
	}
}

// before is the row behind which all events stand that are not settled, as far as the lanes' owners have noted it,
// but for those that wait for an earlier event of their key (see relay.LaneStore's Low).
func before(lanes []laneDocument) relay.RowID {
	lowest := int64(0)
	for i := range lanes {
		digits, _, _ := strings.Cut(lanes[i].Low, ",")
		low, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return ""
		}
		if i == 0 || low < lowest {
			lowest = low
		}
	}
	return relay.RowID(strconv.FormatInt(lowest-1, 10))
}
