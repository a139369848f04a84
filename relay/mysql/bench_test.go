package mysql

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// BenchmarkStore_Drain reads and marks b.N events of 300 B as a relay does: the next batch is read
// while the last one is being marked. Run with -benchtime=200000x.
func BenchmarkStore_Drain(b *testing.B) {
	for _, v := range []flavour{mysqlServer, mariadbServer} {
		for _, batch := range []int{1000, 2000} {
			for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
				b.Run(fmt.Sprintf("%s/%s/%d", v.name, claim, batch), func(b *testing.B) {
					if os.Getenv(v.env) == "" {
						b.Skipf("set %s, for example with dev/servers up", v.env)
					}
					drain(b, v, claim, batch)
				})
			}
		}
	}
}

func drain(b *testing.B, v flavour, claim relay.ClaimMode, batch int) {
	dsn, db := v.newDatabase(b, "")
	payload := strings.Repeat("x", 300)
	for n := 0; n < b.N; {
		var q strings.Builder
		q.WriteString("INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES ")
		for i := 0; i < 1000 && n < b.N; i++ {
			if i > 0 {
				q.WriteByte(',')
			}
			fmt.Fprintf(&q, "('%036d', 'order', 'o-%d', 'OrderCreated', '%s')", n, n%5000, payload)
			n++
		}
		_, err := db.ExecContext(b.Context(), q.String())
		require.NoError(b, err)
	}
	s, err := Open(b.Context(), relay.StoreOptions{URL: dsn, Name: "bench", Relay: "bench", Table: ownTable(),
		Claim: claim})
	require.NoError(b, err)
	defer s.Close()
	b.ResetTimer()
	var (
		mu      sync.Mutex
		busy    = map[relay.RowID]struct{}{}
		batches = make(chan []relay.Event, 1)
		wg      sync.WaitGroup
	)
	wg.Go(func() {
		for evs := range batches {
			outs := make([]relay.Outcome, len(evs))
			for i, e := range evs {
				outs[i] = relay.Outcome{Row: e.Row, EventID: e.ID, Claim: e.Claim, From: e.State, State: relay.StateSent,
					Receipt: relay.Receipt{Topic: "order-events", Partition: int32(i % 12), Offset: int64(i)}}
			}
			lost, err := s.Settle(context.Background(), outs)
			if err != nil || len(lost) > 0 {
				b.Errorf("settle: lost %d, %v", len(lost), err)
			}
			mu.Lock()
			for _, e := range evs {
				delete(busy, e.Row)
			}
			mu.Unlock()
		}
	})
	for read := 0; read < b.N; {
		f := relay.Fetch{Limit: batch, MaxBytes: 8 << 20}
		mu.Lock()
		for row := range busy {
			f.Busy = append(f.Busy, row)
		}
		mu.Unlock()
		got, err := s.Fetch(b.Context(), f)
		require.NoError(b, err)
		require.NotEmpty(b, got.Events)
		read += len(got.Events)
		mu.Lock()
		for _, e := range got.Events {
			busy[e.Row] = struct{}{}
		}
		mu.Unlock()
		batches <- got.Events
	}
	close(batches)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
