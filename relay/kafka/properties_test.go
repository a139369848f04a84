package kafka

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reasons joins problems as config shows them.
func reasons(problems []Problem) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

func TestParse_AppliesJavaNames(t *testing.T) {
	t.Parallel()
	cfg, problems, notices := Parse(map[string]string{
		"bootstrap.servers":                     "PLAINTEXT://a:9092, b:9093 ,[::1]:9094",
		"client.id":                             "orders-relay",
		"acks":                                  "-1",
		"enable.idempotence":                    "TRUE",
		"max.in.flight.requests.per.connection": "5",
		"max.request.size":                      "2000000",
		"buffer.memory":                         "67108864",
		"compression.type":                      "ZSTD",
		"compression.zstd.level":                "7",
		"request.timeout.ms":                    "15000",
		"socket.connection.setup.timeout.ms":    "3000",
		"retry.backoff.ms":                      "50",
		"retry.backoff.max.ms":                  "500",
		"metadata.max.age.ms":                   "60000",
		"connections.max.idle.ms":               "60000",
		"send.buffer.bytes":                     "131072",
		"receive.buffer.bytes":                  "-1",
		"enable.metrics.push":                   "true",
	})
	require.Empty(t, problems)
	require.Empty(t, notices)
	require.Equal(t, []string{"a:9092", "b:9093", "[::1]:9094"}, cfg.Seeds)
	require.Equal(t, "orders-relay", cfg.ClientID)
	require.Equal(t, 2000000, cfg.MaxRequestSize)
	require.EqualValues(t, 64<<20, cfg.BufferMemory)
	require.Equal(t, "zstd", cfg.Compression)
	require.Equal(t, 7, cfg.levels["zstd"])
	require.Equal(t, 15*time.Second, cfg.requestTimeout)
	require.Equal(t, 3*time.Second, cfg.dialTimeout)
	require.Equal(t, 500*time.Millisecond, cfg.retryBackoffMax)
	require.Equal(t, 131072, cfg.sendBuffer)
	require.Zero(t, cfg.receiveBuffer)
	require.True(t, cfg.telemetry)
	open(t, cfg, Options{})
}

func TestParse_DefaultsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	bare := parsed(t, properties("a:1"))
	said := properties("a:1")
	for _, p := range Properties() {
		if p.Kind == Applied && p.Default != "" && p.Name != "sasl.oauthbearer.header.urlencode" {
			said[p.Name] = p.Default
		}
	}
	spelled := parsed(t, said)
	spelled.levels = nil
	spelled.tls.least, spelled.tls.most = 0, 0
	require.Equal(t, bare, spelled)
}

func TestParse_ReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, problems, _ := Parse(map[string]string{
		"acks":                                  "1",
		"acsk":                                  "all",
		"batch.sise":                            "1",
		"enable.idempotence":                    "false",
		"lingerMs":                              "5",
		"group.id":                              "g",
		"transactional.id":                      "x",
		"request.timeout.ms":                    "soon",
		"max.request.size":                      "5",
		"compression.type":                      "rar",
		"zzz.completely.new":                    "1",
		"bootstrap.servers":                     "broker, other:99999, :1",
		"ssl.keystore.type":                     "JKS",
		"max.in.flight.requests.per.connection": "6",
	})
	text := reasons(problems)
	for _, want := range []string{
		"acks: only all or -1 is allowed: a record that only some replicas have can be lost with their leader",
		"acsk: is not a Kafka client property; did you mean acks?",
		"batch.sise: is not a Kafka client property; did you mean batch.size?",
		"enable.idempotence: only true is allowed: without it a resent batch is written twice",
		"lingerMs: is not a Kafka client property; did you mean linger.ms?",
		"group.id: is a consumer's setting, and the relay only produces; remove it",
		"transactional.id: the relay names its producers itself",
		`request.timeout.ms: "soon" is not a whole number`,
		"max.request.size: 5 is not between 1024 and",
		`compression.type: "rar" is not one of none, gzip, snappy, lz4, zstd`,
		"zzz.completely.new: is not a Kafka client property; remove it",
		`bootstrap.servers: "broker", "other:99999", ":1": not host:port`,
		`ssl.keystore.type: "JKS" stores cannot be read here, only PEM; convert it: keytool -importkeystore`,
		"max.in.flight.requests.per.connection: 6 is not between 1 and 5",
	} {
		require.Contains(t, text, want)
	}
	require.Len(t, problems, 14)
	require.IsIncreasing(t, names(problems))

	_, problems, _ = Parse(nil)
	require.Equal(t, "bootstrap.servers: is missing; name at least one broker, as host:port", reasons(problems))
}

func names(problems []Problem) []string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.Property
	}
	return out
}

func TestParse_NoticesWhatHasNoEffect(t *testing.T) {
	t.Parallel()
	_, problems, notices := Parse(properties("a:1", "linger.ms", "5", "retries", "0", "delivery.timeout.ms", "1",
		"ssl.truststore.location", "/nowhere", "sasl.password", "p", "key.serializer", "org.apache.kafka.common.serialization.StringSerializer"))
	require.Empty(t, problems, "settings without effect may be anything")
	text := ""
	for _, n := range notices {
		require.Contains(t, n.Text, "has no effect")
		text += n.String() + "\n"
	}
	require.Contains(t, text, "linger.ms: has no effect: the relay hands over whole batches")
	require.Contains(t, text, "ssl.truststore.location: has no effect: security.protocol is PLAINTEXT, without TLS")
	require.Contains(t, text, "sasl.password: has no effect: security.protocol is PLAINTEXT, without SASL")
	require.Len(t, notices, 6)
}

// The Java client's own list of names: each is applied, accepted with a reason, or refused with one.
func TestProperties_KnowEveryNameOfTheJavaClients(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("testdata/java-client-4.3.1-properties.txt")
	require.NoError(t, err)
	for name := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(name, "internal.") {
			continue
		}
		p, known := propertiesByName[name]
		require.True(t, known, name)
		require.NotEmpty(t, p.Doc, name)
		require.Equal(t, p.Kind == Applied, p.set != nil, name)
		require.Equal(t, p.Kind == Refused, p.fix != "", name)
	}
	require.Len(t, Properties(), len(propertiesByName))
}

func TestProperties_SecretsAreKnown(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sasl.jaas.config", "sasl.password", "ssl.keystore.key", "ssl.key.password", "ssl.keystore.password",
		"ssl.truststore.password", "sasl.oauthbearer.token", "sasl.oauthbearer.client.credentials.client.secret", "sasl.passwrod"} {
		require.True(t, IsSecret(name), name)
	}
	require.False(t, IsSecret("client.id"))
	for _, p := range Properties() {
		if strings.Contains(p.Name, "password") || strings.HasSuffix(p.Name, ".secret") || strings.HasSuffix(p.Name, "passphrase") {
			require.True(t, p.Secret, p.Name)
		}
	}
}

// F01: a password with every kind of special character arrives as it is, and is shown nowhere, whatever
// is broken around it.
func TestCase_F01_SecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	const password = ` p#G>P@/%7x:"\; `
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(password)
	good := []map[string]string{
		properties("a:1", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "SCRAM-SHA-512", "sasl.username", "app", "sasl.password", password),
		properties("a:1", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config",
			`org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="`+escaped+`";`),
	}
	for _, props := range good {
		cfg := parsed(t, props)
		require.Equal(t, password, cfg.sasl.password.Reveal())
		shown := ""
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown += fmt.Sprintf(verb, cfg) + fmt.Sprintf(verb, cfg.sasl.password)
		}
		asJSON, err := json.Marshal(cfg)
		require.NoError(t, err)
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", cfg, "secret", cfg.sasl.password)
		for _, text := range []string{shown, string(asJSON), log.String()} {
			require.NotContains(t, text, "p#G>P")
		}
		require.NotContains(t, shown, fmt.Sprintf("%x", password))
	}
	for _, jaas := range []string{
		`PlainLoginModule required username="app" password="` + password, // the quote stays open
		`PlainLoginModule required password "` + escaped + `";`,
		`"` + escaped + `"`,
		`org.x.PlainLoginModule sometimes password="` + escaped + `";`,
		`org.x.OtherModule required username="app" password="` + escaped + `";`,
		escaped,
	} {
		_, problems, notices := Parse(properties("a:1", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config", jaas))
		require.NotEmpty(t, problems, jaas)
		require.NotContains(t, reasons(problems)+fmt.Sprint(notices), "p#G>P")
	}
}

func TestSecret_EmptyShowsNothing(t *testing.T) {
	t.Parallel()
	require.Equal(t, "", fmt.Sprint(Secret{}))
	require.True(t, Secret{}.Empty())
	require.Equal(t, "", Secret{}.Reveal())
	s := NewSecret("x")
	text, err := s.MarshalText()
	require.NoError(t, err)
	require.Equal(t, redacted+redacted+redacted, fmt.Sprintf("%s%#v%s", s, s, text))
}

func TestReadJAAS_AsJavaDoes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]saslSettings{
		`org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password='b c' tokenauth=true;`:                {username: "a", password: NewSecret("b c"), tokenAuth: true},
		"org.apache.kafka.common.security.plain.PlainLoginModule  required\n  username=plain\n  password = \"a\\\"b\\\\c\\101\\n\" ;": {username: "plain", password: NewSecret("a\"b\\cA\n")},
		`x.OAuthBearerLoginModule REQUIRED clientId="id" clientSecret="s" scope="all" extension_pool="p";`:                            {clientID: "id", clientSecret: NewSecret("s"), scope: "all", extensions: map[string]string{"pool": "p"}},
		`x.OAuthBearerLoginModule required;`:       {},
		`x.PlainLoginModule required username="";`: {},
	} {
		var got saslSettings
		require.NoError(t, got.readJAAS(line), line)
		want.module = got.module
		require.Equal(t, want, got, line)
	}
}

func FuzzReadJAAS(f *testing.F) {
	f.Add(`a.PlainLoginModule required username="u" password="p\"\\\101";`)
	f.Add(`a required x=`)
	f.Add("\"\\")
	f.Fuzz(func(t *testing.T, line string) {
		var s saslSettings
		if err := s.readJAAS(line); err == nil && s.module == "" && !strings.Contains(line, `""`) && !strings.Contains(line, `''`) {
			t.Errorf("accepted without a module: %q", line)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("bootstrap.servers", "a:1")
	f.Add("sasl.jaas.config", `x required a="b`)
	f.Add("ssl.enabled.protocols", "TLSv1.3,")
	f.Fuzz(func(t *testing.T, name, value string) {
		if strings.HasSuffix(name, "location") || strings.HasSuffix(name, "url") {
			return // no files, please
		}
		cfg, problems, _ := Parse(map[string]string{name: value, "bootstrap.servers": "a:1"})
		if len(problems) > 0 {
			return
		}
		s, err := NewSink(cfg, Options{})
		if err != nil {
			t.Fatalf("%s=%q is accepted and gives no client: %v", name, value, err)
		}
		_ = s.Close(t.Context())
	})
}

func TestParse_SASLNeedsItsParts(t *testing.T) {
	t.Parallel()
	for want, more := range map[string][]string{
		"sasl.mechanism: is missing beside security.protocol=SASL_SSL":                   {"security.protocol", "SASL_SSL"},
		"sasl.username: is missing beside sasl.mechanism=PLAIN":                          {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN"},
		"sasl.password: is missing beside sasl.username":                                 {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.username", "a"},
		"sasl.mechanism: GSSAPI (Kerberos) is not supported":                             {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "GSSAPI"},
		"sasl.oauthbearer.token.endpoint.url: is missing":                                {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER"},
		"the client's id or secret for the OAuth server is missing":                      {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url", "https://idp/token"},
		"sasl.oauthbearer.token.endpoint.url: open /nowhere: no such file":               {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url", "file:///nowhere"},
		"sasl.oauthbearer.token.endpoint.url: holds a user or password":                  {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url", "https://u:p@idp/token"},
		"sasl.jaas.config: names x.ScramLoginModule, and sasl.mechanism PLAIN needs Pla": {"security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.jaas.config", `x.ScramLoginModule required username="a" password="b";`},
		"sasl.login.callback.handler.class: no class can be loaded":                      {"sasl.login.callback.handler.class", "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
	} {
		_, problems, _ := Parse(properties("a:1", more...))
		require.Contains(t, reasons(problems), want)
	}
}
