package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postrider/postrider/relay"
)

// A check fails when nothing was heard for longer than these. The poll interval is far below them, and
// a statement ends by its own timeout before.
const (
	tickWithin = 2 * time.Minute  // /livez: the reading loop turned
	pollWithin = 30 * time.Second // /readyz: the database answered a read
)

// Server serves health, metrics and status. It is up before the relay is, and outlives it.
type Server struct {
	metrics *Metrics
	log     *slog.Logger
	http    *http.Server
	addr    string

	mu     sync.Mutex
	status func() relay.Status
	since  time.Time
	state  string // what the process is doing while there is no relay: "waiting for the database", …
	kafka  bool   // only Kafka is waited for: the database answered
}

// Off is the address of a server that serves nobody.
const Off = "off"

// Listen binds addr (host:port, port 0 for any; Off for none) and begins to serve. The error names the address.
func Listen(ctx context.Context, addr string, m *Metrics, log *slog.Logger) (*Server, error) {
	if addr == Off {
		return &Server{metrics: m, log: log, addr: Off, since: time.Now(), state: "starting"}, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &relay.SetupError{Kind: relay.SetupConflict, Thing: "http.listen " + addr, Reason: err.Error(),
			Fix: "if another relay runs here, give this one an address of its own, such as --set http.listen=127.0.0.1:8081, or --set http.listen=off", Err: err}
	}
	s := &Server{metrics: m, log: log, addr: ln.Addr().String(), since: time.Now(), state: "starting"}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", s.probe(s.live))
	mux.HandleFunc("GET /healthz", s.probe(s.live))
	mux.HandleFunc("GET /readyz", s.probe(s.ready))
	mux.HandleFunc("GET /api/v1/status", s.serveStatus)
	s.http = &http.Server{Handler: secured(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() {
		if err := s.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("the HTTP server ended", "error", err.Error())
		}
	}()
	return s, nil
}

// Addr is the address that is served, or Off.
func (s *Server) Addr() string { return s.addr }

// Close stops serving; requests under way have until ctx ends.
func (s *Server) Close(ctx context.Context) error {
	if s.http == nil {
		return nil
	}
	return s.http.Shutdown(ctx)
}

// Follow makes health and status speak of a relay; nil returns to saying state.
func (s *Server) Follow(status func() relay.Status, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.state, s.since, s.kafka = status, state, time.Now(), false
}

// WaitForKafka is Follow(nil, state) for a relay whose database answered: it is ready, since a Kafka
// that is away at the start counts no more than one that goes away later.
func (s *Server) WaitForKafka(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.state, s.since, s.kafka = nil, state, time.Now(), true
}

func (s *Server) look() (st relay.Status, running bool, state string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status == nil {
		return relay.Status{}, false, s.state, s.since
	}
	return s.status(), true, s.state, s.since
}

func (s *Server) waitsForKafka() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kafka
}

// check is one line of a probe.
type check struct {
	name string
	err  error
}

// live checks that the loops turn, and no server: a database or a Kafka that is down is no reason to
// kill the relay.
func (s *Server) live() []check {
	st, running, _, since := s.look()
	if running && st.Active && time.Since(latest(st.LastTick, since)) > tickWithin {
		return []check{{"loop", fmt.Errorf("the reading loop has not turned for %s", time.Since(st.LastTick).Round(time.Second))}}
	}
	return []check{{name: "loop"}}
}

// ready checks the database and deliberately not Kafka: while Kafka is away the relay holds its place
// and shows a backlog.
func (s *Server) ready() []check {
	st, running, state, since := s.look()
	switch {
	case !running && s.waitsForKafka():
		return []check{{name: "database"}}
	case !running:
		return []check{{"database", errors.New(state)}}
	case st.StandbyFor != "":
		return []check{{name: "database"}}
	case st.DatabaseTrouble != "":
		return []check{{"database", errors.New(st.DatabaseTrouble)}}
	case st.InFlight == 0 && time.Since(latest(st.LastPoll, since)) > pollWithin:
		return []check{{"database", fmt.Errorf("no answer for %s", time.Since(latest(st.LastPoll, since)).Round(time.Second))}}
	}
	return []check{{name: "database"}}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// probe answers as the Kubernetes API server does: "ok", with ?verbose a line a check.
func (s *Server) probe(checks func() []check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var lines strings.Builder
		failed := false
		for _, c := range checks() {
			if c.err != nil {
				failed = true
				fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, c.err)
			} else {
				fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		switch {
		case failed:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, lines.String())
		case r.URL.Query().Has("verbose"):
			_, _ = io.WriteString(w, lines.String())
		default:
			_, _ = io.WriteString(w, "ok")
		}
	}
}

// RelayStatus is one relay in the status document.
type RelayStatus struct {
	State           string     `json:"state"`
	StandbyFor      string     `json:"standby_for,omitempty"`
	InFlightEvents  int        `json:"in_flight_events"`
	InFlightBytes   int64      `json:"in_flight_bytes"`
	LateRecords     int        `json:"late_records"`
	BlockedKeys     int        `json:"blocked_keys"`
	LastPoll        *time.Time `json:"last_poll,omitempty"`
	LastAck         *time.Time `json:"last_ack,omitempty"`
	DatabaseTrouble string     `json:"database_trouble,omitempty"`
	KafkaTrouble    string     `json:"kafka_trouble,omitempty"`
}

// Status describes the relay of this process.
func (s *Server) Status() RelayStatus {
	st, running, state, _ := s.look()
	out := RelayStatus{State: state, StandbyFor: st.StandbyFor, InFlightEvents: st.InFlight, InFlightBytes: st.FlightBytes,
		LateRecords: st.Late, BlockedKeys: st.BlockedKeys, DatabaseTrouble: st.DatabaseTrouble, KafkaTrouble: st.KafkaTrouble}
	if running {
		out.State = "polling"
		if !st.Active {
			out.State = "standby"
		}
	}
	if !st.LastPoll.IsZero() {
		out.LastPoll = &st.LastPoll
	}
	if !st.LastAck.IsZero() {
		out.LastAck = &st.LastAck
	}
	return out
}

func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]any{"relays": []RelayStatus{s.Status()}})
}

// secured sets the headers that keep a browser from guessing and framing.
func secured(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}
