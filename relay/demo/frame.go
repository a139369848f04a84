package demo

import (
	"fmt"
	"strings"
	"time"
)

// style is how a piece of text looks; without colours it looks like the rest.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	good  style = "32"
	warn  style = "33"
	bad   style = "1;31"
)

// piece is text in one style. Text is ASCII, so that a byte is a column in every terminal.
type piece struct {
	text  string
	style style
}

type line []piece

// render cuts the line to width columns, or fills it with spaces.
func (l line) render(width int, color bool) string {
	var b strings.Builder
	left := width
	for _, p := range l {
		text := ascii(p.text)
		if len(text) > left {
			text = text[:left]
		}
		left -= len(text)
		if color && p.style != plain && text != "" {
			b.WriteString("\x1b[" + string(p.style) + "m" + text + "\x1b[0m")
		} else {
			b.WriteString(text)
		}
	}
	b.WriteString(strings.Repeat(" ", max(left, 0)))
	return b.String()
}

// ascii keeps control characters and wide letters, which are data of others, out of the terminal.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}

// row is a label and cells; cells that do not fit whole are left out from the right.
func row(width int, label string, cells ...line) line {
	const labelWidth, gap = 11, 2
	l := line{{" " + pad(label, labelWidth), bold}}
	used := 1 + labelWidth
	for i, c := range cells {
		n := 0
		for _, p := range c {
			n += len(p.text)
		}
		if i > 0 {
			n += gap
		}
		if used += n; used > width {
			break
		}
		if i > 0 {
			l = append(l, piece{strings.Repeat(" ", gap), plain})
		}
		l = append(l, c...)
	}
	return l
}

// count is a number before its word; the number keeps its place while it grows.
func count(n int, word string, st style) line {
	return line{{fmt.Sprintf("%6s", number(n)), st}, {" " + word, plain}}
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-len(s), 0))
}

// styleIf is st when there is something to mark.
func styleIf(marked bool, st style) style {
	if marked {
		return st
	}
	return plain
}

// frame lays the view out for a terminal of the given size. note is an error to show, or "".
func frame(s *Snapshot, width, height int, note string) []line {
	st := tell(s)
	top := heading(s, width, height)
	top = append(top, numbers(s, width)...)
	bottom := talk(st, width, height, note)
	bottom = append(bottom, keys(s, width)...)
	space := height - len(top) - len(bottom)
	lines := append(top, events(s, width, space)...)
	if over := len(lines) + len(bottom) - height; over > 0 {
		lines = lines[:max(len(lines)-over, 0)] // what is going on and the keys come first
	}
	lines = append(lines, bottom...)
	return lines[:min(len(lines), height)]
}

func heading(s *Snapshot, width, height int) []line {
	clock := fmt.Sprintf("%02d:%02d ", int(s.Elapsed.Minutes()), int(s.Elapsed.Seconds())%60)
	title := " Postrider demo"
	lines := []line{{{pad(title, width-len(clock)), bold}, {clock, dim}}}
	if height < 20 {
		return lines
	}
	first := "waiting for the first event"
	if s.FirstEvent > 0 {
		first = "first event delivered " + shortTime(s.FirstEvent) + " after the start"
	}
	lines = append(lines,
		line{{" order service -> outbox table -> relay -> Kafka -> consumers, in one process", dim}},
		line{{" Kafka on " + s.Kafka + "; " + first, dim}})
	if height >= 24 {
		lines = append(lines, line{{" read along: " + kcatLine(s.Kafka), dim}})
		inside := " " + lookLine(s.Program, s.Database)
		if height >= 28 && len(inside) <= width {
			lines = append(lines, line{{inside, dim}})
		}
		lines = append(lines, line{})
	}
	return lines
}

func numbers(s *Snapshot, width int) []line {
	kafka := row(width, "KAFKA", line{{"DOWN", bad}}, line{{"connections are refused", warn}})
	if s.BrokerUp {
		kafka = row(width, "KAFKA", count(s.Delivered, "delivered", plain), rate(s.DeliveredRate),
			line{{fmt.Sprintf("commit to readable p50 %s, p99 %s", shortTime(s.P50), shortTime(s.P99)), plain}})
	}
	late := s.OldestAge > 2*time.Second
	lines := []line{
		row(width, "ORDERS", count(s.OrdersCommitted, "committed", plain),
			count(s.OrdersRolledBack, "rolled back", plain), rate(s.OrdersRate)),
		row(width, "OUTBOX", count(s.New, "NEW", styleIf(late, warn)), count(s.Failed, "FAILED", styleIf(s.Failed > 0, warn)),
			count(s.Dead, "DEAD", styleIf(s.Dead > 0, bad)), count(s.Sent, "SENT", plain),
			line{{"oldest " + seconds(s.OldestAge), styleIf(late, warn)}}),
		kafka,
	}
	for _, c := range s.Consumers {
		lines = append(lines, row(width, strings.ToUpper(c.Name), count(c.Applied, "applied", plain),
			count(c.Skipped, "repeats skipped", plain), count(c.Behind, "behind", styleIf(c.Behind > 100, warn)),
			count(c.Total, c.Unit, plain)))
	}
	promise := func(n int, word string) line {
		st := good
		if n > 0 {
			st = bad
		}
		return count(n, word, st)
	}
	return append(lines, row(width, "PROMISES", promise(s.Phantom, "phantom"), promise(s.Doubled, "doubled"),
		promise(s.OutOfOrder, "out of order"), line{{"so far", dim}}))
}

func rate(perSecond float64) line {
	return line{{fmt.Sprintf("%3.0f/s", perSecond), plain}}
}

// events lists the newest events, the newest first, on space lines.
func events(s *Snapshot, width, space int) []line {
	if space < 4 {
		return nil
	}
	const form = " %-15s %-10s %-13s %5s %7s %9s"
	lines := []line{{}, {{fmt.Sprintf(form, "LAST EVENTS", "KEY", "TOPIC", "PART", "OFFSET", "LATENCY"), bold}}}
	for i := range space - 3 {
		text := ""
		if n := len(s.Last) - 1 - i; n >= 0 {
			e := &s.Last[n]
			latency := "repeat"
			if e.Latency > 0 {
				latency = shortTime(e.Latency)
			}
			text = fmt.Sprintf(form, e.Type, e.Key, e.Topic, fmt.Sprint(e.Partition), number(int(e.Offset)), latency)
		}
		lines = append(lines, line{{text, plain}})
	}
	return append(lines, line{})
}

// talk is the story, the hint and what went wrong with a key. A low terminal shows the beginning.
func talk(st story, width, height int, note string) []line {
	look := map[mood]style{moodCalm: good, moodTrouble: bad, moodHealing: warn}[st.mood]
	lines := paragraph(st.text, look, width, max(height/4, 1))
	switch {
	case note != "":
		return append(lines, paragraph(note, bad, width, 2)...)
	case height < 12:
		return lines
	}
	return append(lines, paragraph(st.hint, bold, width, 2)...)
}

func paragraph(text string, st style, width, most int) []line {
	var lines []line
	for _, part := range wrap(text, width-2) {
		if len(lines) == most {
			break
		}
		lines = append(lines, line{{" " + part, st}})
	}
	return lines
}

// keys lists what the keys do.
func keys(s *Snapshot, width int) []line {
	broker := "stop broker"
	if !s.BrokerUp {
		broker = "start broker"
	}
	dead := styleIf(s.DeadEvent == nil, dim)
	lines := []line{{}}
	used := 0
	for _, k := range []struct {
		key, does string
		st        style
	}{
		{"b", broker, plain}, {"p", "poison", plain}, {"r", "repair", dead}, {"d", "discard", dead},
		{"c", "crash consumers", plain}, {"q", "quit", plain},
	} {
		text := " [" + k.key + "] "
		n := len(text) + len(k.does)
		if used += n; used > width && used > n {
			lines, used = append(lines, line{}), n
		}
		last := len(lines) - 1
		lines[last] = append(lines[last], piece{text, styleIf(k.st != dim, bold)}, piece{k.does, k.st})
	}
	return lines
}

// wrap breaks text at spaces into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	current := ""
	for _, word := range strings.Fields(text) {
		switch {
		case current == "":
			current = word
		case len(current)+1+len(word) > width:
			lines = append(lines, current)
			current = word
		default:
			current += " " + word
		}
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
