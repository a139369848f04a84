package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// fill writes n events of about 300 bytes, in few large statements.
func fill(t testing.TB, s *space, n int) {
	t.Helper()
	conn := s.conn()
	payload := "convert_to('{\"order\":' || g || ',\"pad\":\"" + fmt.Sprintf("%0250d", 7) + "\"}', 'UTF8')"
	if typeAfter(s.ddl, "payload") == "JSONB" {
		payload = "('{\"order\":' || g || ',\"pad\":\"" + fmt.Sprintf("%0250d", 7) + "\"}')::jsonb"
	}
	exec(t, conn, fmt.Sprintf(`INSERT INTO outbox_events (event_id, aggregate_type, aggregate_id, event_type, payload)
		SELECT 'event-' || g, 'order', 'key-' || g %% 1000, 'OrderCreated', %s FROM generate_series(1, %d) g`, payload, n))
	_ = conn.Close(t.Context())
}

// drain fetches and settles in batches, side by side as the relay does, and returns the time each side was
// at work and the time of both.
func drain(t testing.TB, st *Store, n, batch int) (fetching, settling, all time.Duration) {
	t.Helper()
	batches := make(chan []relay.Event, 2)
	busy := make(chan []relay.RowID, 1000)
	go func() {
		defer close(busy)
		for evs := range batches {
			outs := make([]relay.Outcome, len(evs))
			rows := make([]relay.RowID, len(evs))
			for i, e := range evs {
				rows[i] = e.Row
				outs[i] = relay.Outcome{Row: e.Row, Claim: e.Claim, From: e.State, State: relay.StateSent,
					Receipt: relay.Receipt{Topic: "orders", Partition: int32(i % 12), Offset: int64(i)}}
			}
			began := time.Now()
			lost, err := st.Settle(t.Context(), outs)
			settling += time.Since(began)
			if err != nil || len(lost) > 0 {
				t.Errorf("settle: %v, lost %d", err, len(lost))
			}
			busy <- rows
		}
	}()
	began := time.Now()
	inFlight := map[relay.RowID]bool{}
	for got := 0; got < n; {
		for len(busy) > 0 {
			for _, row := range <-busy {
				delete(inFlight, row)
			}
		}
		f := relay.Fetch{Limit: batch, MaxBytes: 8 << 20}
		for row := range inFlight {
			f.Busy = append(f.Busy, row)
		}
		at := time.Now()
		answer, err := st.Fetch(t.Context(), f)
		fetching += time.Since(at)
		require.NoError(t, err)
		got += len(answer.Events)
		for _, e := range answer.Events {
			inFlight[e.Row] = true
		}
		if len(answer.Events) > 0 {
			batches <- answer.Events
		}
	}
	close(batches)
	for range busy {
	}
	return fetching, settling, time.Since(began)
}

// BenchmarkDrain reads and settles 200,000 events of 300 bytes in batches of 2000.
func BenchmarkDrain(b *testing.B) {
	const n, batch = 200_000, 2000
	for _, sh := range shapes() {
		for _, claim := range []relay.ClaimMode{relay.ClaimSingle, relay.ClaimRows} {
			if sh.name != "own" && sh.name != "article" {
				continue
			}
			b.Run(sh.name+"/"+string(claim), func(b *testing.B) {
				url := server(b, "POSTRIDER_TEST_POSTGRES")
				for range b.N {
					b.StopTimer()
					s := newSpace(b, url, sh.ddl)
					fill(b, s, n)
					st, err := Open(b.Context(), relay.StoreOptions{URL: s.url, Name: "bench", Relay: "bench", Table: sh.table, Claim: claim})
					require.NoError(b, err)
					b.StartTimer()
					fetching, settling, all := drain(b, st, n, batch)
					b.StopTimer()
					require.NoError(b, st.Close())
					b.ReportMetric(float64(n)/all.Seconds(), "events/s")
					b.ReportMetric(float64(n)/fetching.Seconds(), "fetched/s")
					b.ReportMetric(float64(n)/settling.Seconds(), "settled/s")
				}
			})
		}
	}
}

// BenchmarkCeiling is the same work with plain statements and no product code, for the ratio.
func BenchmarkCeiling(b *testing.B) {
	const n, batch = 200_000, 2000
	for range b.N {
		b.StopTimer()
		s := newSpace(b, server(b, "POSTRIDER_TEST_POSTGRES"), ownDDL())
		fill(b, s, n)
		reader, marker := s.conn(), s.conn()
		b.StartTimer()
		batches := make(chan []int64, 2)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ids := range batches {
				topics, partitions := make([]string, len(ids)), make([]int32, len(ids))
				_, err := marker.Exec(b.Context(), `UPDATE outbox_events t SET status = 'SENT', updated_at = clock_timestamp(), sent_at = clock_timestamp(),
					kafka_topic = o.topic, kafka_partition = o.part, kafka_offset = o.id
					FROM unnest($1::int8[], $2::text[], $3::int4[]) o(id, topic, part) WHERE t.id = o.id AND t.status = 'NEW'`, ids, topics, partitions)
				if err != nil {
					b.Error(err)
				}
			}
		}()
		began := time.Now()
		var after int64
		for got := 0; got < n; got += batch {
			rows, err := reader.Query(b.Context(), `SELECT id, event_id, aggregate_type, aggregate_id, event_type, topic, message_key, payload, headers::text, retry_count, created_at
				FROM outbox_events WHERE id > $1 AND status = 'NEW' ORDER BY id LIMIT $2`, after, batch)
			require.NoError(b, err)
			var ids []int64
			for rows.Next() {
				raw := rows.RawValues()
				after = number(raw[0], 1)
				ids = append(ids, after)
			}
			require.NoError(b, rows.Err())
			batches <- ids
		}
		close(batches)
		<-done
		b.ReportMetric(n/time.Since(began).Seconds(), "events/s")
	}
}
