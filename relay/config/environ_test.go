package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/config"
)

func secretFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

func TestLoad_EnvironProblems(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"POSTRIDER_RELAY_BACTH=5":                               "POSTRIDER_RELAY_BACTH: unknown variable; did you mean POSTRIDER_RELAY_BATCH?",
		"POSTRIDER_RELY_BATCH=5":                                "POSTRIDER_RELY_BATCH: unknown variable; did you mean POSTRIDER_RELAY_BATCH?",
		"POSTRIDER_HTTP_PORT=9090":                              "POSTRIDER_HTTP_PORT: unknown variable; `postrider config init` lists the keys; a key's variable is POSTRIDER_ and its path in capitals with underscores",
		"POSTRIDER_RELAY_BATCH=x":                               `POSTRIDER_RELAY_BATCH: relay.batch: "x" is not a whole number; write for example 2000`,
		"POSTRIDER_RELAY=fast":                                  "POSTRIDER_RELAY: relay: must be a mapping of keys, not a single value",
		"POSTRIDER_RELAY={batch: [}":                            "POSTRIDER_RELAY: relay: is not valid YAML: could not find '{' character corresponding to '}'; quote a value that begins with a special character or holds \": \" or \" #\"",
		"POSTRIDER_RELAY={bacth: 1}":                            "POSTRIDER_RELAY: relay.bacth: unknown key; did you mean relay.batch?",
		"POSTRIDER_ROUTES=[{topic: 'a b'}]":                     `POSTRIDER_ROUTES: routes[0].topic: topic "a b" holds ' ', Kafka allows letters, digits, '.', '_' and '-'`,
		"POSTRIDER_RELAY_BATCH_FILE=/x":                         "POSTRIDER_RELAY_BATCH_FILE: relay.batch: only secrets are read from files; set POSTRIDER_RELAY_BATCH",
		"POSTRIDER_DATABASE_URL_FILE=/none/such":                "POSTRIDER_DATABASE_URL_FILE: database.url: the file that it names does not exist",
		"POSTRIDER_KAFKA_SASL_JAAS_CONFIG_FILE=" + os.TempDir(): "POSTRIDER_KAFKA_SASL_JAAS_CONFIG_FILE: kafka.sasl.jaas.config: the file that it names cannot be read",
		"POSTRIDER_KAFKA=localhost:9092":                        "POSTRIDER_KAFKA: kafka: must be a mapping of Java property names, not a single value",
	} {
		_, got := load(t, "", config.Options{Environ: []string{variable}})
		require.Equal(t, want, got, variable)
	}
}

// TestLoad_EnvironForeign holds that variables which Kubernetes makes up for a Service of our name,
// and those of tests, are none of the configuration's.
func TestLoad_EnvironForeign(t *testing.T) {
	t.Parallel()
	l, problems := load(t, "", config.Options{Environ: []string{
		"POSTRIDER_SERVICE_HOST=10.0.0.1", "POSTRIDER_SERVICE_PORT=8080", "POSTRIDER_SERVICE_PORT_HTTP=8080",
		"POSTRIDER_PORT=tcp://10.0.0.1:8080", "POSTRIDER_PORT_8080_TCP=tcp://10.0.0.1:8080",
		"POSTRIDER_PORT_8080_TCP_PROTO=tcp", "POSTRIDER_PORT_8080_TCP_PORT=8080", "POSTRIDER_PORT_8080_TCP_ADDR=10.0.0.1",
		"POSTRIDER_KAFKA_SERVICE_HOST=10.0.0.2", "POSTRIDER_KAFKA_PORT=tcp://10.0.0.2:9092", "POSTRIDER_KAFKA_PORT_9092_TCP_ADDR=10.0.0.2",
		"POSTRIDER_RELAY_SERVICE_PORT_METRICS=8080", "POSTRIDER_HTTP_PORT=tcp://10.0.0.3:80",
		"POSTRIDER_TEST_POSTGRES=postgres://x", "POSTRIDER_DEV_DIR=/x", "POSTRIDER_CONFIG=/etc/x", "OTHER_RELAY_BATCH=5",
		"POSTRIDER_RELAY_BATCH=",
	}})
	require.Empty(t, problems)
	require.Equal(t, config.Default(), l.Config)
	require.Empty(t, l.Notices)

	l, problems = load(t, "", config.Options{Environ: []string{"POSTRIDER_SOMETHING_ELSE=1"}})
	require.Empty(t, problems)
	require.Equal(t, []string{"POSTRIDER_SOMETHING_ELSE: not a setting, ignored"}, l.Notices)
}

func TestLoad_EnvironKafka(t *testing.T) {
	t.Parallel()
	l, problems := load(t, "kafka: {client.id: file, acks: all}\n", config.Options{Environ: []string{
		"POSTRIDER_KAFKA_CLIENT_ID=variable", "POSTRIDER_KAFKA_BOOTSTRAP_SERVERS=a:1,b:2",
		"POSTRIDER_KAFKA={linger.ms: 5}", "POSTRIDER_KAFKA_SASL_JAAS_CONFIG_FILE=" + secretFile(t, "a b;\n"),
	}})
	require.Empty(t, problems)
	require.Equal(t, map[string]string{
		"client.id": "variable", "acks": "all", "bootstrap.servers": "a:1,b:2", "linger.ms": "5", "sasl.jaas.config": "a b;",
	}, l.Kafka.Reveal())
}

func TestLoad_SecretFiles(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"pw": "pw", "pw\n": "pw", "pw\r\n": "pw", " pw \n\n": " pw \n", "p\x00w": "p\x00w",
	} {
		l, problems := load(t, "database: {url: 'postgres://u@h/db'}\n", config.Options{
			Environ: []string{"POSTRIDER_DATABASE_PASSWORD_FILE=" + secretFile(t, content)}})
		require.Empty(t, problems)
		require.Equal(t, want, l.Database.Password.Reveal())
		require.Equal(t, "POSTRIDER_DATABASE_PASSWORD_FILE", l.Origin("database.password").String())
	}
	for content, reason := range map[string]string{
		"":                           "is empty",
		"\n":                         "is empty",
		strings.Repeat("x", 300<<10): "is larger than 256 KiB",
	} {
		_, got := load(t, "", config.Options{Environ: []string{"POSTRIDER_DATABASE_URL_FILE=" + secretFile(t, content)}, Require: []string{"database.url"}})
		require.Contains(t, got, "POSTRIDER_DATABASE_URL_FILE: database.url: the file that it names "+reason)
	}
	_, got := load(t, "", config.Options{Environ: []string{"POSTRIDER_DATABASE_URL_FILE=/x", "POSTRIDER_DATABASE_URL=postgres://h"}})
	require.Equal(t, "POSTRIDER_DATABASE_URL_FILE: database.url: stands beside POSTRIDER_DATABASE_URL; set one of them", got)
	_, got = load(t, "", config.Options{Environ: []string{"POSTRIDER_KAFKA_SASL_PASSWORD_FILE=/x", "POSTRIDER_KAFKA_SASL_PASSWORD=y"}})
	require.Equal(t, "POSTRIDER_KAFKA_SASL_PASSWORD_FILE: kafka.sasl.password: stands beside POSTRIDER_KAFKA_SASL_PASSWORD; set one of them", got)
}
