package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

func (c *checker) relay() {
	r := &c.Relay
	c.choice("relay.source", r.Source, []string{"poll"}, map[string]string{"tail": "write source: poll"})
	c.choice("relay.claim", string(r.Claim), []string{string(relay.ClaimSingle), string(relay.ClaimLanes), string(relay.ClaimRows)}, nil)
	within(c, "relay.lanes", r.Lanes, 1, 1000)
	within(c, "relay.flows", r.Flows, 1, 16)
	c.duration("relay.session_timeout", r.SessionTimeout, time.Second, 30*time.Minute)
	c.choice("relay.delivery", r.Delivery, []string{AtLeastOnce, ExactlyOnce}, nil)
	if r.Delivery == ExactlyOnce && r.Claim != relay.ClaimLanes {
		c.bad("relay.delivery", "exactly-once needs relays that Kafka can fence, which claim: "+string(r.Claim)+" does not give", "write claim: lanes, or delivery: at-least-once")
	}
	c.group()
	c.choice("relay.after_send", r.AfterSend, []string{"mark", "delete"}, map[string]string{"leave": "write after_send: mark or delete"})
	within(c, "relay.batch", r.Batch, 1, 100_000)
	within(c, "relay.batch_bytes", r.BatchBytes, KiB, GiB)
	c.duration("relay.poll_interval", r.PollInterval, time.Millisecond, time.Hour)
	c.duration("relay.claim_timeout", r.ClaimTimeout, time.Second, 24*time.Hour)
	c.duration("relay.shutdown_timeout", r.ShutdownTimeout, 0, time.Hour)
	c.duration("relay.unknown_topic_grace", r.UnknownTopicGrace, 0, 24*time.Hour)
	if len(r.Name) > 64 || strings.ContainsFunc(r.Name, func(x rune) bool { return x < 0x20 }) {
		c.bad("relay.name", "is longer than 64 bytes or holds control characters", "give it a short plain name")
	}
	if t := r.CreateTopics; t.Wanted() {
		c.orDefault("relay.create_topics.partitions", t.Partitions, 10_000)
		c.orDefault("relay.create_topics.replication_factor", t.ReplicationFactor, 100)
	}
}

// group checks what is about the group in which relays share lanes.
func (c *checker) group() {
	for _, name := range []string{"group.protocol", "group.instance.id"} {
		if !c.Kafka[name].Empty() && c.Relay.Claim != relay.ClaimLanes {
			c.bad("kafka."+name, "is about relays that share lanes, and relay.claim is "+string(c.Relay.Claim), "write claim: lanes, or remove it")
		}
	}
	if strings.EqualFold(c.Kafka["group.protocol"].Reveal(), "consumer") && c.Origin("relay.session_timeout").given() {
		c.bad("relay.session_timeout", "has no effect with kafka.group.protocol: consumer: the brokers decide (group.consumer.session.timeout.ms, 45s unless changed)", "remove it")
	}
}

// orDefault checks a number for topics that are created: -1 leaves it to the broker.
func (c *checker) orDefault(path string, value, high int) {
	switch {
	case value == 0:
		c.bad(path, "is not set, but the other number of relay.create_topics is", "set both; -1 is the broker's default")
	case value != -1 && (value < 1 || value > high):
		c.bad(path, fmt.Sprintf("%d is out of range", value), fmt.Sprintf("write 1 to %d, or -1 for the broker's default", high))
	}
}

func (c *checker) retry() {
	const longest = 30 * 24 * time.Hour
	r := &c.Relay.Retry
	c.choice("relay.retry.on_dead", r.OnDead, []string{relay.OnDeadHold, relay.OnDeadSkip}, nil)
	if reason := topicTrouble(r.DeadLetterTopic); r.DeadLetterTopic != "" && reason != "" {
		c.bad("relay.retry.dead_letter_topic", reason, "")
	} else if strings.Contains(r.DeadLetterTopic, "$") {
		c.bad("relay.retry.dead_letter_topic", "is one topic, not a template", "write its name")
	}
	within(c, "relay.retry.max_attempts", r.MaxAttempts, 1, 1_000_000)
	b := &r.Backoff
	c.duration("relay.retry.backoff.initial", b.Initial, time.Millisecond, longest)
	c.duration("relay.retry.backoff.max", b.Max, time.Millisecond, longest)
	within(c, "relay.retry.backoff.factor", b.Factor, 1, 100)
	within(c, "relay.retry.backoff.jitter", b.Jitter, 0, 1)
	if b.Initial > b.Max {
		path := "relay.retry.backoff.initial"
		if !c.Origin(path).given() {
			path = "relay.retry.backoff.max"
		}
		c.bad(path, fmt.Sprintf("initial %s is longer than max %s", formatDuration(b.Initial), formatDuration(b.Max)), "")
	}
	c.schedule()
}

// schedule checks the stepped waits, which take the place of backoff and max_attempts.
func (c *checker) schedule() {
	r := &c.Relay.Retry
	if len(r.Schedule) == 0 {
		return
	}
	for _, name := range []string{"initial", "factor", "max", "jitter"} {
		if path := "relay.retry.backoff." + name; c.Origin(path).given() {
			c.bad(path, "stands beside relay.retry.schedule, which takes the place of backoff", "keep one of them")
		}
	}
	attempts := len(r.Schedule) + 1
	if c.Origin("relay.retry.max_attempts").given() && r.MaxAttempts != attempts {
		c.bad("relay.retry.max_attempts", fmt.Sprintf("contradicts relay.retry.schedule: after its %d waits an event is dead at attempt %d", len(r.Schedule), attempts), "leave it out")
	}
	if r.MaxAttempts != attempts {
		r.MaxAttempts = attempts
		c.Origins["relay.retry.max_attempts"] = c.Origin("relay.retry.schedule")
	}
	if len(r.Schedule) > 100 {
		c.bad("relay.retry.schedule", "has more than 100 waits", "use relay.retry.backoff")
		return
	}
	for i, wait := range r.Schedule {
		c.duration(fmt.Sprintf("relay.retry.schedule[%d]", i), wait, time.Millisecond, 30*24*time.Hour)
	}
}

// columns checks the names of the table's columns.
func (c *checker) columns() {
	v := reflect.ValueOf(c.Outbox.Columns)
	users := map[string]string{}
	for i, name := range keysOf(v.Type()) {
		path, column := "outbox.columns."+name, v.Field(i).String()
		for alternative := range strings.SplitSeq(strings.TrimSuffix(column, "?"), "|") {
			if column != "" && (alternative == "" || strings.ContainsAny(alternative, "\x00\n\r?")) {
				c.bad(path, "is not a column name", `write a name, "first|second", or "name?" for a column that may be missing`)
			}
		}
		if column == "" {
			if slices.Contains([]string{"id", "event_id", "payload"}, name) {
				c.bad(path, "is needed", "name the column that holds it")
			}
			continue
		}
		if other := users[column]; other != "" && (written(name) || written(other)) {
			c.bad(path, fmt.Sprintf("is the same column as outbox.columns.%s, and the relay writes to it", other), "name another column, or - for none")
		}
		users[column] = name
	}
}

// written says whether the relay writes to the column rather than only reads it.
func written(column string) bool {
	switch column {
	case "status", "retry_count", "next_retry_at", "last_error", "updated_at", "sent_at",
		"kafka_topic", "kafka_partition", "kafka_offset":
		return true
	}
	return false
}

// states checks the words of the status column.
func (c *checker) states() {
	if c.Outbox.Columns.Status == "" {
		return
	}
	s := c.Outbox.States
	users := map[string]string{}
	for _, state := range []struct{ name, word string }{
		{"new", s.New}, {"sending", s.Sending}, {"sent", s.Sent}, {"failed", s.Failed}, {"dead", s.Dead},
	} {
		path := "outbox.states." + state.name
		other := users[state.word]
		switch {
		case state.word == "" && state.name != "sending":
			c.bad(path, "is needed for a table with a status column", "write the table's word for it")
		case state.word == "":
		case other == "new" && state.name == "failed":
			if c.Outbox.Columns.NextRetryAt == "" {
				c.bad(path, "is the same word as outbox.states.new, which only outbox.columns.next_retry_at can tell apart", "name that column or another word")
			}
		case other != "":
			c.bad(path, fmt.Sprintf("is the same word as outbox.states.%s", other), "each state needs its own word; only failed may be that of new")
		default:
			users[state.word] = state.name
		}
	}
}

// claims checks what the ways of claiming and settling ask of the table.
func (c *checker) claims() {
	t, rows := c.Outbox.Columns, c.Relay.Claim == relay.ClaimRows
	if t.Status == "" && c.Relay.AfterSend == "mark" {
		c.bad("relay.after_send", "a table without a status column keeps no mark", "write after_send: delete, or name outbox.columns.status")
	}
	switch {
	case !rows:
	case t.Status == "":
		c.bad("relay.claim", "claim: rows needs a status column", "write claim: lanes, or name outbox.columns.status")
	case c.Outbox.States.Sending == "":
		c.bad("relay.claim", "claim: rows needs outbox.states.sending", "write the table's word for it, or claim: lanes")
	case t.UpdatedAt == "" && t.NextRetryAt == "":
		c.bad("relay.claim", "claim: rows needs outbox.columns.updated_at or next_retry_at to tell abandoned claims", "name one of them, or write claim: lanes")
	}
}
