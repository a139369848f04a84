package demo

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Lines is the view where there is no terminal: a line of numbers a second, and one of words when
// there is something new to say.
type Lines struct {
	Out   io.Writer
	Every time.Duration // between the numbers; defaults to 1 s

	said string // the kind of the last story
}

// lookEvery is how often Lines looks for something new to say.
const lookEvery = 100 * time.Millisecond

// Watch prints until ctx ends.
func (l *Lines) Watch(ctx context.Context, d *Demo) error {
	every := l.Every
	if every <= 0 {
		every = time.Second
	}
	l.print("Kafka on " + d.Kafka() + "; read along: " + kcatLine(d.Kafka()))
	l.print(lookLine(d.o.Program, databaseURL(d.ordersPath())))
	numbers, look := time.NewTicker(every), time.NewTicker(min(every, lookEvery))
	defer numbers.Stop()
	defer look.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		case <-numbers.C:
			due = true
		}
		s, err := d.Snapshot(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.tell(&s)
		if due {
			l.print(summaryLine(&s))
		}
	}
}

func (l *Lines) tell(s *Snapshot) {
	if st := tell(s); st.kind != l.said {
		l.said = st.kind
		l.print(st.text)
	}
}

func (l *Lines) print(text string) { _, _ = fmt.Fprintln(l.Out, ascii(text)) }

func summaryLine(s *Snapshot) string {
	kafka := fmt.Sprintf("%d delivered, %.0f/s, p99 %s", s.Delivered, s.DeliveredRate, shortTime(s.P99))
	if !s.BrokerUp {
		kafka = fmt.Sprintf("%d delivered, DOWN", s.Delivered)
	}
	text := fmt.Sprintf("%4.0fs  orders %d, %d rolled back | outbox %d new, %d failed, %d dead, %d sent, oldest %s | kafka %s",
		s.Elapsed.Seconds(), s.OrdersCommitted, s.OrdersRolledBack, s.New, s.Failed, s.Dead, s.Sent, seconds(s.OldestAge), kafka)
	for _, c := range s.Consumers {
		text += fmt.Sprintf(" | %s %d", c.Name, c.Applied)
		if c.Skipped > 0 {
			text += fmt.Sprintf(", %d repeats skipped", c.Skipped)
		}
		if c.Behind > 0 {
			text += fmt.Sprintf(", %d behind", c.Behind)
		}
	}
	if n := len(s.Last); n > 0 {
		e := &s.Last[n-1]
		text += fmt.Sprintf(" | last %s/%d@%d", e.Topic, e.Partition, e.Offset)
	}
	return text
}

// lookLine is the command that shows the outbox table from outside.
func lookLine(program, database string) string {
	return "look inside: " + program + " events list --database-url " + database
}
