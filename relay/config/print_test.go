package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "go test -update writes it")
	require.Equal(t, string(want), text)
}

// full sets something of every kind from every source.
func full(t *testing.T) *config.Loaded {
	t.Helper()
	text, err := os.ReadFile("testdata/full.yaml")
	require.NoError(t, err)
	l, problems := load(t, string(text), config.Options{
		Hostname: "host-1",
		Environ: []string{
			"POSTRIDER_DATABASE_PASSWORD=h1dd3n", "POSTRIDER_KAFKA_SASL_JAAS_CONFIG=org.apache.PlainLoginModule required username=\"u\" password=\"h1dd3n\";",
			"POSTRIDER_KAFKA_SSL_KEYSTORE_KEY_FILE=" + secretFile(t, "h1dd3n"), "POSTRIDER_RELAY_BATCH=500",
		},
		Flags: []config.Flag{{Name: "--bootstrap-servers", Key: "kafka.bootstrap.servers", Value: "a:9092,b:9092"}},
	})
	require.Empty(t, problems)
	return l
}

func TestLoaded_Golden(t *testing.T) {
	t.Parallel()
	l := full(t)
	temp := regexp.MustCompile(`/\S+/f\.yaml`)
	golden(t, "full.print.yaml", l.YAML(false))
	golden(t, "full.origin.yaml", temp.ReplaceAllString(l.YAML(true), "f.yaml"))
	text, err := json.MarshalIndent(l.JSON(), "", "  ")
	require.NoError(t, err)
	golden(t, "full.print.json", string(text)+"\n")
	var b strings.Builder
	for _, e := range l.Entries() {
		b.WriteString(e.Key + " = " + e.Value + "\n")
	}
	golden(t, "full.entries.txt", b.String())
	for _, name := range []string{"full.print.yaml", "full.origin.yaml", "full.print.json", "full.entries.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "h1dd3n", name)
	}
}

// TestLoaded_YAMLLoads holds that what is printed, but for secrets, is a file that says the same.
func TestLoaded_YAMLLoads(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"defaults":         "{}",
		"article-mysql":    "outbox: {preset: article-mysql}",
		"article-postgres": "outbox: {preset: article-postgres, columns: {topic: -}}",
		"own words": `{outbox: {table: '"My Schema"."a.b"', columns: {id: "0x10", topic: "yes", sent_at: ~}, states: {new: "0", sending: "1", sent: "2", failed: "~", dead: " x"}},
			routes: [{match: {event_type: "a: b # c"}, topic: t, partition: 0}, {topic: "${event_type}", key: "{}"}],
			record: {headers: {deny: ["a,b", "null"]}}, relay: {retry: {schedule: [1m, 90s]}, batch_bytes: 1000000}}`,
		"control characters": `{outbox: {states: {new: "a\tb\u00a0\u2028'\"\\"}}}`,
	} {
		l, problems := load(t, yaml, config.Options{Hostname: "h"})
		require.Empty(t, problems, name)
		printed := l.YAML(false)
		again, problems := load(t, printed, config.Options{})
		require.Empty(t, problems, "%s\n%s", name, printed)
		if len(l.Relay.Retry.Schedule) > 0 { // printed as []
			require.Equal(t, l.Relay.Retry.MaxAttempts, again.Relay.Retry.MaxAttempts)
		}
		normal := func(c config.Config) config.Config {
			if len(c.Routes) == 0 {
				c.Routes = nil
			}
			if len(c.Record.Headers.Deny) == 0 {
				c.Record.Headers.Deny = nil
			}
			if len(c.Relay.Retry.Schedule) == 0 {
				c.Relay.Retry.Schedule = nil
			}
			if len(c.Kafka) == 0 {
				c.Kafka = nil
			}
			return c
		}
		require.Equal(t, normal(l.Config), normal(again.Config), "%s\n%s", name, printed)
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, preset := range config.Presets() {
		text, err := config.Template(preset)
		require.NoError(t, err)
		golden(t, "init."+preset+".yaml", text)

		need := []string{"database.url", "kafka.bootstrap.servers"}
		l, problems := load(t, text, config.Options{Require: need})
		require.Empty(t, problems, "it loads as it is")

		every := regexp.MustCompile(`(?m)^( *)#(\w)`).ReplaceAllString(text, "$1$2")
		all, problems := load(t, every, config.Options{Require: need})
		require.Empty(t, problems, "it loads with every key in force\n%s", every)
		require.Equal(t, l.YAML(false), all.YAML(false), "what stands in comments are the defaults")
		for _, e := range all.Entries() {
			require.Contains(t, e.Origin.String(), "f.yaml:", "%s has a line of its own", e.Key)
		}
	}
	_, err := config.Template("nothing")
	require.ErrorContains(t, err, `preset "nothing" is not known; use article-mysql, article-postgres, postrider`)
}

func TestConfig_Table(t *testing.T) {
	t.Parallel()
	table := func(yaml string) relay.Table {
		l, problems := load(t, yaml, config.Options{})
		require.Empty(t, problems)
		return l.Table()
	}
	own := table("{}")
	require.Equal(t, "outbox_events", own.Name)
	require.True(t, own.Own)
	require.Equal(t, "mark", own.AfterSend)
	require.Equal(t, "kafka_offset", own.Columns.KafkaOffset)
	require.True(t, table("outbox: {table: billing.events}").Own, "the own layout under another name")
	require.False(t, table("outbox: {columns: {topic: destination}}").Own)
	require.False(t, table("outbox: {states: {sent: DONE}}").Own)
	require.Equal(t, "delete", table("relay: {after_send: delete}").AfterSend)

	mysql := table("outbox: {preset: article-mysql, time_zone: Asia/Shanghai, columns: {sent_at: published_at, headers: -}, states: {dead: GIVEN_UP}}")
	require.False(t, mysql.Own)
	require.Equal(t, "outbox_event", mysql.Name)
	require.Equal(t, "next_retry_at|next_retry_time", mysql.Columns.NextRetryAt)
	require.Equal(t, "published_at", mysql.Columns.SentAt)
	require.Empty(t, mysql.Columns.Headers)
	require.Equal(t, "Asia/Shanghai", mysql.TimeZone)
	require.Equal(t, relay.States{New: "PENDING", Sending: "PROCESSING", Sent: "SENT", Failed: "PENDING", Dead: "GIVEN_UP"}, mysql.States)

	postgres := table("outbox: {preset: article-postgres}")
	require.Equal(t, "outbox_events", postgres.Name)
	require.False(t, postgres.Own)
	require.Equal(t, "updated_at?", postgres.Columns.UpdatedAt)
	require.Equal(t, relay.States{New: "NEW", Sending: "SENDING", Sent: "SENT", Failed: "FAILED", Dead: "DEAD"}, postgres.States)
}

func TestConfig_RouterAndBackoff(t *testing.T) {
	t.Parallel()
	l, problems := load(t, "routes:\n- {match: {aggregate_type: Order}, topic: 'o-${event_type}', key: '${aggregate_id}', partition: 3}\n- {match: {event_type: X}, topic: x}\ntopic: rest\n"+
		"relay: {retry: {backoff: {jitter: 0, initial: 2s}, max_attempts: 3}}\n", config.Options{})
	require.Empty(t, problems)
	r := l.Router()
	d, failure := r.Route(&relay.Event{AggregateType: "Order", AggregateID: "7", Type: "Made"})
	require.Nil(t, failure)
	require.Equal(t, "o-Made", d.Topic)
	require.Equal(t, "7", *d.Key)
	require.Equal(t, int32(3), *d.Partition)
	key := "k"
	d, _ = r.Route(&relay.Event{Type: "X", Key: &key})
	require.Equal(t, "x", d.Topic)
	require.Equal(t, "k", *d.Key)
	d, _ = r.Route(&relay.Event{})
	require.Equal(t, "rest", d.Topic)

	wait, again := l.Backoff().Next(2, 1)
	require.True(t, again)
	require.Equal(t, "4s", wait.String(), "jitter 0 is none")
	_, again = l.Backoff().Next(3, 0)
	require.False(t, again)
}
