package demo

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Lines is the view where there is no terminal: a line a second, and one more when something new is
// to be said.
type Lines struct {
	Out   io.Writer
	Every time.Duration // defaults to 1 s

	said string // the kind of the last story
}

// Watch prints until ctx ends.
func (l *Lines) Watch(ctx context.Context, d *Demo) error {
	every := l.Every
	if every <= 0 {
		every = time.Second
	}
	l.print("Kafka on " + d.Kafka() + "; read along: " + kcatLine(d.Kafka()))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s, err := d.Snapshot(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		l.show(&s)
	}
}

func (l *Lines) show(s *Snapshot) {
	if st := tell(s); st.kind != l.said {
		l.said = st.kind
		l.print(st.text)
	}
	l.print(summaryLine(s))
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
	}
	if n := len(s.Last); n > 0 {
		e := &s.Last[n-1]
		text += fmt.Sprintf(" | last %s/%d@%d", e.Topic, e.Partition, e.Offset)
	}
	return text
}
