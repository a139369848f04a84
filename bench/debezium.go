package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/outbox"
)

// tuned is what Debezium's documentation offers for speed: no half second between polls, bigger batches and queues,
// a producer that sends big batches, and no headers beside the event's id.
var tuned = map[string]string{
	"poll.interval.ms":                "5",
	"max.batch.size":                  "8192",
	"max.queue.size":                  "32768",
	"producer.override.linger.ms":     "5",
	"producer.override.batch.size":    "262144",
	"producer.override.buffer.memory": "134217728",
	"extended.headers.enabled":        "false",
}

// debezium is Kafka Connect's worker with Debezium's connector on the write-ahead log, and its outbox event router.
// It tails the log, so that it needs a slot before the events are written, and it marks nothing.
type debezium struct {
	name     string
	settings map[string]string
}

const aboutDebezium = `Debezium, warmed by a drain before, is timed over the last four fifths of the backlog, without its start and stop; it
tails the log, writes at least once and marks nothing. The others are timed with start and stop, to the last mark.`

// debeziumBeside drains the same backlog with Debezium and with the product, then measures the latency of both.
func debeziumBeside(ctx context.Context, s settings) error {
	if s.connect == "" {
		return fmt.Errorf("no worker of Kafka Connect: run dev/servers up connect and set POSTRIDER_TEST_CONNECT (dev/servers env prints it), or -connect")
	}
	cs := slices.DeleteFunc(contenders(s), func(c *contender) bool { return c.name == "article" || c.name == single })
	if err := race(ctx, s, cs); err != nil {
		return err
	}
	rows := make([]spread, len(cs))
	for i, c := range cs {
		if c.carry == nil {
			continue
		}
		var err error
		if rows[i], err = latencyOf(ctx, s, c.carry); err != nil {
			return fmt.Errorf("%s, latency: %w", c.name, err)
		}
	}
	top, rival := rateOf(cs, "ceiling"), rateOf(cs, "debezium tuned")
	fmt.Printf("\n%-16s %10s %10s %17s   %s\n", "", "events/s", "of ceiling", "x debezium tuned",
		fmt.Sprintf("commit to readable at %d transactions a second", s.rate))
	for i, c := range cs {
		m, late := median(c.rates), ""
		if l := rows[i]; l.events > 0 {
			late = fmt.Sprintf("p50 %s  p99 %s  max %s", l.p50, l.p99, l.most)
		}
		fmt.Printf("%-16s %10.0f %10s %17s   %s\n", c.name, m, ratio("%.2f", m, top), ratio("%.1f", m, rival), late)
	}
	fmt.Println(aboutDebezium)
	return nil
}

// begin makes the slot and the publication.
func (d debezium) begin(ctx context.Context, b *bed, _ settings) error {
	if b.dialect != outbox.Postgres {
		return fmt.Errorf("the comparison is on PostgreSQL; use a postgres:// database")
	}
	if _, err := b.db.ExecContext(ctx, `CREATE PUBLICATION "`+b.name+`" FOR TABLE outbox_events WITH (publish = 'insert')`); err != nil {
		return fmt.Errorf("create publication: %w", err)
	}
	if _, err := b.db.ExecContext(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", b.name); err != nil {
		return fmt.Errorf("create slot: %w", err)
	}
	b.atClose(func(ctx context.Context) {
		// The server knows for a while longer of a reader that has gone; the slot would keep its log for ever.
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			_, _ = b.db.ExecContext(ctx, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active", b.name)
			if _, err := b.db.ExecContext(ctx, "SELECT pg_drop_replication_slot($1)", b.name); err == nil {
				return
			}
		}
	})
	return nil
}

// connector is the configuration of a connector on the bed's slot.
func (d debezium) connector(b *bed) (map[string]string, error) {
	u, err := url.Parse(b.url)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	password, _ := u.User.Password()
	config := map[string]string{
		"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
		"tasks.max":                   "1",
		"plugin.name":                 "pgoutput",
		"database.hostname":           u.Hostname(),
		"database.port":               port,
		"database.user":               u.User.Username(),
		"database.password":           password,
		"database.dbname":             u.Path[1:],
		"topic.prefix":                b.name,
		"table.include.list":          "public.outbox_events",
		"slot.name":                   b.name,
		"publication.name":            b.name,
		"publication.autocreate.mode": "disabled",
		"snapshot.mode":               "no_data",
		"key.converter":               "org.apache.kafka.connect.storage.StringConverter",
		// The payload is bytes, and is to arrive as it is.
		"value.converter":                           "io.debezium.converters.BinaryDataConverter",
		"transforms":                                "outbox",
		"transforms.outbox.type":                    "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.id":    "event_id",
		"transforms.outbox.table.field.event.key":   "aggregate_id",
		"transforms.outbox.table.field.event.type":  "event_type",
		"transforms.outbox.route.by.field":          "topic",
		"transforms.outbox.route.topic.replacement": "${routedByValue}",
	}
	maps.Copy(config, d.settings)
	return config, nil
}

// drain is the time that n events take at the pace of the last four fifths: how the connector starts and fills its
// queues is left out, in its favour, since it is meant to run for long.
func (d debezium) drain(ctx context.Context, b *bed, s settings, topic string, n int) (time.Duration, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.kafka))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	stop, err := d.start(ctx, b, s)
	if err != nil {
		return 0, err
	}
	defer stop()
	var from, moved time.Time // of the first fifth, and of the last record
	var fifth, before int64
	for ; ; time.Sleep(5 * time.Millisecond) {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return 0, err
		}
		now, sum := time.Now(), int64(0)
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		if from.IsZero() && sum >= int64(n)/5 {
			from, fifth = now, sum
		}
		if sum >= int64(n) {
			if fifth == sum {
				return 0, fmt.Errorf("%d events are too few to take the time of", n)
			}
			return time.Duration(float64(now.Sub(from)) * float64(n) / float64(sum-fifth)), nil
		}
		if sum > before || moved.IsZero() {
			before, moved = sum, now
		}
		if time.Since(moved) > 30*time.Second {
			_, err := worker{s.connect}.running(ctx, b.name)
			return 0, errors.Join(fmt.Errorf("%d of %d records, and none came for 30 s", sum, n), err)
		}
	}
}

// start makes the connector and returns how to end it.
func (d debezium) start(ctx context.Context, b *bed, s settings) (stop func(), err error) {
	config, err := d.connector(b)
	if err != nil {
		return nil, err
	}
	w := worker{s.connect}
	if err := w.create(ctx, b.name, config); err != nil {
		return nil, err
	}
	return func() { _ = w.remove(ctx, b.name) }, nil
}

// carry relays until ctx ends.
func (d debezium) carry(ctx context.Context, b *bed, s settings, ready func()) error {
	if err := d.begin(ctx, b, s); err != nil {
		return err
	}
	stop, err := d.start(ctx, b, s)
	if err != nil {
		return err
	}
	defer stop()
	for streaming := false; !streaming; time.Sleep(50 * time.Millisecond) {
		err := b.db.QueryRowContext(ctx, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", b.name).Scan(&streaming)
		if err != nil {
			return err
		}
	}
	ready()
	<-ctx.Done()
	return nil
}
