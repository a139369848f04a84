package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestStatus_Lanes: a person sees who has which lane, by which flow, and when it last got on; a script sees the same,
// and the metrics tell of it too.
func TestStatus_Lanes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	lanes := []string{"--set", "relay.claim=lanes", "--set", "relay.delivery=exactly-once", "--set", "relay.lanes=4", "--set", "relay.name=till-1"}
	code, out, errOut := d.do(t, append([]string{"status"}, lanes...)...)
	require.Zero(t, code, errOut)
	require.Contains(t, out, "no relay has shared this outbox by lanes yet")

	listen := freePort(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		var log strings.Builder
		code := run(ctx, append([]string{"run", "--database-url", d.url, "--bootstrap-servers", d.kafka, "--set", "http.listen=" + listen}, lanes...),
			strings.NewReader(""), io.Discard, &log)
		ended <- fmt.Sprint(code, " ", log.String())
	}()
	d.write(t, order(1, "orders"), order(2, "orders"))
	var doc statusDocument
	require.Eventually(t, func() bool {
		code, out, errOut = d.do(t, append([]string{"status", "-o", "json"}, lanes...)...)
		require.Zero(t, code, errOut)
		doc = statusDocument{}
		require.NoError(t, json.Unmarshal([]byte(out), &doc))
		noted := 0
		for _, l := range doc.Lanes {
			if l.Relay != "till-1" || l.Flow == nil {
				return false
			}
			if l.ProgressAt != nil {
				noted++
			}
		}
		return noted > 0 && doc.Outbox.New.Value == 0
	}, 20*time.Second, 20*time.Millisecond)
	require.Len(t, doc.Lanes, 4)
	for i, l := range doc.Lanes {
		require.EqualValues(t, i, l.Lane)
		require.EqualValues(t, i%2, *l.Flow)
		require.Contains(t, l.Run, "till-1-")
		require.LessOrEqual(t, l.Unmarked, int64(1), "positions are noted with transactions, and every few seconds")
	}
	code, out, errOut = d.do(t, append([]string{"status"}, lanes...)...)
	require.Zero(t, code, errOut)
	require.Regexp(t, `(?m)^relays +1 +till-1 4 lanes$`, out)
	require.Regexp(t, `(?m)^lane 0 +till-1 +at 127\.0\.0\.1\S*, flow 0`, out)
	require.Regexp(t, `(?m)^lane [0-3] +till-1 +at 127\.0\.0\.1\S*, flow [01], last progress [0-9.]+m?s ago$`, out)

	metrics := get(t, "http://"+listen+"/metrics")
	for _, want := range []string{"outbox_lanes_owned 4", "outbox_fenced_total 0", "outbox_reclaimed_total 0", "outbox_takeover_seconds_count 1"} {
		require.Contains(t, metrics, want+"\n")
	}
	require.Regexp(t, `(?m)^outbox_rebalances_total [1-9]`, metrics)

	stop()
	text := <-ended
	require.True(t, strings.HasPrefix(text, "0 "), text)
	require.Equal(t, 1, strings.Count(text, "lanes taken over"), "a line for each change of who has lanes: %s", text)
	require.Equal(t, 1, strings.Count(text, "lanes given up"))
	code, out, errOut = d.do(t, append([]string{"status"}, lanes...)...)
	require.Zero(t, code, errOut)
	require.Regexp(t, `(?m)^relays +0 +4 lanes without a relay$`, out)
	require.Regexp(t, `(?m)^lane 0 +nobody +.*last owner till-1$`, out)

	for n := range 5 {
		d.write(t, order(10+n, "orders")) // of two keys
	}
	_, out, errOut = d.do(t, append([]string{"status", "-o", "json"}, lanes...)...)
	doc = statusDocument{}
	require.NoError(t, json.Unmarshal([]byte(out), &doc), errOut)
	for key, n := range map[string]int64{"ORD-0": 3, "ORD-1": 2} {
		l := doc.Lanes[relay.LaneOf(key, 4)]
		require.Equal(t, &relay.Count{Value: n, Exact: true}, l.Waiting, "%s waits in lane %d", key, l.Lane)
		require.Less(t, l.OldestWaitingAge, 60.0)
	}
	_, out, _ = d.do(t, append([]string{"status"}, lanes...)...)
	require.Regexp(t, `(?m)^lane `+fmt.Sprint(relay.LaneOf("ORD-0", 4))+` +nobody +3 waiting for up to \S+, `, out)
}

// freePort is an address where nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return ln.Addr().String()
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// TestBefore: keys that wait are no part of where reading begins.
func TestBefore(t *testing.T) {
	t.Parallel()
	lane := func(low string) (l laneDocument) { l.Low = low; return l }
	require.Equal(t, relay.RowID("6"), before([]laneDocument{lane("12"), lane("7,a1,b2")}))
	require.Empty(t, before([]laneDocument{lane("12"), lane("")}), "nobody knows")
}

// TestOwners: relays of one name are told apart by their runs.
func TestOwners(t *testing.T) {
	t.Parallel()
	lane := func(name, run string) (l laneDocument) { l.Relay, l.Run = name, run; return l }
	lanes := []laneDocument{lane("vm", "vm-1f"), lane("vm", "vm-2a"), lane("till", "till-3c"), lane("vm", "vm-1f"), lane("", "")}
	require.Equal(t, []string{"vm-1f", "vm-2a", "till", "vm-1f", "nobody"}, owners(lanes))
	n, line := shares(lanes)
	require.Equal(t, 3, n)
	require.Equal(t, "till 1 lane, vm-1f 2, vm-2a 1, 1 lane without a relay", line)
	n, line = shares(lanes[:1])
	require.Equal(t, "1 vm 1 lane", fmt.Sprint(n, " ", line))
}

// TestUnmarked: what is always under way is not worth a person's attention.
func TestUnmarked(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for _, c := range []struct {
		relay string
		count int64
		last  *time.Time
		want  string
	}{
		{"a", 0, ago(time.Hour), ""},
		{"a", 2, ago(time.Second), ""},
		{"a", 2, nil, ""},
		{"a", 2, ago(time.Minute), "about 2 transactions sent and not marked in the table: does the database take changes?"},
		{"a", 11, ago(time.Second), "about 11 transactions sent and not marked in the table: does the database take changes?"},
		{"", 1, ago(time.Second), "about 1 transaction for the next owner to mark as sent"},
	} {
		var l laneDocument
		l.Relay, l.Unmarked, l.ProgressAt = c.relay, c.count, c.last
		require.Equal(t, c.want, unmarked(&l, now))
	}
}
