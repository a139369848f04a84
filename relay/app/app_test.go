package app_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. Nothing waits that long unless it is broken.
const patience = 20 * time.Second

// rig is an outbox on SQLite, and what a relay on it said to the log and to the service manager.
type rig struct {
	*testing.T
	db   *sql.DB
	url  string
	cfg  map[string]string
	opts app.Options

	mu   sync.Mutex
	log  bytes.Buffer
	said []string
}

func newRig(t *testing.T) *rig {
	path := filepath.Join(t.TempDir(), "outbox.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = schema.Apply(t.Context(), db, outbox.SQLite)
	require.NoError(t, err)
	r := &rig{T: t, db: db, url: "sqlite:" + path}
	r.cfg = map[string]string{"database.url": r.url, "http.listen": "127.0.0.1:0", "relay.name": "relay-1"}
	r.opts.Logger = slog.New(slog.NewJSONHandler(r, nil))
	r.opts.Notify = func(state string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, state)
	}
	return r
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

// options are those of Run, from the rig's configuration.
func (r *rig) options() app.Options {
	r.Helper()
	var flags []config.Flag
	for key, value := range r.cfg {
		flags = append(flags, config.Flag{Name: key, Key: key, Value: value})
	}
	loaded, err := config.Load(config.Options{Flags: flags})
	require.NoError(r, err)
	o := r.opts
	o.Config = &loaded.Config
	return o
}

// run runs a relay to its end.
func (r *rig) run() error {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	return app.Run(ctx, r.options())
}

// start runs a relay until end is called, which returns what Run did.
func (r *rig) start() (end func() error) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	o := r.options()
	go func() { done <- app.Run(ctx, o) }()
	ended := false
	end = func() error {
		cancel()
		ended = true
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return fmt.Errorf("no end after %s", patience)
		}
	}
	r.Cleanup(func() {
		if !ended {
			_ = end()
		}
	})
	return end
}

// kafka starts a cluster on addr (empty: any) and points the configuration at it.
func (r *rig) kafka(addr string) *kfake.Cluster {
	r.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "orders")}
	if addr != "" {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(r, err)
		var n int
		_, err = fmt.Sscan(port, &n)
		require.NoError(r, err)
		opts = append(opts, kfake.Ports(n))
	}
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(r, err)
	r.Cleanup(cluster.Close)
	r.cfg["kafka.bootstrap.servers"] = cluster.ListenAddrs()[0]
	return cluster
}

func (r *rig) write(n int) {
	r.Helper()
	tx, err := r.db.BeginTx(r.Context(), nil)
	require.NoError(r, err)
	w := outbox.New(outbox.SQLite, outbox.Options{})
	for range n {
		require.NoError(r, w.Write(r.Context(), tx, outbox.Event{AggregateType: "Order", AggregateID: "o-1",
			Type: "OrderCreated", Topic: "orders", Payload: []byte(`{}`)}))
	}
	require.NoError(r, tx.Commit())
}

func (r *rig) count(status string) (n int) {
	r.Helper()
	require.NoError(r, r.db.QueryRowContext(r.Context(), "SELECT count(*) FROM outbox_events WHERE status = ?", status).Scan(&n))
	return n
}

// lines are the log's lines of a message.
func (r *rig) lines(msg string) (found []map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.log.Bytes()) {
		var entry map[string]any
		require.NoError(r, json.Unmarshal(line, &entry))
		if entry["msg"] == msg {
			found = append(found, entry)
		}
	}
	return found
}

// until waits for something that the relay does beside the test.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	require.Eventually(r, done, patience, 5*time.Millisecond, what)
}

func (r *rig) notified() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.said)
}

// get asks the relay's HTTP server, whose address the log tells; code is 0 when nobody answers.
func (r *rig) get(path string) (code int, body string) {
	r.Helper()
	r.until("the first line", func() bool { return len(r.lines("postrider starts")) > 0 })
	starts := r.lines("postrider starts")
	url := fmt.Sprintf("http://%s%s", starts[len(starts)-1]["http"], path)
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodGet, url, nil)
	require.NoError(r, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r, err)
	return resp.StatusCode, string(text)
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().String()
	require.NoError(t, ln.Close())
	return addr
}

// listen is a port; each connection goes to take, one after the other.
func listen(t *testing.T, take func(net.Conn)) (addr string) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			take(conn)
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return ln.Addr().String()
}

// mute is a port that takes connections and says nothing.
func mute(t *testing.T) string {
	t.Helper()
	var conns []net.Conn
	t.Cleanup(func() { // after the listener has ended
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return listen(t, func(conn net.Conn) { conns = append(conns, conn) })
}

// TestRun_UntilDrained: the phases of a run, in their order, and nothing left open after it.
func TestRun_UntilDrained(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kafka("")
	r.write(10)
	r.opts.UntilDrained = true
	require.NoError(t, r.run())
	require.Equal(t, 10, r.count("SENT"))
	require.Equal(t, []string{"READY=1", "STOPPING=1"}, r.notified())
	require.Equal(t, "nothing is left to send", r.lines("postrider stopped")[0]["because"])
	code, _ := r.get("/livez")
	require.Zero(t, code, "the HTTP server ends with the run")
	require.NoError(t, r.run(), "the table is free again")
}

// TestRun_WaitsForTheDatabase: a server that is away is waited for with one line, and health says so;
// the end of the wait by a signal is no failure.
func TestRun_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			addr := closedPort(t)
			r.cfg["database.url"] = scheme + "://app:secret-word@" + addr + "/shop"
			r.cfg["kafka.bootstrap.servers"] = closedPort(t)
			end := r.start()
			r.until("three attempts", func() bool { return strings.Count(strings.Join(r.notified(), " "), "STATUS") > 0 })
			code, body := r.get("/readyz")
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, body, "waiting for the database")
			require.Contains(t, body, addr)
			code, _ = r.get("/livez")
			require.Equal(t, http.StatusOK, code)
			code, body = r.get("/metrics")
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, body, "outbox_build_info")
			require.NoError(t, end())
			waits := r.lines("waiting for the database")
			require.Len(t, waits, 1, "a reason is told once, however often it is met")
			require.Contains(t, waits[0]["error"], addr)
			require.NotContains(t, r.log.String(), "secret-word")
			require.Equal(t, []string{"STATUS=waiting for the database", "STOPPING=1"}, r.notified())
		})
	}
}

// TestRun_SilentServer: a port that takes the connection and never says a word is told of long before
// the attempt times out.
func TestRun_SilentServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	addr := mute(t)
	r.cfg["database.url"] = "mysql://app:secret-word@" + addr + "/shop"
	r.cfg["kafka.bootstrap.servers"] = closedPort(t)
	end := r.start()
	r.until("a line", func() bool { return len(r.lines("waiting for the database")) > 0 })
	require.Contains(t, r.lines("waiting for the database")[0]["error"], addr+" has not answered yet")
	require.NotContains(t, r.log.String(), "secret-word")
	require.NoError(t, end(), "a signal ends the attempt")
}

// TestRun_WaitsForKafka: Kafka is away at the start and comes. The relay was ready all the time, since
// its database answered, and nothing of the table was touched.
func TestRun_WaitsForKafka(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	addr := closedPort(t)
	r.cfg["kafka.bootstrap.servers"] = addr
	r.write(3)
	end := r.start()
	r.until("the wait", func() bool { return len(r.lines("waiting for Kafka")) > 0 })
	r.until("readiness", func() bool { code, _ := r.get("/readyz"); return code == http.StatusOK })
	_, body := r.get("/api/v1/status")
	require.Contains(t, body, "waiting for Kafka")
	require.Contains(t, body, addr)
	require.NotContains(t, r.notified(), "READY=1")
	require.Equal(t, 3, r.count("NEW"))
	r.kafka(addr)
	r.until("the events", func() bool { return r.count("SENT") == 3 })
	require.Len(t, r.lines("Kafka answers"), 1)
	require.NoError(t, end())
	require.Equal(t, []string{"STATUS=waiting for Kafka", "READY=1", "STOPPING=1"}, slices.Compact(r.notified()))
}

// TestRun_WhatWaitingCannotCure ends the start at once, with an error whose kind is the exit code, and
// leaves nothing behind: each of these is followed by a run on the same table that succeeds.
func TestRun_WhatWaitingCannotCure(t *testing.T) {
	t.Parallel()
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	for name, c := range map[string]struct {
		key, value string
		kind       relay.SetupKind
		says       string
	}{
		"no file":        {"database.url", "sqlite:" + filepath.Join(t.TempDir(), "none.db"), relay.SetupNotFound, "none.db"},
		"no table":       {"outbox.table", "nothing", relay.SetupNotFound, "nothing"},
		"no column":      {"outbox.columns.payload", "body", relay.SetupUsage, "body"},
		"Kafka property": {"kafka.lingerms", "7", relay.SetupUsage, "linger.ms"},
		"not a Kafka":    {"kafka.bootstrap.servers", talker(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), relay.SetupUsage, "bootstrap.servers"},
		"address in use": {"http.listen", other.Addr().String(), relay.SetupConflict, "http.listen"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.kafka("")
			good, had := r.cfg[c.key]
			r.cfg[c.key] = c.value
			err := r.run()
			setup := relay.AsSetup(err)
			require.NotNil(t, setup, "%v", err)
			require.Equal(t, c.kind, setup.Kind, "%v", err)
			require.Contains(t, err.Error(), c.says)
			require.NotContains(t, err.Error(), "\n", "one line")
			require.NotEmpty(t, setup.Fix, "the next step")
			require.NotContains(t, r.notified(), "READY=1")

			delete(r.cfg, c.key)
			if had {
				r.cfg[c.key] = good
			}
			r.write(1)
			r.opts.UntilDrained = true
			require.NoError(t, r.run())
			require.Equal(t, 1, r.count("SENT"))
		})
	}
}

// talker is a port where every caller is greeted, by a server that is no Kafka.
func talker(t *testing.T, greeting string) string {
	t.Helper()
	return listen(t, func(conn net.Conn) {
		_, _ = conn.Write([]byte(greeting))
		_ = conn.Close()
	})
}

// TestRun_EndedBeforeDrained: a run that was to drain the table and did not says so, whatever it waited
// for; one that was not is done.
func TestRun_EndedBeforeDrained(t *testing.T) {
	t.Parallel()
	for _, untilDrained := range []bool{false, true} {
		t.Run(fmt.Sprint(untilDrained), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.cfg["kafka.bootstrap.servers"] = closedPort(t)
			r.opts.UntilDrained = untilDrained
			end := r.start()
			r.until("the wait", func() bool { return len(r.lines("waiting for Kafka")) > 0 })
			if err := end(); untilDrained {
				require.ErrorContains(t, err, "before the outbox was drained")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestRun_HealthWhileStopping: while the answer of Kafka for what is in flight is awaited, the service
// manager knows of the end, and HTTP answers.
func TestRun_HealthWhileStopping(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	held := make(chan struct{})
	k := r.kafka("")
	k.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.KeepControl() // a transaction that waits for too long begins anew
		k.SleepControl(func() { <-held })
		return nil, nil, false
	})
	r.write(1)
	end := r.start()
	r.until("the record in flight", func() bool {
		_, body := r.get("/api/v1/status")
		return strings.Contains(body, `"in_flight_events":1`)
	})
	done := make(chan error, 1)
	go func() { done <- end() }()
	r.until("the word", func() bool { return slices.Contains(r.notified(), "STOPPING=1") })
	code, _ := r.get("/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, 1, r.count("NEW"))
	close(held)
	require.NoError(t, <-done)
	require.Equal(t, 1, r.count("SENT"))
	code, _ = r.get("/livez")
	require.Zero(t, code)
}

// TestRun_LogFields: a line about an event has the fields that operators search by, and nothing of what it
// carries.
func TestRun_LogFields(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kafka("")
	r.opts.Logger = slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.opts.UntilDrained = true
	const trace = "0af7651916cd43dd8448eb211c80319c"
	insert := func(id, topic string) {
		_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, topic, payload, headers)
			VALUES (?, 'Order', 'o-' || ?, 'OrderCreated', ?, '{"card": "hush-payload"}', ?)`, id, id, topic,
			`{"traceparent": "00-`+trace+`-b7ad6b7169203331-01", "authorization": "hush-header"}`)
		require.NoError(t, err)
	}
	insert("e-1", "orders")
	insert("e-2", "no such topic!")
	require.NoError(t, r.run())

	sent := r.lines("event sent")
	require.Len(t, sent, 1)
	want := map[string]any{"event_id": "e-1", "aggregate_id": "o-e-1", "event_type": "OrderCreated", "retry_count": 0.0,
		"trace_id": trace, "topic": "orders", "partition": 0.0, "offset": 0.0, "relay": "relay-1"}
	for field, value := range want {
		require.Equal(t, value, sent[0][field], field)
	}
	dead := r.lines("event is dead, a person must act")
	require.Len(t, dead, 1)
	require.Equal(t, "e-2", dead[0]["event_id"])
	require.Equal(t, trace, dead[0]["trace_id"])
	require.Equal(t, "INVALID_TOPIC_EXCEPTION", dead[0]["code"])
	require.EqualValues(t, 1, dead[0]["retry_count"], "as in the table")
	require.NotEmpty(t, dead[0]["error"])
	require.NotEmpty(t, dead[0]["hint"])
	require.NotContains(t, r.log.String(), "hush")
}

// TestRun_Standby: a second relay on the table stands by, is ready, and takes over.
func TestRun_Standby(t *testing.T) {
	t.Parallel()
	first := newRig(t)
	first.kafka("")
	first.cfg["relay.claim"] = "single"
	endFirst := first.start()
	first.until("the first", func() bool { return slices.Contains(first.notified(), "READY=1") })
	first.write(1)
	first.until("its work", func() bool { return first.count("SENT") == 1 })

	second := newRig(t)
	second.cfg = map[string]string{}
	for key, value := range first.cfg {
		second.cfg[key] = value
	}
	second.cfg["relay.name"] = "relay-2"
	endSecond := second.start()
	second.until("the standby", func() bool {
		_, body := second.get("/api/v1/status")
		return strings.Contains(body, `"standby_for"`)
	})
	code, _ := second.get("/readyz")
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, endFirst())
	first.write(1)
	first.until("the take-over", func() bool { return first.count("SENT") == 2 })
	require.Equal(t, "it was told to", first.lines("postrider stopped")[0]["because"])
	require.Len(t, second.lines("the table is free, taking over"), 1)
	require.Len(t, second.lines("relaying"), 1)
	require.NoError(t, endSecond())
}

// TestRun_RowsGiveOrderUp: what claim: rows costs is said at the start.
func TestRun_RowsGiveOrderUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kafka("")
	r.cfg["relay.claim"] = "rows"
	r.opts.UntilDrained = true
	require.NoError(t, r.run())
	require.Len(t, r.lines("relay.claim is rows: events of a key may overtake each other where several relays work on the table; lanes and single keep their order"), 1)
}

// TestRun_TwoWithOneInstance: of two relays with one group.instance.id the newer works on, and the older ends as a
// conflict, which tells a service manager that starting it again is no use.
func TestRun_TwoWithOneInstance(t *testing.T) {
	t.Parallel()
	older := newRig(t)
	older.kafka("")
	older.cfg["relay.claim"], older.cfg["relay.lanes"], older.cfg["kafka.group.instance.id"] = "lanes", "2", "till"
	done := make(chan error, 1)
	go func() { done <- app.Run(t.Context(), older.options()) }()
	older.write(1)
	older.until("its work", func() bool { return older.count("SENT") == 1 })
	newer := newRig(t)
	newer.cfg = maps.Clone(older.cfg)
	end := newer.start()
	err := <-done
	setup := relay.AsSetup(err)
	require.NotNil(t, setup, "%v", err)
	require.Equal(t, relay.SetupConflict, setup.Kind)
	require.Contains(t, err.Error(), "kafka.group.instance.id till: another relay has come with the same id")
	older.write(1)
	older.until("the newer's work", func() bool { return older.count("SENT") == 2 })
	require.NoError(t, end())
}
