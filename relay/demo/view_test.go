package demo

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with testdata/name.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

var noon = time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)

// calm is a demo that has run for 42 seconds.
func calm() *Snapshot {
	s := &Snapshot{
		at: noon, Program: "postrider", Elapsed: 42 * time.Second, Kafka: "127.0.0.1:40123", Database: "sqlite:/tmp/postrider-demo-1/orders.db", FirstEvent: 87 * time.Millisecond,
		OrdersCommitted: 735, OrdersRolledBack: 105, OrdersRate: 20.1, New: 2, Sent: 1834, OldestAge: 4 * time.Millisecond,
		Delivered: 1834, DeliveredRate: 52.4, P50: 1600 * time.Microsecond, P99: 12 * time.Millisecond, BrokerUp: true,
		Consumers: []ConsumerState{
			{Name: "inventory", Applied: 880, Total: 1520, Unit: "items"},
			{Name: "points", Applied: 540, Total: 34218, Behind: 3, Unit: "points"},
		},
	}
	for i := range lastDeliveries {
		s.Last = append(s.Last, Delivery{
			Type: orderCreated, Key: fmt.Sprintf("ORD-%d", 10800+i), Topic: topicName,
			Partition: int32(i % 3), Offset: int64(990 + i), Latency: time.Duration(1000+100*i) * time.Microsecond,
		})
	}
	return s
}

func outage() *Snapshot {
	s := calm()
	s.BrokerUp, s.New, s.OldestAge = false, 143, 7*time.Second
	s.deeds = deeds{broken: true, brokerDown: noon.Add(-7 * time.Second)}
	return s
}

func poisoned() *Snapshot {
	s := calm()
	s.Dead, s.Held, s.New, s.OldestAge = 1, 2, 2, 5*time.Second
	s.DeadEvent = &DeadEvent{ID: "e-1", Key: "ORD-10799", Type: orderCreated, Error: `[permanent] INVALID_TOPIC_EXCEPTION: topic "Gift order-events" holds ' ', ` +
		"Kafka allows letters, digits, '.', '_' and '-' (set the row's topic or a route for this event type, then retry the event)"}
	s.deeds = deeds{broken: true, poisoned: true}
	return s
}

func screenText(s *Snapshot, width, height int, note string) string {
	var b strings.Builder
	for _, l := range frame(s, width, height, note) {
		b.WriteString(strings.TrimRight(l.render(width, false), " ") + "\n")
	}
	return b.String()
}

func TestFrame_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "calm-80x24.txt", screenText(calm(), 80, 24, ""))
	golden(t, "calm-110x32.txt", screenText(calm(), 110, 32, ""))
	golden(t, "outage-80x24.txt", screenText(outage(), 80, 24, ""))
	golden(t, "poisoned-80x24.txt", screenText(poisoned(), 80, 24, ""))
	golden(t, "poisoned-46x16.txt", screenText(poisoned(), 46, 16, ""))
	golden(t, "note-80x24.txt", screenText(calm(), 80, 24, "That did not work: listen on 127.0.0.1:40123 again"))
}

// TestFrame_FitsEverySize: never more lines or columns than the terminal has, and the keys are there.
func TestFrame_FitsEverySize(t *testing.T) {
	t.Parallel()
	for _, s := range []*Snapshot{calm(), outage(), poisoned(), {BrokerUp: true}} {
		for width := 1; width < 130; width += 9 {
			for height := 1; height < 45; height += 2 {
				lines := frame(s, width, height, "")
				require.LessOrEqual(t, len(lines), height)
				for _, l := range lines {
					require.Len(t, l.render(width, false), width)
				}
				if height >= 8 && width >= 30 {
					require.Contains(t, screenText(s, width, height, ""), "[q] quit")
				}
			}
		}
	}
}

func TestLine_Render(t *testing.T) {
	t.Parallel()
	l := line{{"ab", bold}, {"c\x1b[2Jé", plain}}
	require.Equal(t, "abc?[2J? ", l.render(9, false), "what could rewrite the terminal is shown as ?")
	require.Equal(t, "\x1b[1mab\x1b[0mc", l.render(3, true))
	require.Equal(t, "\x1b[1ma\x1b[0m", l.render(1, true))
}

func TestLines_Golden(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &Lines{Out: &out}
	for i, s := range []*Snapshot{calm(), calm(), outage(), outage(), poisoned()} {
		s.Elapsed = time.Duration(i+1) * time.Second
		if i == 4 {
			s.Consumers[0].Skipped = 12
		}
		l.tell(s)
		l.print(summaryLine(s))
	}
	golden(t, "lines.txt", out.String())
}

func TestTell(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	cases := map[string]struct {
		change func(*Snapshot)
		kind   string
		mood   mood
		text   []string
		hint   string
	}{
		"the first moment": {func(s *Snapshot) { s.FirstEvent = 0 }, "start", moodCalm, []string{"Starting"}, ""},
		"calm":             {func(*Snapshot) {}, "calm", moodCalm, []string{"All is well"}, "Try b"},
		"down": {func(s *Snapshot) { *s = *outage() }, "outage", moodTrouble,
			[]string{"down for 7.0 s", "143 so far"}, "Press b"},
		"just down": {func(s *Snapshot) {
			s.BrokerUp, s.deeds = false, deeds{broken: true, brokerDown: ago(300 * time.Millisecond)}
		}, "outage", moodTrouble, []string{"connections break"}, "Press b"},
		"down, and somebody is dead: the broker comes first": {func(s *Snapshot) {
			*s = *poisoned()
			s.BrokerUp, s.deeds.brokerDown = false, ago(time.Second)
		}, "outage", moodTrouble, nil, "Press b"},
		"back, not yet delivered": {func(s *Snapshot) {
			s.New, s.deeds = 87, deeds{broken: true, brokerBack: ago(time.Second), waitedThen: 143}
		}, "healing", moodHealing, []string{"87 to go"}, "oldest age"},
		"healed": {func(s *Snapshot) {
			s.deeds = deeds{broken: true, brokerBack: ago(3 * time.Second), healed: ago(time.Second), waitedThen: 1143}
		}, "healed", moodHealing, []string{"1,143 events", "within 2.0 s", "nothing lost"}, "Try p"},
		"healed badly": {func(s *Snapshot) {
			s.Doubled, s.deeds = 3, deeds{broken: true, brokerBack: ago(3 * time.Second), healed: ago(time.Second)}
		}, "healed", moodHealing, []string{"3 doubled"}, "Try p"},
		"healed long ago": {func(s *Snapshot) {
			s.deeds = deeds{broken: true, brokerBack: ago(time.Minute), healed: ago(time.Minute)}
		}, "calm", moodCalm, nil, "Try p"},
		"dead": {func(s *Snapshot) { *s = *poisoned() }, "dead", moodTrouble,
			[]string{`OrderCreated of ORD-10799 is DEAD: topic "Gift order-events" holds ' '`, "and '-'. 2 events wait behind"}, "Press r"},
		"dead, one behind": {func(s *Snapshot) { *s = *poisoned(); s.Held = 1 }, "dead", moodTrouble,
			[]string{"One event of its order"}, "Press r"},
		"dead, none behind": {func(s *Snapshot) { *s = *poisoned(); s.Held = 0 }, "dead", moodTrouble,
			[]string{"Nothing waits"}, "Press r"},
		"repaired": {func(s *Snapshot) {
			s.deeds = deeds{broken: true, poisoned: true, repaired: ago(time.Second), repairedCount: 1}
		}, "repaired", moodHealing, []string{"1 dead event got"}, "Try c"},
		"discarded after a repair": {func(s *Snapshot) {
			s.deeds = deeds{broken: true, poisoned: true, repaired: ago(5 * time.Second), discarded: ago(time.Second)}
		}, "discarded", moodHealing, []string{"Given up"}, "Try c"},
		"crashed": {func(s *Snapshot) {
			s.Consumers[0].Skipped, s.Consumers[1].Skipped = 20, 15
			s.deeds = deeds{broken: true, poisoned: true, crashed: ago(time.Second), skippedBefore: 5}
		}, "crashed", moodHealing, []string{"skipped 30"}, "Press q"},
		"crashing": {func(s *Snapshot) {
			s.deeds = deeds{broken: true, poisoned: true, crashed: ago(time.Second)}
		}, "crashed", moodHealing, []string{"Kafka delivers again"}, "Press q"},
		"all placed": {func(s *Snapshot) { s.Stopped = true }, "stopped", moodCalm, []string{"All orders are placed"}, "Try b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := calm()
			c.change(s)
			st := tell(s)
			require.Equal(t, c.kind, st.kind)
			require.Equal(t, c.mood, st.mood)
			for _, text := range c.text {
				require.Contains(t, st.text, text)
			}
			require.True(t, strings.HasPrefix(st.hint, c.hint) || strings.Contains(st.hint, c.hint), st.hint)
		})
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1_234_567: "1,234,567", 1_000_005: "1,000,005"} {
		require.Equal(t, want, number(n))
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0 s", 40 * time.Millisecond: "0.0 s", 9900 * time.Millisecond: "9.9 s", 61 * time.Second: "61 s", 3 * time.Minute: "3 min",
	} {
		require.Equal(t, want, seconds(d))
	}
	for d, want := range map[time.Duration]string{
		0: "0.0 ms", 1640 * time.Microsecond: "1.6 ms", 87 * time.Millisecond: "87 ms", 1500 * time.Millisecond: "1.5 s",
	} {
		require.Equal(t, want, shortTime(d))
	}
	require.Equal(t, []string{"a bc", "def", "toolongword", "x"}, wrap("a bc def toolongword x", 5))
}

func TestLines_ShowARun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s, err := Run(t.Context(), Options{Orders: 20, Rate: 40, Dir: t.TempDir()}, &Lines{Out: &out, Every: 100 * time.Millisecond})
	require.NoError(t, err)
	require.False(t, s.Broken(), "%+v", s)
	require.Regexp(t, `^Kafka on 127\.0\.0\.1:\d+; read along: kcat -C`, out.String())
	require.Regexp(t, `orders \d+, \d+ rolled back \| outbox .* sent, oldest .* \| kafka \d+ delivered`, out.String())
	require.Regexp(t, `last order-events/\d@\d+`, out.String())
}
