package demo

import (
	"context"
	"time"
)

// Snapshot is the demo at one moment: all that a view shows.
type Snapshot struct {
	Elapsed    time.Duration
	Kafka      string
	Database   string        // database.url of the order service
	Program    string        // how a shell starts this program
	FirstEvent time.Duration // from the start of the process; 0 before
	Stopped    bool          // no more orders come

	OrdersCommitted, OrdersRolledBack int
	OrdersRate                        float64 // a second

	New, Failed, Dead, Sent int
	OldestAge               time.Duration // of the oldest event that waits
	Held                    int           // events behind a dead one

	Delivered     int // events read from Kafka
	DeliveredRate float64
	P50, P99      time.Duration // COMMIT to readable, of the last deliveries

	Consumers []ConsumerState

	Phantom, Doubled, OutOfOrder int // so far

	Last []Delivery // the newest last

	BrokerUp  bool
	DeadEvent *DeadEvent // the oldest that nobody has discarded
	deeds     deeds
	at        time.Time
}

// ConsumerState is one consumer at one moment.
type ConsumerState struct {
	Name             string
	Applied, Skipped int // effects in its tables; repetitions that its inbox kept away
	Behind           int // events that it has not read yet
	Total            int
	Unit             string
}

// Snapshot looks at everything. It fails only when the database does.
func (d *Demo) Snapshot(ctx context.Context) (Snapshot, error) {
	now := time.Now()
	c := d.book.counts()
	seen := d.recorder.seen()
	s := Snapshot{
		at: now, Elapsed: now.Sub(d.started), FirstEvent: d.FirstEvent(), Stopped: d.stopped.Load(),
		Kafka: d.Kafka(), Database: databaseURL(d.ordersPath()), Program: d.o.Program,
		OrdersCommitted: c.ordersCommitted, OrdersRolledBack: c.ordersRolledBack, P50: c.p50, P99: c.p99,
		Delivered: seen.delivered, Phantom: seen.phantom, Doubled: seen.doubled, OutOfOrder: seen.outOfOrder, Last: seen.last,
		BrokerUp: d.broker.door.isOpen(),
	}
	table, err := d.look(ctx)
	if err != nil {
		return s, err
	}
	s.New, s.Failed, s.Dead, s.Held, s.OldestAge = table.fresh, table.failed, table.dead, table.held, table.oldest
	s.Sent = max(c.eventsCommitted-s.New-s.Failed-s.Dead, 0)
	if s.Dead > 0 {
		dead, err := d.dead(ctx)
		if err != nil {
			return s, err
		}
		if len(dead) > 0 {
			s.DeadEvent = &dead[0]
		}
	}
	for _, c := range d.consumers {
		state := ConsumerState{Name: c.name, Unit: c.unit, Behind: d.recorder.ahead(c.position())}
		state.Applied, state.Skipped, state.Total = c.numbers()
		s.Consumers = append(s.Consumers, state)
	}
	s.OrdersRate, s.DeliveredRate = d.rates.add(now, c.ordersCommitted+c.ordersRolledBack, seen.delivered)
	s.deeds = d.noteHealed(now, table.due())
	return s, nil
}

// noteHealed writes down when what an outage had left waiting was delivered.
func (d *Demo) noteHealed(now time.Time, due int) deeds {
	const calm = 5 // a few are always on their way
	d.faults.change(func(f *deeds) {
		if !f.brokerBack.IsZero() && f.brokerDown.IsZero() && f.healed.IsZero() && due <= calm {
			f.healed = now
		}
	})
	return d.faults.now()
}

// rates turns counters into numbers a second over the last two seconds. One watcher uses it.
type rates struct {
	points []ratePoint
}

type ratePoint struct {
	at             time.Time
	orders, events int
}

func (r *rates) add(now time.Time, orders, events int) (ordersRate, eventsRate float64) {
	const window = 2 * time.Second
	r.points = append(r.points, ratePoint{now, orders, events})
	for len(r.points) > 2 && now.Sub(r.points[1].at) >= window {
		r.points = r.points[1:]
	}
	first := r.points[0]
	seconds := now.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(orders-first.orders) / seconds, float64(events-first.events) / seconds
}
