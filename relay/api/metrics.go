// Package api is what a running relay shows over HTTP: health, metrics and its status as JSON. It asks
// the relay and the store through small interfaces and knows neither databases nor Kafka.
package api

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/relay"
)

// Counter counts rows of the table; relay.Admin has it.
type Counter interface {
	Counts(ctx context.Context, bound int) (relay.Counts, error)
}

// countBound is where counting rows stops: a count over a big table is how consoles die.
const countBound = 10_000

// countEvery is how long a count is served from memory; countTimeout ends one that takes too long.
const (
	countEvery   = 5 * time.Second
	countTimeout = 5 * time.Second
)

// Metrics implements relay.Hooks and serves the contract's metric names. The zero value is not usable.
type Metrics struct {
	registry *prometheus.Registry

	success   prometheus.Counter
	failure   *prometheus.CounterVec
	publish   prometheus.Histogram
	produce   prometheus.Histogram
	lost      prometheus.Counter
	reclaimed prometheus.Counter
	owned     prometheus.Gauge
	fenced    prometheus.Counter
	rebalance prometheus.Counter
	takeover  prometheus.Histogram

	counts *cachedCounts
}

// NewMetrics registers everything with a registry of its own. version and revision label
// outbox_build_info.
func NewMetrics(version, revision string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		success:  counter("outbox_publish_success_total", "Events acknowledged by all in-sync replicas."),
		failure: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_publish_failure_total",
			Help: "Events not acknowledged, by Kafka error name and whether they will be sent again."},
			[]string{"reason", "retriable"}),
		publish:   histogram("outbox_publish_latency_seconds", "Time from the event's commit, by the database clock, to Kafka's acknowledgement."),
		produce:   histogram("outbox_produce_latency_seconds", "Time from sending a record to Kafka's acknowledgement."),
		lost:      counter("outbox_lost_claims_total", "Marks left out because the row had changed since it was read."),
		reclaimed: counter("outbox_reclaimed_total", "Rows taken over: their claim was older than the claim timeout, or the last owner of their lane had sent and not marked them."),
		owned: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_lanes_owned",
			Help: "Lanes that this relay works on; 0 with other claim modes than lanes."}),
		fenced:    counter("outbox_fenced_total", "Lanes lost without having been given up: the session had ended or a newer owner stood in the way."),
		rebalance: counter("outbox_rebalances_total", "Times that the group of relays has begun to share its lanes out anew."),
		takeover:  histogram("outbox_takeover_seconds", "Time from the assignment of lanes to this relay until it works on them."),
		counts:    &cachedCounts{},
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_build_info",
		Help:        "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()}})
	info.Set(1)
	m.registry.MustRegister(m.success, m.failure, m.publish, m.produce, m.lost, m.reclaimed, m.owned, m.fenced, m.rebalance, m.takeover, info, m.counts)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
		Buckets:                         []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	})
}

// Sent implements relay.Hooks.
func (m *Metrics) Sent(_ *relay.Event, _ relay.Receipt, commitToAck, sendToAck time.Duration) {
	m.success.Inc()
	m.produce.Observe(sendToAck.Seconds())
	if commitToAck > 0 {
		m.publish.Observe(commitToAck.Seconds())
	}
}

// Failed implements relay.Hooks.
func (m *Metrics) Failed(_ *relay.Event, f *relay.Failure, next relay.State) {
	m.failure.WithLabelValues(f.Code, strconv.FormatBool(next != relay.StateDead)).Inc()
}

// Lost implements relay.Hooks.
func (m *Metrics) Lost(n int) { m.lost.Add(float64(n)) }

// Reclaimed implements relay.Hooks.
func (m *Metrics) Reclaimed(n int) { m.reclaimed.Add(float64(n)) }

// LanesOwned implements relay.Hooks.
func (m *Metrics) LanesOwned(n int) { m.owned.Set(float64(n)) }

// Fenced implements relay.Hooks.
func (m *Metrics) Fenced(lanes int) { m.fenced.Add(float64(lanes)) }

// Rebalanced is called when the relays' group has begun to share its lanes out anew.
func (m *Metrics) Rebalanced() { m.rebalance.Inc() }

// TookOver is called when lanes that were assigned to this relay are open.
func (m *Metrics) TookOver(_ int, took time.Duration) { m.takeover.Observe(took.Seconds()) }

var _ relay.Hooks = (*Metrics)(nil)

// Watch makes the gauges of table and relay follow c and status from now on; either may be replaced
// by a later call. log may be nil.
func (m *Metrics) Watch(c Counter, status func() relay.Status, log *slog.Logger) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m.counts.watch(c, status, log)
}

// cachedCounts collects the gauges. Counting asks the database, so scrapes share one answer.
type cachedCounts struct {
	mu      sync.Mutex
	counter Counter
	status  func() relay.Status
	log     *slog.Logger
	last    relay.Counts
	lastOK  bool
	at      time.Time
	swept   int64 // by counters of before
}

// sweeper is a Counter that also knows what reading had missed.
type sweeper interface{ SweepFound() int64 }

// found is what sweeps have found so far. It must be called with the lock held.
func (c *cachedCounts) found() int64 {
	if s, ok := c.counter.(sweeper); ok {
		return c.swept + s.SweepFound()
	}
	return c.swept
}

func (c *cachedCounts) watch(counter Counter, status func() relay.Status, log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = c.found()
	c.counter, c.status, c.log, c.at = counter, status, log, time.Time{}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descPending   = desc("outbox_pending_count", "Events waiting to be sent (NEW and SENDING); counting stops at 10,000.")
	descFailed    = desc("outbox_failed_count", "Events that failed and will be sent again; counting stops at 10,000.")
	descDead      = desc("outbox_dead_count", "Events given up that wait for a person; counting stops at 10,000.")
	descTruncated = desc("outbox_counts_truncated", "1 when a count stopped at its bound, by state.", "state")
	descAge       = desc("outbox_oldest_pending_age_seconds", "Age, by the database clock, of the oldest event that is neither SENT nor DEAD.")
	descBlocked   = desc("outbox_blocked_keys", "Keys whose later events wait for one in doubt.")
	descFlight    = desc("outbox_in_flight_events", "Events read and not yet settled.")
	descBytes     = desc("outbox_in_flight_bytes", "Bytes of events read and not yet settled.")
	descLate      = desc("outbox_late_records", "Records whose acknowledgement is overdue.")
	descSwept     = desc("outbox_sweep_found_total", "Events that only the slow sweep of the table found. Rows that a person makes NEW by SQL are among them; else it stays 0, and anything else is a bug.")
	descSource    = desc("outbox_source_state", "1 for the state the source is in.", "state")
)

// Describe implements prometheus.Collector.
func (c *cachedCounts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descPending, descFailed, descDead, descTruncated, descAge, descBlocked,
		descFlight, descBytes, descLate, descSwept, descSource} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Gauges of the table are left out while the database does
// not answer: a stale number would look like a healthy one.
func (c *cachedCounts) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if n, ok := c.get(); ok {
		gauge(descPending, float64(n.New.Value+n.Sending.Value))
		gauge(descFailed, float64(n.Failed.Value))
		gauge(descDead, float64(n.Dead.Value))
		gauge(descAge, n.OldestPendingAge.Seconds())
		gauge(descTruncated, truncated(n.New, n.Sending), "pending")
		gauge(descTruncated, truncated(n.Failed), "failed")
		gauge(descTruncated, truncated(n.Dead), "dead")
	}
	c.mu.Lock()
	status, swept := c.status, c.found()
	c.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descSwept, prometheus.CounterValue, float64(swept))
	state := "starting"
	if status != nil {
		s := status()
		gauge(descBlocked, float64(s.BlockedKeys))
		gauge(descFlight, float64(s.InFlight))
		gauge(descBytes, float64(s.FlightBytes))
		gauge(descLate, float64(s.Late))
		switch {
		case s.Active:
			state = "polling"
		case s.StandbyFor != "":
			state = "standby"
		}
	}
	for _, name := range []string{"starting", "standby", "polling"} {
		on := 0.0
		if name == state {
			on = 1
		}
		gauge(descSource, on, name)
	}
}

func truncated(cs ...relay.Count) float64 {
	for _, c := range cs {
		if !c.Exact {
			return 1
		}
	}
	return 0
}

func (c *cachedCounts) get() (relay.Counts, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter == nil {
		return relay.Counts{}, false
	}
	if time.Since(c.at) < countEvery {
		return c.last, c.lastOK
	}
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	n, err := c.counter.Counts(ctx, countBound)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.log.Warn("rows could not be counted for metrics", "error", err.Error())
	}
	c.last, c.lastOK, c.at = n, err == nil, time.Now()
	return c.last, c.lastOK
}
