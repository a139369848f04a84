package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
)

// statusBound is where status stops counting rows.
const statusBound = 10_000

// statusDocument is the JSON that scripts rely on.
type statusDocument struct {
	Outbox struct {
		New              relay.Count `json:"new"`
		Sending          relay.Count `json:"sending"`
		Failed           relay.Count `json:"failed"`
		Dead             relay.Count `json:"dead"`
		BlockedKeys      relay.Count `json:"blocked_keys"`
		OldestPendingAge float64     `json:"oldest_pending_age_seconds"`
	} `json:"outbox"`
	Relays []map[string]any `json:"relays"`
	Lanes  []laneDocument   `json:"lanes"`
	Source map[string]any   `json:"source"`
}

func statusCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the backlog, the oldest event, dead events and the relay",
		Long: "status counts the table's events by state and asks the relay at http.listen how it fares.\n" +
			"Counts stop at 10,000: a count over a big table would hurt the database.",
		Example: "  postrider status -c postrider.yaml\n  postrider status -c postrider.yaml -o json",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.lookStore(cmd.Context(), func(cfg *config.Config, store app.Store) error {
				return c.status(cmd.Context(), cfg, store)
			})
		},
	}
}

func (c *cli) status(ctx context.Context, cfg *config.Config, store relay.Admin) error {
	n, err := store.Counts(ctx, statusBound)
	if err != nil {
		return fmt.Errorf("count the events: %w", err)
	}
	var doc statusDocument
	doc.Outbox.New, doc.Outbox.Sending, doc.Outbox.Failed, doc.Outbox.Dead = n.New, n.Sending, n.Failed, n.Dead
	doc.Outbox.BlockedKeys, doc.Outbox.OldestPendingAge = n.BlockedKeys, n.OldestPendingAge.Seconds()
	var silent string
	doc.Lanes, silent = askLanes(ctx, cfg)
	if len(doc.Lanes) > 0 {
		addLag(ctx, store, doc.Lanes, n.OldestPendingAge)
	}
	doc.Source = map[string]any{"kind": cfg.Relay.Source, "claim": string(cfg.Relay.Claim)}
	relays, reason := askRelay(ctx, cfg.HTTP.Listen)
	doc.Relays = relays
	return c.print(doc, func(t *table) {
		t.row("waiting", count(n.New), "not sent yet")
		t.row("sending", count(n.Sending), "")
		t.row("failed", count(n.Failed), "will be sent again")
		t.row("dead", count(n.Dead), "wait for a person: postrider events list --status DEAD")
		t.row("oldest", age(n.OldestPendingAge), "of those that wait, are being sent or failed")
		t.row("blocked keys", count(n.BlockedKeys), "later events of a key in doubt wait")
		if len(relays) == 0 {
			t.row("relay", "none", reason)
		}
		for _, r := range relays {
			t.row("relay", r["state"], relayLine(r))
		}
		if len(doc.Lanes) > 0 {
			n, line := shares(doc.Lanes)
			t.row("relays", n, line)
		}
		names := owners(doc.Lanes)
		for i := range doc.Lanes {
			l := &doc.Lanes[i]
			t.row(fmt.Sprint("lane ", l.Lane), names[i], laneLine(l, time.Now()))
		}
		if silent != "" {
			t.row("lanes", "unknown", silent)
		}
	})
}

func relayLine(r map[string]any) string {
	line := fmt.Sprintf("%v in flight, %v answers overdue", r["in_flight_events"], r["late_records"])
	for _, k := range []string{"standby_for", "database_trouble", "kafka_trouble"} {
		if v, there := r[k]; there {
			line += fmt.Sprintf("; %s: %v", k, v)
		}
	}
	return line
}

// askRelay asks the relay of this configuration; none running is an answer, not an error.
func askRelay(ctx context.Context, listen string) (relays []map[string]any, reason string) {
	relays = []map[string]any{}
	if listen == config.Off {
		return relays, "http.listen is off, so none can be asked"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+"/api/v1/status", nil)
	if err != nil {
		return relays, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return relays, "nothing answers at http.listen " + listen
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct {
		Relays []map[string]any `json:"relays"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&body); err != nil || resp.StatusCode != http.StatusOK {
		return relays, "something else answers at http.listen " + listen
	}
	return body.Relays, ""
}

func count(c relay.Count) string {
	if c.Exact {
		return fmt.Sprint(c.Value)
	}
	return fmt.Sprintf("%d+", c.Value)
}

// age shows a duration to two significant units.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Minute).String()
	}
}
