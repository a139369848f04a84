package demo

import (
	"fmt"
	"strings"
	"time"
)

// mood colours a story.
type mood int

const (
	moodCalm mood = iota
	moodTrouble
	moodHealing
)

// story says in plain words what is going on, and what to try next.
type story struct {
	kind string // changes when there is something new to say
	mood mood
	text string
	hint string // about the keys; only views with keys show it
}

// remembered is how long something that has passed is still worth telling.
const remembered = 9 * time.Second

// tell finds the most important thing to say about a moment.
func tell(s *Snapshot) story {
	f := &s.deeds
	switch {
	case !s.BrokerUp:
		text := "The broker is down: connections break, new ones are refused. Orders go on as before, and their events wait in the outbox."
		if down := s.at.Sub(f.brokerDown); down >= time.Second {
			text = fmt.Sprintf("The broker has been down for %s. Orders go on as before: their events wait in the outbox, %s so far, none of them lost.",
				seconds(down), number(s.New+s.Failed))
		}
		return story{"outage", moodTrouble, text, "Press b to start the broker again."}
	case s.FirstEvent == 0:
		return story{"start", moodCalm, "Starting: the first order is on its way.", ""}
	case !f.brokerBack.IsZero() && f.healed.IsZero():
		return story{"healing", moodHealing,
			fmt.Sprintf("The broker is back. The relay finds it again and sends what waited, each order's events in their order: %s to go.",
				number(s.New+s.Failed)),
			"Watch the oldest age fall."}
	case s.DeadEvent != nil:
		return tellDead(s)
	}
	if st, recent := tellRecent(s); recent {
		return st
	}
	if s.Stopped {
		return story{"stopped", moodCalm, "All orders are placed and their events delivered.", nextHint(f)}
	}
	return story{"calm", moodCalm,
		"All is well: an event reaches Kafka a few milliseconds after its COMMIT, and a rolled back order leaves no trace.",
		nextHint(f)}
}

func tellDead(s *Snapshot) story {
	behind := "Nothing waits behind it yet"
	switch s.Held {
	case 0:
	case 1:
		behind = "One event of its order waits behind it"
	default:
		behind = fmt.Sprintf("%d events wait behind dead ones", s.Held)
	}
	return story{"dead", moodTrouble,
		fmt.Sprintf("%s of %s is DEAD: %s. %s; every other order goes on.",
			s.DeadEvent.Type, s.DeadEvent.Key, reason(s.DeadEvent.Error), behind),
		"Press r to give it a legal topic and try again, or d to give it up."}
}

// reason is the middle of a last_error: "[class] CODE: reason (hint)".
func reason(lastError string) string {
	if _, after, found := strings.Cut(lastError, ": "); found {
		lastError = after
	}
	before, _, _ := strings.Cut(lastError, " (")
	return before
}

// tellRecent tells what has just been overcome, the newest first.
func tellRecent(s *Snapshot) (story, bool) {
	f := &s.deeds
	var newest time.Time
	var st story
	note := func(at time.Time, kind, text string) {
		if !at.IsZero() && s.at.Sub(at) < remembered && at.After(newest) {
			newest, st = at, story{kind, moodHealing, text, nextHint(f)}
		}
	}
	kept := "nothing lost, doubled or out of order"
	if s.Phantom+s.Doubled+s.OutOfOrder > 0 {
		kept = fmt.Sprintf("but %d phantom, %d doubled, %d out of order", s.Phantom, s.Doubled, s.OutOfOrder)
	}
	note(f.healed, "healed", fmt.Sprintf("Healed: the %s events that had waited were delivered within %s of the broker's return: %s.",
		number(f.waitedThen), seconds(f.healed.Sub(f.brokerBack)), kept))
	note(f.repaired, "repaired", fmt.Sprintf("Repaired: %s got a legal topic and went out, and what waited behind followed in its order.",
		plural(f.repairedCount, "dead event")))
	note(f.discarded, "discarded", "Given up: the dead event stays in the table with its reason, and those behind it were sent.")
	skipped := 0
	for _, c := range s.Consumers {
		skipped += c.Skipped
	}
	crash := "Both consumers crashed between database and offsets: Kafka delivers again what they have applied already."
	if skipped -= f.skippedBefore; skipped > 0 {
		crash = fmt.Sprintf("Both consumers crashed between database and offsets, so Kafka delivered events again: their inboxes skipped %d, nothing was applied twice.", skipped)
	}
	note(f.crashed, "crashed", crash)
	return st, !newest.IsZero()
}

func nextHint(f *deeds) string {
	switch {
	case !f.broken:
		return "Try b: stop the broker while orders keep coming."
	case !f.poisoned:
		return "Try p: poison an event and see whom it holds up."
	case f.crashed.IsZero():
		return "Try c: crash the consumers before they commit their offsets."
	}
	return "Press q for the verdict on every event."
}

// seconds is a duration for people.
func seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// shortTime is a latency for people.
func shortTime(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return seconds(d)
}

// number has its thousands apart.
func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return number(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return number(n) + " " + what + "s"
}
