package demo

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/outbox"
)

// TestRun_SeesWhatBreaks breaks promises behind the demo's back: each must be in the summary.
func TestRun_SeesWhatBreaks(t *testing.T) {
	t.Parallel()
	exec := func(ctx context.Context, d *Demo, statement string, args ...any) error {
		_, err := d.orders.ExecContext(ctx, statement, args...)
		return err
	}
	// one event of a settled row
	const aSent = `(SELECT event_id FROM outbox_events WHERE status = 'SENT' ORDER BY id LIMIT 1)`
	cases := map[string]struct {
		sabotage func(ctx context.Context, d *Demo) error
		broken   func(s Summary) int
	}{
		"missing: marked before the acknowledgement": {
			func(ctx context.Context, d *Demo) error {
				return exec(ctx, d, `CREATE TRIGGER early AFTER INSERT ON outbox_events WHEN new.event_type = 'OrderPaid'
					BEGIN UPDATE outbox_events SET status = 'SENT' WHERE id = new.id; END`)
			},
			func(s Summary) int { return s.Missing },
		},
		"phantom: sent before the COMMIT": {
			func(ctx context.Context, d *Demo) error {
				client, err := kgo.NewClient(kgo.SeedBrokers(d.Kafka()))
				if err != nil {
					return err
				}
				defer client.Close()
				return client.ProduceSync(ctx, &kgo.Record{Topic: topicName, Key: []byte("ORD-1"), Value: []byte("{}"),
					Headers: []kgo.RecordHeader{{Key: "event_id", Value: []byte(outbox.NewID())}}}).FirstErr()
			},
			func(s Summary) int { return s.Phantom },
		},
		"doubled: a sent row is sent again": {
			func(ctx context.Context, d *Demo) error {
				return exec(ctx, d, `UPDATE outbox_events SET status = 'NEW' WHERE event_id = `+aSent)
			},
			func(s Summary) int { return s.Doubled },
		},
		"applied twice: the inbox forgets": {
			func(ctx context.Context, d *Demo) error {
				for _, c := range d.consumers {
					if _, err := c.db.ExecContext(ctx, `DELETE FROM inbox_events`); err != nil {
						return err
					}
				}
				return exec(ctx, d, `UPDATE outbox_events SET status = 'NEW' WHERE event_id = `+aSent)
			},
			func(s Summary) int { return s.AppliedTwice },
		},
		"out of order: a later event of the key goes first": {
			func(ctx context.Context, d *Demo) error {
				// Orders' first events are hidden until one of their second ones was sent.
				hide := `CREATE TRIGGER hide AFTER INSERT ON outbox_events WHEN new.event_type = 'OrderCreated'
					BEGIN UPDATE outbox_events SET status = 'SENT' WHERE id = new.id; END`
				if err := exec(ctx, d, hide); err != nil {
					return err
				}
				overtaken := `SELECT 1 FROM outbox_events a JOIN outbox_events b ON a.aggregate_id = b.aggregate_id
					WHERE a.kafka_offset IS NULL AND a.status = 'SENT' AND b.kafka_offset IS NOT NULL`
				await(ctx, t, d, func(*Snapshot) bool {
					var one int
					return d.orders.QueryRowContext(ctx, overtaken).Scan(&one) == nil
				})
				if err := exec(ctx, d, `DROP TRIGGER hide`); err != nil {
					return err
				}
				return exec(ctx, d, `UPDATE outbox_events SET status = 'NEW' WHERE status = 'SENT' AND kafka_offset IS NULL`)
			},
			func(s Summary) int { return s.OutOfOrder },
		},
		"altered: something rewrites payloads": {
			func(ctx context.Context, d *Demo) error {
				return exec(ctx, d, `CREATE TRIGGER rewrite AFTER INSERT ON outbox_events
					BEGIN UPDATE outbox_events SET payload = CAST(payload AS TEXT) || ' ' WHERE id = new.id; END`)
			},
			func(s Summary) int { return s.Altered },
		},
		"not applied: an effect is gone": {
			func(ctx context.Context, d *Demo) error {
				_, err := d.consumers[0].db.ExecContext(ctx, `DELETE FROM effects WHERE n = 1`)
				return err
			},
			func(s Summary) int { return s.NotApplied },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watching(func(ctx context.Context, d *Demo) error {
				await(ctx, t, d, func(s *Snapshot) bool {
					return s.Sent > 10 && s.Consumers[0].Applied > 0 && s.Consumers[1].Applied > 0
				})
				if err := c.sabotage(ctx, d); err != nil {
					return err
				}
				placed := d.book.counts().eventsCommitted
				await(ctx, t, d, func(*Snapshot) bool { return d.book.counts().eventsCommitted > placed+10 })
				return nil
			})
			s, err := Run(t.Context(), Options{Rate: 30, Linger: true, Dir: t.TempDir()}, w)
			require.NoError(t, err)
			require.Positive(t, c.broken(s), "%+v", s)
			require.True(t, s.Broken())
		})
	}
}
