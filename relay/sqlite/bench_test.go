package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/schema"
)

// BenchmarkStore_Drain reads and marks b.N events of 300 B as a relay does: the next batch is read
// while the last one is being marked. Run with -benchtime=200000x.
func BenchmarkStore_Drain(b *testing.B) {
	for _, batch := range []int{1000, 2000} {
		for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
			b.Run(fmt.Sprintf("%s/%d", claim, batch), func(b *testing.B) { drain(b, claim, batch) })
		}
	}
}

func drain(b *testing.B, claim relay.ClaimMode, batch int) {
	path := b.TempDir() + "/app.db"
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(b, err)
	defer db.Close()
	_, err = db.ExecContext(b.Context(), schema.Print(outbox.SQLite))
	require.NoError(b, err)
	_, err = db.ExecContext(b.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
SELECT printf('%036d', i), 'order', 'o-' || (i % 5000), 'OrderCreated', ? FROM n`, b.N, strings.Repeat("x", 300))
	require.NoError(b, err)
	s, err := Open(b.Context(), relay.StoreOptions{URL: "sqlite:" + path, Name: "bench", Relay: "bench",
		Table: ownTable(), Claim: claim})
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
