package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/schema"
)

// desk is an outbox on SQLite and a Kafka in this process, driven by command lines.
type desk struct {
	db    *sql.DB
	url   string
	kafka string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{url: "sqlite:" + filepath.Join(t.TempDir(), "outbox.db")}
	db, err := app.OpenDatabase(t.Context(), d.url, app.CreateFile)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = schema.Apply(t.Context(), db, outbox.SQLite)
	require.NoError(t, err)
	d.db = db
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	d.kafka = cluster.ListenAddrs()[0]
	return d
}

func (d *desk) write(t *testing.T, evs ...outbox.Event) {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, outbox.New(outbox.SQLite, outbox.Options{}).Write(t.Context(), tx, evs...))
	require.NoError(t, tx.Commit())
}

// do runs one command line and returns what it printed.
func (d *desk) do(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{"--set", "http.listen=127.0.0.1:0"}, append(args, "--database-url", d.url, "--bootstrap-servers", d.kafka, "--timeout", "30s")...)
	code = run(context.WithoutCancel(t.Context()), args, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func (d *desk) list(t *testing.T, args ...string) []eventDocument {
	t.Helper()
	code, out, errOut := d.do(t, append([]string{"events", "list", "-o", "json"}, args...)...)
	require.Zero(t, code, errOut)
	var docs []eventDocument
	require.NoError(t, json.Unmarshal([]byte(out), &docs))
	return docs
}

func order(n int, topic string) outbox.Event {
	return outbox.Event{ID: fmt.Sprintf("e-%d", n), AggregateType: "Order", AggregateID: fmt.Sprintf("ORD-%d", n%2),
		Type: "OrderCreated", Topic: topic, Payload: []byte(`{"card":"4111-secret"}`)}
}

// TestRun_UntilDrained relays a table and ends with 0, the rows SENT with their receipts.
func TestRun_UntilDrained(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 5 {
		d.write(t, order(n, "orders"))
	}
	code, out, errOut := d.do(t, "run", "--until-drained")
	require.Zero(t, code, errOut)
	require.Empty(t, out, "data only on stdout")
	require.NotContains(t, errOut, "4111-secret")
	docs := d.list(t)
	require.Len(t, docs, 5)
	for _, doc := range docs {
		require.Equal(t, "SENT", doc.Status)
		require.Equal(t, "orders", *doc.KafkaTopic)
		require.NotNil(t, doc.KafkaOffset)
		require.NotNil(t, doc.SentAt)
	}
	code, out, _ = d.do(t, "status", "-o", "json")
	require.Zero(t, code)
	var doc statusDocument
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	require.Zero(t, doc.Outbox.New.Value)
	require.True(t, doc.Outbox.New.Exact)
	require.Empty(t, doc.Relays)
}

// TestEvents_DeadEventIsExplainedAndRepaired walks the operator's road: a dead event holds its key, is
// listed with its reason, shown, retried or discarded, and the key goes on.
func TestEvents_DeadEventIsExplainedAndRepaired(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, order(2, "orders"))
	// The writer refuses such a name, another language's INSERT would not.
	_, err := d.db.ExecContext(t.Context(), `INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, topic, payload)
		VALUES ('bad', 'Order', 'ORD-0', 'OrderCreated', 'no such topic!', '{}')`)
	require.NoError(t, err)
	d.write(t, order(4, "orders"), order(3, "orders"))
	code, _, errOut := d.do(t, "run", "--until-drained")
	require.Zero(t, code, errOut)

	dead := d.list(t, "--status", "DEAD")
	require.Len(t, dead, 1)
	require.Equal(t, "bad", dead[0].EventID)
	require.Contains(t, *dead[0].LastError, "INVALID_TOPIC_EXCEPTION")
	require.Equal(t, "e-4", d.list(t, "--status", "NEW")[0].EventID, "the key waits behind its dead event")
	require.Len(t, d.list(t, "--status", "SENT"), 2, "other keys pass")

	code, out, _ := d.do(t, "events", "list", "--status", "DEAD")
	require.Zero(t, code)
	require.Contains(t, out, *dead[0].LastError, "a pipe gets the whole hint")
	require.Greater(t, len(*dead[0].LastError), 100)
	code, out, _ = d.do(t, "events", "show", "bad")
	require.Zero(t, code)
	require.Contains(t, out, "last error")
	require.NotContains(t, out, "{}", "a payload is shown only on demand")
	code, _, errOut = d.do(t, "events", "show", "nobody")
	require.Equal(t, exitNotFound, code)
	require.Contains(t, errOut, "event nobody: is not in the table")
	_, _, errOut = d.do(t, "events", "show", "1")
	require.Contains(t, errOut, "event 1: is not in the table; give the EVENT ID of postrider events list, not the ROW")

	code, _, errOut = d.do(t, "events", "discard", "--status", "DEAD", "--reason", "a test")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errOut, "discard 1 event: there is no terminal to ask at; add --yes")
	code, out, _ = d.do(t, "events", "discard", "--status", "DEAD", "--reason", "a test", "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "1 event would be discarded")
	code, out, _ = d.do(t, "events", "discard", "bad", "--reason", "a test")
	require.Zero(t, code)
	require.Contains(t, out, "1 event discarded, 0 left alone")
	code, out, errOut = d.do(t, "events", "discard", "bad", "e-2", "ghost", "--reason", "a test")
	require.Equal(t, exitConflict, code, "a named event that was left alone is no success")
	require.Contains(t, out, "0 events discarded, 2 left alone")
	require.Contains(t, errOut, "postrider: event bad: is DEAD (discarded) and was left alone; discard takes DEAD events\n"+
		"postrider: event e-2: is SENT and was left alone; discard takes DEAD events\n"+
		"postrider: event ghost: is not in the table; see postrider events list")
	code, out, _ = d.do(t, "events", "retry", "--status", "DEAD", "--yes")
	require.Zero(t, code)
	require.Contains(t, out, "0 events made due now, 0 left alone", "what a person gave up comes back only by name")

	code, _, errOut = d.do(t, "run", "--until-drained")
	require.Zero(t, code, errOut)
	require.Len(t, d.list(t, "--status", "SENT"), 3)
	require.Empty(t, d.list(t, "--status", "DEAD"), "nothing waits for a person any more")
	code, out, _ = d.do(t, "status")
	require.Zero(t, code)
	require.Regexp(t, `dead +0 `, out)
	code, out, _ = d.do(t, "events", "list", "--status", "discarded")
	require.Zero(t, code)
	require.Contains(t, out, "DEAD (discarded)")
	require.Contains(t, out, "discarded: a test")
}

// TestEvents_DiscardWithoutLastErrorDeletes: what cannot be kept as discarded goes only on a yes, and the log
// says what went.
func TestEvents_DiscardWithoutLastErrorDeletes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, order(1, "orders"), order(2, "orders"))
	_, err := d.db.ExecContext(t.Context(), `UPDATE outbox_events SET status = 'DEAD', next_retry_at = created_at WHERE event_id = 'e-1'`)
	require.NoError(t, err)
	mapped := func(args ...string) []string {
		return append(args, "--set", "outbox.preset=article-postgres", "--set", "outbox.columns.last_error=-")
	}
	code, out, errOut := d.do(t, mapped("events", "discard", "e-1", "--reason", "a test", "--dry-run")...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "1 event would be deleted (the table has no last_error column to keep it as discarded), 0 left alone")
	code, _, errOut = d.do(t, mapped("events", "discard", "e-1", "--reason", "a test")...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errOut, "delete 1 event (the table has no last_error column to keep it as discarded): there is no terminal to ask at; add --yes")
	require.Len(t, d.list(t), 2)
	code, out, errOut = d.do(t, mapped("events", "discard", "e-1", "--reason", "a test", "--yes")...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "1 event deleted (the table has no last_error column to keep it as discarded)")
	require.Regexp(t, `"WARN","msg":"event is deleted","event_id":"e-1","event_type":"OrderCreated","key":"ORD-1","topic":"orders"`, errOut)
	require.NotContains(t, errOut, "4111-secret")
	require.Len(t, d.list(t), 1)
}

// TestEvents_BadFlags names the flag, the reason and the next step, with exit code 2.
func TestEvents_BadFlags(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range []struct{ args, want string }{
		{"events retry", "names no events"},
		{"events list --status GONE", "--status GONE: unknown state; use NEW, SENDING, SENT, FAILED, DEAD or DISCARDED"},
		{"events list --limit 0", "--limit: must be at least 1"},
		{"events discard x", "--reason: is missing; say why"},
		{"events show", "needs an argument"},
	} {
		code, _, errOut := d.do(t, strings.Fields(c.args)...)
		require.Equal(t, exitUsage, code, c.args)
		require.Contains(t, errOut, c.want, c.args)
	}
}

// TestRun_WaitsForKafkaAndSaysSo: a Kafka that does not answer is waited for, and --timeout names
// itself as the end.
func TestRun_WaitsForKafkaAndSaysSo(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var stdout, stderr bytes.Buffer
	code := run(context.WithoutCancel(t.Context()), []string{"run", "--until-drained", "--database-url", d.url,
		"--bootstrap-servers", "127.0.0.1:1", "--set", "http.listen=127.0.0.1:0", "--timeout", "2s"}, strings.NewReader(""), &stdout, &stderr)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr.String(), "waiting for Kafka")
	require.Contains(t, stderr.String(), "--timeout: not done within 2s")
}

// TestLogger_Format: without a terminal the log is JSON unless told otherwise; a terminal gets text.
func TestLogger_Format(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no pseudo-terminals: " + err.Error())
	}
	defer func() { _ = terminal.Close() }()
	require.True(t, isTerminal(terminal))
	for _, c := range []struct {
		format   string
		terminal bool
		json     bool
	}{
		{"auto", false, true}, {"auto", true, false}, {"json", true, true}, {"text", false, false},
	} {
		cfg := config.Default()
		cfg.Log.Format = c.format
		var buffer bytes.Buffer
		cli := &cli{errOut: &buffer}
		if c.terminal {
			cli.errOut = terminal
		}
		_, isJSON := cli.logger(&cfg).Handler().(*slog.JSONHandler)
		require.Equal(t, c.json, isJSON, "%+v", c)
	}
}

// TestRun_WithoutHTTP: http.listen: off serves nothing, and a second relay on one address is told both ways out.
func TestRun_WithoutHTTP(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, order(1, "orders"))
	code, _, errOut := d.do(t, "run", "--until-drained", "--set", "http.listen=off")
	require.Zero(t, code, errOut)
	require.Contains(t, errOut, `"http":"off"`)
	code, out, errOut := d.do(t, "status", "--set", "http.listen=off")
	require.Zero(t, code, errOut)
	require.Contains(t, out, "http.listen is off, so none can be asked")

	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	code, _, errOut = d.do(t, "run", "--until-drained", "--set", "http.listen="+taken.Addr().String())
	require.Equal(t, exitConflict, code, errOut)
	require.Contains(t, errOut, "give this one an address of its own, such as --set http.listen=127.0.0.1:8081, or --set http.listen=off")
}
