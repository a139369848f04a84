package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a table with fixed counts, or one that does not answer.
type counter struct {
	counts relay.Counts
	err    error
	calls  int
	swept  int64
}

// SweepFound makes it one that sweeps.
func (c *counter) SweepFound() int64 { return c.swept }

func (c *counter) Counts(context.Context, int) (relay.Counts, error) {
	c.calls++
	return c.counts, c.err
}

type server struct {
	*api.Server
	metrics *api.Metrics
	client  *http.Client
}

func listen(t *testing.T) *server {
	t.Helper()
	m := api.NewMetrics("v1.2.3", "abc")
	s, err := api.Listen(t.Context(), "127.0.0.1:0", m, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return &server{Server: s, metrics: m, client: client}
}

func (s *server) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+path, nil)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	return resp.StatusCode, string(data)
}

// TestServer_Health: a database that is down fails readiness, a Kafka that is down does not, and
// neither fails liveness; a loop that no longer turns does.
func TestServer_Health(t *testing.T) {
	t.Parallel()
	s := listen(t)
	var st relay.Status
	status := func() relay.Status { return st }

	code, body := s.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "[-]database failed: starting")
	code, _ = s.get(t, "/livez")
	require.Equal(t, http.StatusOK, code, "waiting for servers is no reason to be killed")

	s.WaitForKafka("waiting for Kafka: connection refused")
	code, _ = s.get(t, "/readyz")
	require.Equal(t, http.StatusOK, code, "Kafka down at the start does not fail readiness either")
	require.Equal(t, "waiting for Kafka: connection refused", s.Status().State)
	s.Follow(nil, "waiting for the database")
	code, body = s.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "waiting for the database")

	s.Follow(status, "")
	now := time.Now()
	st = relay.Status{Active: true, LastPoll: now, LastTick: now}
	code, body = s.get(t, "/readyz?verbose")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "[+]database ok\n", body)
	code, body = s.get(t, "/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok", body)

	st.KafkaTrouble = "[unavailable] NOT_ENOUGH_REPLICAS: topic orders"
	code, _ = s.get(t, "/readyz")
	require.Equal(t, http.StatusOK, code, "Kafka down does not fail readiness")

	st.DatabaseTrouble = "connection refused"
	code, body = s.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "connection refused")

	st = relay.Status{StandbyFor: "pid 4711"}
	code, _ = s.get(t, "/readyz")
	require.Equal(t, http.StatusOK, code, "a standby is ready to take over")

	code, _ = s.get(t, "/healthz")
	require.Equal(t, http.StatusOK, code)
	code, _ = s.get(t, "/nothing")
	require.Equal(t, http.StatusNotFound, code)
}

// TestServer_AddressInUse names the address and the next step.
func TestServer_AddressInUse(t *testing.T) {
	t.Parallel()
	s := listen(t)
	_, err := api.Listen(t.Context(), s.Addr(), api.NewMetrics("", ""), slog.New(slog.DiscardHandler))
	setup := relay.AsSetup(err)
	require.NotNil(t, setup)
	require.Equal(t, relay.SetupConflict, setup.Kind)
	require.Contains(t, setup.Error(), s.Addr())
}

// TestServer_Status is the document that postrider status asks for.
func TestServer_Status(t *testing.T) {
	t.Parallel()
	s := listen(t)
	s.Follow(func() relay.Status { return relay.Status{Active: true, InFlight: 3, Late: 1, LastPoll: time.Now()} }, "")
	code, body := s.get(t, "/api/v1/status")
	require.Equal(t, http.StatusOK, code)
	var doc struct {
		Relays []api.RelayStatus `json:"relays"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &doc))
	require.Len(t, doc.Relays, 1)
	require.Equal(t, "polling", doc.Relays[0].State)
	require.Equal(t, 3, doc.Relays[0].InFlightEvents)
	require.NotNil(t, doc.Relays[0].LastPoll)
}

// TestMetrics_ContractNames holds the names that dashboards and alerts rely on, and P10: no key, id or
// error text is a label.
func TestMetrics_ContractNames(t *testing.T) {
	t.Parallel()
	s := listen(t)
	c := &counter{counts: relay.Counts{New: relay.Count{Value: 7, Exact: true}, Sending: relay.Count{Value: 2, Exact: true},
		Failed: relay.Count{Value: 10_000}, Dead: relay.Count{Value: 1, Exact: true}, OldestPendingAge: 90 * time.Second}}
	s.metrics.Watch(c, func() relay.Status { return relay.Status{Active: true, BlockedKeys: 4} }, nil)
	key := "customer-4711"
	e := &relay.Event{ID: "e-secret", Key: &key, AggregateID: key}
	s.metrics.Sent(e, relay.Receipt{Topic: "orders"}, time.Second, 5*time.Millisecond)
	s.metrics.Failed(e, &relay.Failure{Class: relay.ClassPermanent, Code: "MESSAGE_TOO_LARGE", Text: "e-secret"}, relay.StateDead)
	s.metrics.Failed(e, &relay.Failure{Class: relay.ClassRetriable, Code: "UNKNOWN_SERVER_ERROR"}, relay.StateFailed)
	s.metrics.Lost(2)
	s.metrics.Reclaimed(3)
	c.swept = 2
	code, body := s.get(t, "/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, line := range []string{
		"outbox_pending_count 9", "outbox_failed_count 10000", "outbox_dead_count 1", "outbox_blocked_keys 4",
		"outbox_oldest_pending_age_seconds 90", "outbox_publish_success_total 1",
		`outbox_publish_failure_total{reason="MESSAGE_TOO_LARGE",retriable="false"} 1`,
		`outbox_publish_failure_total{reason="UNKNOWN_SERVER_ERROR",retriable="true"} 1`,
		"outbox_publish_latency_seconds_count 1", "outbox_produce_latency_seconds_count 1",
		"outbox_reclaimed_total 3", "outbox_lost_claims_total 2", "outbox_sweep_found_total 2",
		`outbox_source_state{state="polling"} 1`, `outbox_counts_truncated{state="failed"} 1`,
	} {
		require.Contains(t, body, line+"\n")
	}
	require.Contains(t, body, `outbox_build_info{goversion="`)
	for _, private := range []string{key, "e-secret"} {
		require.NotContains(t, body, private)
	}
	_, _ = s.get(t, "/metrics")
	require.Equal(t, 1, c.calls, "scrapes share one count")
	s.metrics.Watch(&counter{swept: 1}, nil, nil)
	_, body = s.get(t, "/metrics")
	require.Contains(t, body, "outbox_sweep_found_total 3\n", "a store that is opened anew counts from 0")
}

// TestMetrics_SilentDatabase: gauges of the table are left out rather than shown stale.
func TestMetrics_SilentDatabase(t *testing.T) {
	t.Parallel()
	s := listen(t)
	s.metrics.Watch(&counter{err: errors.New("no answer")}, nil, nil)
	_, body := s.get(t, "/metrics")
	require.False(t, strings.Contains(body, "outbox_pending_count"), "no stale numbers")
	require.Contains(t, body, `outbox_source_state{state="starting"} 1`)
}
