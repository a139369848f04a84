package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
)

// load writes text to postrider.yaml and loads it; problems name the file as f.yaml.
func load(t *testing.T, text string, o config.Options) (*config.Loaded, string) {
	t.Helper()
	if text != "" {
		o.File = filepath.Join(t.TempDir(), "f.yaml")
		require.NoError(t, os.WriteFile(o.File, []byte(text), 0o600))
	}
	l, err := config.Load(o)
	if err == nil {
		return l, ""
	}
	require.Nil(t, l)
	if o.File == "" {
		return nil, err.Error()
	}
	return nil, strings.ReplaceAll(err.Error(), o.File, "f.yaml")
}

func TestLoad_FileProblems(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ yaml, want string }{
		"unknown key":                {"relay:\n  bacth: 5\n", "f.yaml:2:3: relay.bacth: unknown key; did you mean relay.batch?"},
		"key of another section":     {"batch: 5\n", "f.yaml:1:1: batch: unknown key; did you mean relay.batch?"},
		"key like nothing":           {"log:\n  zzzzzzzzz: 5\n", "f.yaml:2:3: log.zzzzzzzzz: unknown key; known here: level, format"},
		"key that may be a secret":   {"database:\n  \"s3cret/+\": 5\n", "f.yaml:2:3: database.?: unknown key; known here: url, user, password"},
		"key twice":                  {"log:\n  level: info\n  level: warn\n", "f.yaml:3:3: log.level: stands twice in this mapping; keep one"},
		"section twice":              {"log: {level: info}\nhttp: {}\nlog: {}\n", "f.yaml:3:1: log: stands twice in this mapping; keep one"},
		"not a number":               {"relay:\n  batch: many\n", `f.yaml:2:10: relay.batch: "many" is not a whole number; write for example 2000`},
		"a fraction of an event":     {"relay:\n  batch: 1.5\n", `f.yaml:2:10: relay.batch: "1.5" is not a whole number; write for example 2000`},
		"below the range":            {"relay:\n  batch: 0\n", "f.yaml:2:10: relay.batch: 0 is out of range; write 1 to 100000"},
		"above the range":            {"relay:\n  batch_bytes: 2GiB\n", "f.yaml:2:16: relay.batch_bytes: 2GiB is out of range; write 1KiB to 1GiB"},
		"size without sense":         {"relay:\n  batch_bytes: 8 parsecs\n", `f.yaml:2:16: relay.batch_bytes: "8 parsecs" is not a size; write for example 8MiB or 1MB`},
		"duration without unit":      {"relay:\n  poll_interval: 500\n", `f.yaml:2:18: relay.poll_interval: "500" has no unit; write for example 500ms, 500s or 500m`},
		"duration without sense":     {"relay:\n  poll_interval: soon\n", `f.yaml:2:18: relay.poll_interval: "soon" is not a duration; write for example 500ms, 30s or 1h30m`},
		"duration out of range":      {"relay:\n  claim_timeout: 10ms\n", "f.yaml:2:18: relay.claim_timeout: 10ms is out of range; write 1s to 24h"},
		"number that is none":        {"relay:\n  retry: {backoff: {jitter: .nan}}\n", `f.yaml:2:29: relay.retry.backoff.jitter: ".nan" is not a number; write for example 0.2`},
		"jitter out of range":        {"relay:\n  retry: {backoff: {jitter: 1.5}}\n", "f.yaml:2:29: relay.retry.backoff.jitter: 1.5 is out of range; write 0 to 1"},
		"mapping for a value":        {"relay:\n  batch: {a: 1}\n", "f.yaml:2:10: relay.batch: must be a single value, not a mapping"},
		"value for a mapping":        {"relay: fast\n", "f.yaml:1:8: relay: must be a mapping of keys, not a single value"},
		"list for a mapping":         {"relay:\n- fast\n", "f.yaml:2:1: relay: must be a mapping of keys, not a list"},
		"mapping for a list":         {"routes: {topic: x}\n", "f.yaml:1:9: routes: must be a list, not a mapping"},
		"properties that are none":   {"kafka: localhost:9092\n", "f.yaml:1:8: kafka: must be a mapping of Java property names, not a single value"},
		"nested property":            {"kafka:\n  bootstrap:\n    servers: x\n", "f.yaml:3:5: kafka.bootstrap: must be a single value, not a mapping; write property names whole, with dots: bootstrap.servers: …"},
		"a group without lanes":      {"kafka:\n  group.instance.id: a\nrelay:\n  claim: single\n", "f.yaml:2:22: kafka.group.instance.id: is about relays that share lanes, and relay.claim is single; write claim: lanes, or remove it"},
		"a session of the brokers'":  {"kafka:\n  group.protocol: CONSUMER\nrelay: {claim: lanes, session_timeout: 6s}\n", "f.yaml:3:40: relay.session_timeout: has no effect with kafka.group.protocol: consumer: the brokers decide (group.consumer.session.timeout.ms, 45s unless changed); remove it"},
		"unknown choice":             {"log: {level: wran}\n", `f.yaml:1:14: log.level: "wran" is not known; did you mean warn?`},
		"unknown choice, none near":  {"log: {format: xml}\n", `f.yaml:1:15: log.format: "xml" is not known; use auto, json or text`},
		"choice in another case":     {"log: {level: INFO}\n", `f.yaml:1:14: log.level: "INFO" is not known; did you mean info?`},
		"unknown preset":             {"outbox: {preset: article-mysqll}\n", `f.yaml:1:18: outbox.preset: "article-mysqll" is not known; did you mean article-mysql?`},
		"table with an empty part":   {"outbox: {table: billing.}\n", `f.yaml:1:17: outbox.table: table name "billing.": has an empty part`},
		"zone that is none":          {"outbox: {time_zone: Mars/Olympus}\n", `f.yaml:1:21: outbox.time_zone: "Mars/Olympus" is not a zone of the IANA database; write for example UTC or Asia/Shanghai`},
		"needed column":              {"outbox: {columns: {payload: -}}\n", "f.yaml:1:29: outbox.columns.payload: is needed; name the column that holds it"},
		"column that is no name":     {"outbox: {columns: {topic: 'a||b'}}\n", `f.yaml:1:27: outbox.columns.topic: is not a column name; write a name, "first|second", or "name?" for a column that may be missing`},
		"column written twice":       {"outbox: {columns: {sent_at: updated_at}}\n", "f.yaml:1:29: outbox.columns.sent_at: is the same column as outbox.columns.updated_at, and the relay writes to it; name another column, or - for none"},
		"state needed":               {"outbox: {states: {dead: }}\n", "f.yaml:1:19: outbox.states.dead: is needed for a table with a status column; write the table's word for it"},
		"state word twice":           {"outbox: {states: {dead: SENT}}\n", "f.yaml:1:25: outbox.states.dead: is the same word as outbox.states.sent; each state needs its own word; only failed may be that of new"},
		"failed is new without time": {"outbox: {states: {failed: NEW}, columns: {next_retry_at: -}}\n", "f.yaml:1:27: outbox.states.failed: is the same word as outbox.states.new, which only outbox.columns.next_retry_at can tell apart; name that column or another word"},
		"mark without status":        {"relay: {after_send: mark}\noutbox: {columns: {status: -}}\n", "f.yaml:1:21: relay.after_send: a table without a status column keeps no mark; write after_send: delete, or name outbox.columns.status"},
		"rows without sending":       {"relay: {claim: rows}\noutbox: {states: {sending: ~}}\n", "f.yaml:1:16: relay.claim: claim: rows needs outbox.states.sending; write the table's word for it, or claim: lanes"},
		"rows without status":        {"relay: {claim: rows, after_send: delete}\noutbox: {columns: {status: ~}}\n", "f.yaml:1:16: relay.claim: claim: rows needs a status column; write claim: lanes, or name outbox.columns.status"},
		"rows without a time":        {"relay: {claim: rows}\noutbox: {columns: {updated_at: -, next_retry_at: -}}\n", "f.yaml:1:16: relay.claim: claim: rows needs outbox.columns.updated_at or next_retry_at to tell abandoned claims; name one of them, or write claim: lanes"},
		"route without topic":        {"routes:\n- match: {event_type: A}\n", "f.yaml:2:3: routes[0]: has no topic; write topic: NAME beside match"},
		"route with a typo":          {"routes:\n- {topic: t, mach: {}}\n", "f.yaml:2:14: routes[0].mach: unknown key; did you mean routes[0].match?"},
		"route never reached":        {"routes:\n- topic: t\n- {topic: u, match: {event_type: A}}\n", "f.yaml:3:3: routes[1]: is never reached: routes[0] matches every event; move it up"},
		"same match twice":           {"routes:\n- {topic: t, match: {event_type: A}}\n- {topic: u, match: {event_type: A}}\n", "f.yaml:3:3: routes[1]: is never reached: routes[0] matches the same events; keep one"},
		"route that is empty":        {"routes: [~]\n", "f.yaml:1:10: routes[0]: is empty"},
		"negative partition":         {"routes:\n- {topic: t, partition: -1}\n", "f.yaml:2:25: routes[0].partition: cannot be negative; leave it out to let the key decide"},
		"partition no number":        {"routes:\n- {topic: t, partition: first}\n", `f.yaml:2:25: routes[0].partition: "first" is not a whole number`},
		"unknown variable":           {"topic: ${agregate_type}-events\n", "f.yaml:1:8: topic: unknown variable ${agregate_type}; did you mean ${aggregate_type}?"},
		"variable like nothing":      {"topic: a-${x}\n", "f.yaml:1:8: topic: unknown variable ${x}; use ${aggregate_type}, ${aggregate_id}, ${event_type}, ${message_key}"},
		"unclosed variable":          {"topic: ${event_type\n", "f.yaml:1:8: topic: template \"${event_type\": \"${\" is not closed by \"}\""},
		"letters no topic has":       {"topic: 'order events'\n", `f.yaml:1:8: topic: topic "order events" holds ' ', Kafka allows letters, digits, '.', '_' and '-'`},
		"variable without column":    {"topic: all\noutbox: {columns: {event_type: -}}\nroutes: [{topic: '${event_type}'}]\n", "f.yaml:3:18: routes[0].topic: uses ${event_type}, but the table has no such column; name outbox.columns.event_type or write the topic without it"},
		"schedule and backoff":       {"relay:\n  retry:\n    schedule: [1m, 5m]\n    backoff: {max: 1h}\n", "f.yaml:4:20: relay.retry.backoff.max: stands beside relay.retry.schedule, which takes the place of backoff; keep one of them"},
		"schedule and attempts":      {"relay:\n  retry: {schedule: [1m, 5m], max_attempts: 9}\n", "f.yaml:2:45: relay.retry.max_attempts: contradicts relay.retry.schedule: after its 2 waits an event is dead at attempt 3; leave it out"},
		"schedule with a bad wait":   {"relay:\n  retry: {schedule: [1m, 0s]}\n", "f.yaml:2:26: relay.retry.schedule[1]: 0s is out of range; write 1ms to 720h"},
		"backoff upside down":        {"relay:\n  retry: {backoff: {initial: 10m}}\n", "f.yaml:2:30: relay.retry.backoff.initial: initial 10m is longer than max 5m"},
		"backoff's max too short":    {"relay:\n  retry: {backoff: {max: 10ms}}\n", "f.yaml:2:26: relay.retry.backoff.max: initial 1s is longer than max 10ms"},
		"dead letters by template":   {"relay:\n  retry: {dead_letter_topic: 'dead-${event_type}'}\n", "f.yaml:2:30: relay.retry.dead_letter_topic: is one topic, not a template; write its name"},
		"half of create_topics":      {"relay:\n  create_topics: {partitions: 12}\n", "relay.create_topics.replication_factor: is not set, but the other number of relay.create_topics is; set both; -1 is the broker's default"},
		"create_topics out of range": {"relay:\n  create_topics: {partitions: -2, replication_factor: -1}\n", "f.yaml:2:31: relay.create_topics.partitions: -2 is out of range; write 1 to 10000, or -1 for the broker's default"},
		"address without port":       {"http: {listen: localhost}\n", `f.yaml:1:16: http.listen: "localhost" is not an address; write host:port, for example 127.0.0.1:8080 or :8080, or off`},
		"scheme of another database": {"database: {url: 'oracle://x'}\n", "f.yaml:1:17: database.url: has a scheme that is not known; use postgres, mysql, mariadb or sqlite"},
		"database in memory":         {"database: {url: 'sqlite::memory:'}\n", "f.yaml:1:17: database.url: is a database in memory, which nobody else can write to; write sqlite:file.db"},
		"SQLite without file":        {"database: {url: 'sqlite://'}\n", "f.yaml:1:17: database.url: names no file; write sqlite:file.db"},
		"key=value string":           {"database: {url: 'host=a password=b'}\n", "f.yaml:1:17: database.url: is not a URL; write postgres://user@host:5432/name, mysql://, mariadb:// or sqlite:file.db"},
		"password without user":      {"database: {url: 'postgres://h/db', password: x}\n", "f.yaml:1:46: database.password: has no user; set database.user, or put the user into database.url"},
		"user for SQLite":            {"database: {url: 'sqlite:a.db', user: x}\n", "f.yaml:1:38: database.user: SQLite has no users; leave it out"},

		"not YAML":             {"relay: {batch: 5\n", "f.yaml:1:8: is not valid YAML: could not find flow mapping end token '}'; quote a value that begins with a special character or holds \": \" or \" #\""},
		"tab":                  {"relay:\n\tbatch: 5\n", "f.yaml:2:1: is not valid YAML: found a tab where none may be; indent with spaces"},
		"Windows line ends":    {"log:\r\n  level: info\r\n  bad: x\r\n", "f.yaml:3:3: log.bad: unknown key; known here: level, format"},
		"byte order mark":      {"\ufefflgo: 1\n", "f.yaml:1:1: lgo: unknown key; did you mean log?"},
		"not UTF-8":            {"log:\n  level: \xff\n", "f.yaml:2:10: is not UTF-8 text; save the file as UTF-8"},
		"control character":    {"log: {level: \x00}\n", `f.yaml:1:14: holds the control character U+0000; write it as an escape in double quotes, e.g. "\x07"`},
		"two documents":        {"log: {}\n---\nlog: {}\n", "f.yaml:3:4: a second document begins here; keep one document a file"},
		"a list":               {"- a\n", "f.yaml:1:1: must hold a mapping of keys, not a list; see postrider config init"},
		"a tag":                {"log: {level: !!str info}\n", "f.yaml:1:14: log.level: has a YAML tag; write the plain value"},
		"a complex key":        {"? a\n: b\n", "f.yaml:1:1: has a key that is not a plain name"},
		"unknown anchor":       {"log: *nothing\n", "f.yaml:1:6: log: refers to an anchor that is not defined above"},
		"merge of a value":     {"log:\n  <<: text\n", "f.yaml:2:7: log: merges something that is not a mapping"},
		"deep flow":            {"log: " + strings.Repeat("[", 50_000), "f.yaml:1:26: is nested too deeply"},
		"deep block":           {strings.Repeat("- ", 50_000), "f.yaml:1:41: is nested too deeply"},
		"deep indentation":     {deep(30), "f.yaml:1:1: a: unknown key; known here: database, kafka, outbox, routes, topic, record, relay, http, log\nf.yaml:22:23: " + strings.Repeat("a.", 20) + "a: is nested too deeply"},
		"too large":            {"#" + strings.Repeat("x", 1<<20), "f.yaml:1:1: is larger than 256 KiB; is it the right file?"},
		"value far too long":   {"log: {level: " + strings.Repeat("x", 100) + "}\n", "f.yaml:1:14: log.level: the value is not known; use debug, info, warn or error"},
		"value with a URL":     {"log: {level: 'postgres://u:pw@h'}\n", "f.yaml:1:14: log.level: the value is not known; use debug, info, warn or error"},
		"relay.name too long":  {"relay: {name: " + strings.Repeat("x", 65) + "}\n", "f.yaml:1:15: relay.name: is longer than 64 bytes or holds control characters; give it a short plain name"},
		"outbox.name no topic": {"outbox: {name: 'a b'}\n", `f.yaml:1:16: outbox.name: names a control topic and topic "a b" holds ' ', Kafka allows letters, digits, '.', '_' and '-'`},
		"empty header name":    {"record: {headers: {deny: ['']}}\n", "f.yaml:1:27: record.headers.deny[0]: is empty; name a header"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := load(t, tt.yaml, config.Options{})
			require.Equal(t, tt.want, got)
		})
	}
}

func deep(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// TestLoad_NotYet holds that what the product names and this version lacks is refused, never passed
// over: above all delivery is never silently downgraded.
func TestLoad_NotYet(t *testing.T) {
	t.Parallel()
	for yaml, key := range map[string]string{
		"relay: {source: tail}":                     "relay.source",
		"relay: {after_send: leave}":                "relay.after_send",
		"record: {profile: debezium}":               "record.profile",
		"record: {profile: cloudevents-binary}":     "record.profile",
		"record: {profile: cloudevents-structured}": "record.profile",
		"outbox: {preset: debezium}":                "outbox.preset",
		"retention: {sent: 24h}":                    "retention",
		"tracing: {endpoint: x}":                    "tracing",
		"http: {auth: {}}":                          "http.auth",
	} {
		_, got := load(t, yaml, config.Options{})
		require.Contains(t, got, key+": this version does not have ", yaml)
		require.Contains(t, got, "; ", yaml+": says what to do instead")
		require.NotContains(t, got, "\n", yaml)
	}
	_, got := load(t, "", config.Options{Environ: []string{"POSTRIDER_RETENTION_SENT=24h"},
		Flags: []config.Flag{{Name: "--set http.auth", Key: "http.auth", Value: "x"}}})
	require.Equal(t, "POSTRIDER_RETENTION_SENT: retention: this version does not have it; unset it: leave it out and delete old rows yourself\n"+
		"--set http.auth: this version does not have it; leave it out and keep http.listen on 127.0.0.1 or behind a proxy that asks who it is", got)
}

// TestLoad_AllAtOnce holds that problems of every source come together, in the order of reading.
func TestLoad_AllAtOnce(t *testing.T) {
	t.Parallel()
	_, got := load(t, "relay:\n  batch: 0\n  bacth: 1\nlog: {level: loud}\n", config.Options{
		Environ: []string{"POSTRIDER_RELAY_POLL_INTERVAL=5", "POSTRIDER_RELAY_POLLINTERVAL=5s"},
		Flags:   []config.Flag{{Name: "--set relay.x", Key: "relay.x", Value: "1"}, {Name: "--set topic", Key: "topic", Value: "a b"}},
		Require: []string{"database.url", "kafka.bootstrap.servers"},
	})
	require.Equal(t, []string{
		"f.yaml:2:10: relay.batch: 0 is out of range; write 1 to 100000",
		"f.yaml:3:3: relay.bacth: unknown key; did you mean relay.batch?",
		`f.yaml:4:14: log.level: "loud" is not known; use debug, info, warn or error`,
		"POSTRIDER_RELAY_POLLINTERVAL: unknown variable; did you mean POSTRIDER_RELAY_POLL_INTERVAL?",
		`POSTRIDER_RELAY_POLL_INTERVAL: relay.poll_interval: "5" has no unit; write for example 5ms, 5s or 5m`,
		"--set relay.x: unknown key; `postrider config init` lists the keys",
		`--set topic: topic "a b" holds ' ', Kafka allows letters, digits, '.', '_' and '-'`,
		"database.url: is not set; set it in the file, as POSTRIDER_DATABASE_URL or with --set database.url=…",
		"kafka.bootstrap.servers: is not set; set it in the file, as POSTRIDER_KAFKA_BOOTSTRAP_SERVERS or with --set kafka.bootstrap.servers=…",
	}, strings.Split(got, "\n"))
}

func TestLoad_Precedence(t *testing.T) {
	t.Parallel()
	o := config.Options{
		Environ: []string{"POSTRIDER_RELAY_BATCH=20", "POSTRIDER_RELAY={batch: 10, batch_bytes: 1MB}", "POSTRIDER_LOG_LEVEL=", "POSTRIDER_RELAY_NAME=variable"},
		Flags:   []config.Flag{{Name: "--set relay.name", Key: "relay.name", Value: "first"}, {Name: "--set relay.name", Key: "relay.name", Value: "flag"}},
	}
	l, problems := load(t, "relay:\n  name: file\n  batch: 5\n  batch_bytes: 2MB\n  poll_interval: 2s\nlog: {level: warn}\n", o)
	require.Empty(t, problems)
	require.Equal(t, "flag", l.Relay.Name, "a flag wins, the later of two")
	require.Equal(t, 20, l.Relay.Batch, "a variable beats the file, one for a key beats one for its section")
	require.Equal(t, config.Size(1e6), l.Relay.BatchBytes)
	require.Equal(t, 2*time.Second, l.Relay.PollInterval)
	require.Equal(t, "warn", l.Log.Level, "an empty variable is none")
	require.Equal(t, "--set relay.name", l.Origin("relay.name").String())
	require.Equal(t, "POSTRIDER_RELAY_BATCH", l.Origin("relay.batch").String())
	require.Equal(t, "POSTRIDER_RELAY", l.Origin("relay.batch_bytes").String())
	require.True(t, strings.HasSuffix(l.Origin("relay.poll_interval").String(), "f.yaml:5:18"))
	require.Equal(t, "default", l.Origin("relay.claim").String())
}

func TestLoad_Empty(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "relay:\noutbox:\n  preset:\n", "{}\n"} {
		l, problems := load(t, text, config.Options{Hostname: "host"})
		require.Empty(t, problems, text)
		want := config.Default()
		want.Relay.Name = "host"
		require.Equal(t, want, l.Config, text)
	}
}

func TestLoad_Lists(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}
	for _, o := range []config.Options{
		{Environ: []string{"POSTRIDER_RELAY_RETRY_SCHEDULE=1m, 5m,30m,2h"}},
		{Environ: []string{"POSTRIDER_RELAY_RETRY_SCHEDULE=[1m, 5m, 30m, 2h]"}},
		{Environ: []string{`POSTRIDER_RELAY_RETRY={"schedule": ["1m","5m","30m","2h"]}`}},
		{Flags: []config.Flag{{Name: "--set relay.retry.schedule", Key: "relay.retry.schedule", Value: "1m,5m,30m,2h"}}},
	} {
		l, problems := load(t, "", o)
		require.Empty(t, problems)
		require.Equal(t, want, l.Relay.Retry.Schedule)
		require.Equal(t, 5, l.Relay.Retry.MaxAttempts, "dead after the last wait")
	}
}

func TestLoad_Anchors(t *testing.T) {
	t.Parallel()
	l, problems := load(t, "routes:\n- &a {topic: t, match: {event_type: A}}\n- {<<: *a, match: {event_type: B}}\n- {<<: [*a], match: &m {aggregate_type: C}}\n", config.Options{})
	require.Empty(t, problems)
	require.Equal(t, []config.Route{
		{Topic: "t", Match: config.Match{EventType: "A"}},
		{Topic: "t", Match: config.Match{EventType: "B"}},
		{Topic: "t", Match: config.Match{AggregateType: "C"}},
	}, l.Routes)
	_, problems = load(t, "log: {level: &l info, format: *l}\n", config.Options{})
	require.Equal(t, `f.yaml:1:17: log.format: "info" is not known; use auto, json or text`, problems)
}

func TestLoad_NoFile(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Options{File: filepath.Join(t.TempDir(), "none.yaml")})
	setup := relay.AsSetup(err)
	require.NotNil(t, setup)
	require.Equal(t, relay.SetupNotFound, setup.Kind)
	require.Contains(t, setup.Error(), "none.yaml: does not exist; make one with: postrider config init")

	_, err = config.Load(config.Options{File: t.TempDir()})
	require.ErrorContains(t, err, "cannot be read")

	l, err := config.Load(config.Options{File: "-", Stdin: strings.NewReader("log: {level: debug}")})
	require.NoError(t, err)
	require.Equal(t, "stdin:1:14", l.Origin("log.level").String())
	_, err = config.Load(config.Options{File: "-"})
	require.NoError(t, err)
}

func TestLoad_CheckKafka(t *testing.T) {
	t.Parallel()
	var given map[string]string
	judge := func(p map[string]string) error {
		given = p
		return errors.Join(
			&relay.SetupError{Thing: "kafka.linger.sm", Reason: "is not a property", Fix: "did you mean linger.ms?"},
			errors.Join(errors.New("two and"), &relay.SetupError{Thing: "kafka.acks", Reason: "must be all"}),
			&relay.SetupError{Thing: "kafka.sasl.mechanism", Reason: "is missing"},
			&relay.SetupError{Thing: "kafka.bootstrap.servers", Reason: "is missing"})
	}
	_, got := load(t, "kafka:\n  client.rack: [a, b]\n  linger.sm: 5\n  client.id:\n", config.Options{
		CheckKafka: judge, Environ: []string{"POSTRIDER_KAFKA_ACKS=1"},
	})
	require.Equal(t, map[string]string{"client.rack": "a,b", "linger.sm": "5", "acks": "1"}, given)
	require.Equal(t, "f.yaml:2:3: kafka: two and\n"+
		"f.yaml:3:14: kafka.linger.sm: is not a property; did you mean linger.ms?\n"+
		"POSTRIDER_KAFKA_ACKS: kafka.acks: must be all\n"+
		"kafka.sasl.mechanism: is missing", got)

	given = nil
	_, got = load(t, "relay: {batch: 5}\n", config.Options{CheckKafka: judge})
	require.Empty(t, got)
	require.Nil(t, given, "nothing to judge")
}
