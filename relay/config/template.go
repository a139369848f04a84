package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/postrider/postrider/relay"
)

// docs says what each key is for, as `postrider config init` prints it above the key. Every key has
// a line here.
var docs = map[string]string{
	"database":          "Where the outbox table is.",
	"database.url":      "postgres://user@host:5432/name, mysql://user@host:3306/name, mariadb://…, sqlite:file.db",
	"database.user":     "The user, if not in the URL.",
	"database.password": "The password; any characters. It replaces one in the URL, unless the URL comes from a stronger place:\nflags win over variables, and variables over this file. Better kept out of it:\nPOSTRIDER_DATABASE_PASSWORD, or a file named by POSTRIDER_DATABASE_PASSWORD_FILE.",

	"kafka": "The properties of the Java client, by their own names. As variables: sasl.jaas.config is\nPOSTRIDER_KAFKA_SASL_JAAS_CONFIG, or a file named by POSTRIDER_KAFKA_SASL_JAAS_CONFIG_FILE.",

	"outbox":           "How the table looks.",
	"outbox.name":      "The group of relays that work on this table together.",
	"outbox.preset":    "A known table: " + strings.Join(Presets(), ", ") + ".",
	"outbox.table":     "The table, with its schema if need be: billing.outbox_events.",
	"outbox.columns":   "The table's names for the columns. - stands for a column that the table does not have, \"a|b\"\nfor the first of two that exists, \"a?\" for one that may be missing.",
	"outbox.states":    "The table's words in the status column. failed may be the word of new: then next_retry_at tells.",
	"outbox.time_zone": "The zone of time columns without zone, such as UTC or Asia/Shanghai. Empty: the session's\nown, which is what the service's NOW() used.",

	"routes": "The topic of events whose row names none; the first route that matches decides. For example:\n" +
		"  - {match: {aggregate_type: Order}, topic: orders}\n" +
		"  - {match: {event_type: UserDeleted}, topic: \"users-${event_type}\", key: \"${aggregate_id}\", partition: 0}",
	"topic": "The topic of events that match no route. Variables: ${" + strings.Join(relay.TemplateVariables, "}, ${") + "}.",

	"record":              "How a record looks.",
	"record.profile":      "The names of the headers; postrider is the only profile so far.",
	"record.envelope":     "none: the value is the payload's bytes. json: {eventId, eventType, aggregateId, occurredAt, payload}.",
	"record.content_type": "The content-type header of events whose row names none.",
	"record.headers":      "",
	"record.headers.deny": "Row headers that never leave, such as [authorization, cookie].",

	"relay":                 "How events are read, sent and marked.",
	"relay.name":            "The relay's name in locks and logs. Empty: the host's name.",
	"relay.source":          "poll is the only source so far.",
	"relay.claim":           "lanes: any number of relays share the keys by a consumer group; keys keep their order.\nsingle: one relay at a time, others stand by; keys keep their order. Kafka needs no group for it.\nrows: any number of relays, a claim is written to each row; no order between relays.",
	"relay.lanes":           "claim: lanes only: into how many lanes the keys fall, for good: the control topic <outbox.name>.postrider has as many partitions.",
	"relay.flows":           "How many flows send side by side, each its own share of the keys.",
	"relay.session_timeout": "claim: lanes only: how long a relay that is silent keeps its lanes. Brokers refuse less than 6s unless told otherwise.\nWith kafka.group.protocol: consumer the brokers decide.",
	"relay.delivery":        "exactly-once: readers of committed records (isolation.level=read_committed) see each once. Needs claim: lanes and Kafka 4.\nat-least-once: after a crash some events come twice, with the same id. The default with claim: single and rows.",
	"relay.batch":           "The most events, and bytes of events, that are read at once.",

	"relay.batch_bytes":                      "",
	"relay.poll_interval":                    "The sleep when nothing is due. While there is work there is none.",
	"relay.retry":                            "What happens to an event that Kafka refuses. An outage of Kafka uses up no attempts.",
	"relay.retry.backoff":                    "The wait grows from initial by factor up to max; jitter is the share of it that is random.",
	"relay.retry.backoff.initial":            "",
	"relay.retry.backoff.factor":             "",
	"relay.retry.backoff.max":                "",
	"relay.retry.backoff.jitter":             "",
	"relay.retry.schedule":                   "In place of backoff and max_attempts: the waits, then dead. For example [1m, 5m, 30m, 2h].",
	"relay.retry.max_attempts":               "The attempts after which an event is dead.",
	"relay.retry.on_dead":                    "hold: later events of its key wait until a person decides. skip: they go on.",
	"relay.retry.dead_letter_topic":          "A topic that gets a copy of each dead event. Empty: none.",
	"relay.claim_timeout":                    "claim: rows only: the age from which a claim counts as abandoned.",
	"relay.after_send":                       "mark: rows stay, marked as sent. delete: rows are deleted.",
	"relay.shutdown_timeout":                 "The longest that a relay takes to end after SIGTERM.",
	"relay.unknown_topic_grace":              "How long an event waits for its topic to be created before it is dead.",
	"relay.create_topics":                    "Create topics that do not exist. 0: never; -1: as the broker's defaults say.",
	"relay.create_topics.partitions":         "",
	"relay.create_topics.replication_factor": "",

	"http":        "",
	"http.listen": "Health, metrics and API; off switches them off. There is no authentication: keep it away from strangers.",
	"log":         "",
	"log.level":   "debug, info, warn, error",
	"log.format":  "json, text; auto is text on a terminal and json elsewhere.",
}

// Template returns a commented configuration file that starts from a preset: what must be set is
// set, to examples; every other key stands as a comment with its default. It loads as it is. An
// unknown preset is an error.
func Template(presetName string) (string, error) {
	p, ok := presets[presetName]
	if !ok {
		return "", fmt.Errorf("preset %s is not known; use %s", show(presetName), strings.Join(Presets(), ", "))
	}
	c := Default()
	c.Outbox.Preset = presetName
	p.apply(&c.Outbox)
	t := templateWriter{set: map[string]string{
		"database.url":            "postgres://app@localhost:5432/app",
		"kafka.bootstrap.servers": "localhost:9092",
		"outbox.preset":           presetName,
	}}
	if presetName == "article-mysql" {
		t.set["database.url"] = "mysql://app@localhost:3306/app"
	}
	c.Kafka = Properties{"bootstrap.servers": NewSecret("localhost:9092")}
	t.lines("# Postrider's configuration. A key that stands behind a # has the value shown there.\n" +
		"# Every key is also a variable, relay.poll_interval is POSTRIDER_RELAY_POLL_INTERVAL, and a flag:\n" +
		"# --set relay.poll_interval=1s. Flags win over variables, variables over this file.\n")
	t.mapping(tree(reflect.ValueOf(c), ""), "", 0)
	return t.b.String(), nil
}

// templateWriter writes a tree as a commented file.
type templateWriter struct {
	b   strings.Builder
	set map[string]string // keys that are set rather than commented out
}

func (t *templateWriter) lines(text string) { t.b.WriteString(text) }

func (t *templateWriter) mapping(p pairs, path string, depth int) {
	indent := strings.Repeat("  ", depth)
	for _, f := range p {
		at := join(path, f.key)
		if depth == 0 {
			t.lines("\n")
		}
		if doc := docs[at]; doc != "" {
			t.lines(indent + "# " + strings.ReplaceAll(doc, "\n", "\n"+indent+"# ") + "\n")
		}
		if below, ok := f.value.(pairs); ok {
			t.lines(indent + f.key + ":\n")
			t.mapping(below, at, depth+1)
			continue
		}
		if value, ok := t.set[at]; ok {
			t.lines(indent + f.key + ": " + quote(value) + "\n")
			continue
		}
		t.lines(indent + "#" + f.key + ": " + flow(f.value) + "\n")
	}
}
