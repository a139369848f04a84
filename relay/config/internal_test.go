package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestKeys holds that every key is documented and has a variable of its own.
func TestKeys(t *testing.T) {
	t.Parallel()
	variables := map[string]string{}
	documented := map[string]bool{}
	for _, k := range allKeys {
		path := k.String()
		require.Empty(t, variables[k.variable()], "%s and %s share a variable", path, variables[k.variable()])
		variables[k.variable()] = path
		require.False(t, foreign(k.variable(), "tcp://x"), path)
		documented[path] = true
		_, has := docs[path]
		require.True(t, has || optional(path), "%s is not documented", path)
		found, ok := findKey(path)
		require.True(t, ok)
		require.Equal(t, k, found)
	}
	for path := range docs {
		require.True(t, documented[path], "%s is documented and does not exist", path)
	}
	for path := range later {
		require.False(t, documented[path], "%s is here already", path)
	}
	require.Equal(t, "relay.poll_interval", variables["POSTRIDER_RELAY_POLL_INTERVAL"])
	require.Equal(t, "http.listen", variables["POSTRIDER_HTTP_LISTEN"])
	require.Equal(t, "outbox.columns.event_id", variables["POSTRIDER_OUTBOX_COLUMNS_EVENT_ID"])
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "1048576": MiB, "8MiB": 8 * MiB, "1MB": 1e6, "1mb": 1e6, "512 KB": 512e3, "1.5KiB": 1536,
		"1GiB": GiB, "7B": 7, "2GB": 2e9, "9007199254740993": 9007199254740993,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again, "%s prints as %s", text, got)
	}
	for _, text := range []string{"", "MB", "-1", "-1MB", "1.5", "0.3B", "1e3", "0x10", "1TB", "NaN", "inf", "9223372036854775808", "9223372036854775807KB", "1 2", "1_000"} {
		_, err := ParseSize(text)
		require.Error(t, err, text)
	}
}

func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0s", "500ms": "500ms", "60s": "1m", "90s": "1m30s", "1h": "1h", "1h30m": "1h30m", "1h0m5s": "1h0m5s", "720h": "720h", "10m": "10m", "20m": "20m",
	} {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		require.Equal(t, want, formatDuration(d))
		again, err := time.ParseDuration(want)
		require.NoError(t, err)
		require.Equal(t, d, again)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"batch", "batch_bytes", "poll_interval", "name", "url"}
	for name, want := range map[string]string{
		"bacth": "batch", "BATCH": "batch", "batchbytes": "batch_bytes", "batch-bytes": "batch_bytes", "poll.interval": "poll_interval",
		"polinterval": "poll_interval", "nmae": "name", "urls": "url", "zebra": "", "": "", "x": "",
	} {
		require.Equal(t, want, Nearest(name, names), name)
	}
	require.Zero(t, distance("same", "same"))
	require.Equal(t, 1, distance("ab", "ba"))
	require.Equal(t, 3, distance("", "abc"))
	require.Equal(t, 3, distance("kitten", "sitting"))
}

func TestSnake(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"URL": "url", "EventID": "event_id", "PollInterval": "poll_interval", "HTTP": "http", "ID": "id", "KafkaTopic": "kafka_topic", "HTTPAuth": "http_auth",
	} {
		require.Equal(t, want, snake(name))
	}
}
