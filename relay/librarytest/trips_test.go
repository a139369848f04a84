package librarytest

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

// counted is the same base through a proxy that counts round trips.
func (b *base) counted(t *testing.T) (*base, *proxy) {
	t.Helper()
	p := newProxy(t, b.url.Host)
	through, u := *b, *b.url
	u.Host = p.addr
	through.url = &u
	return &through, p
}

// took says how many round trips something took.
func (p *proxy) took(t *testing.T, do func() error) int {
	t.Helper()
	before := p.trips.Load()
	require.NoError(t, do())
	return int(p.trips.Load() - before)
}

// TestWriter_Write_IsOneRoundTrip, however many events it writes. The first time a connection meets a
// statement, pgx takes one more to prepare it.
func TestWriter_Write_IsOneRoundTrip(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		through, p := b.apply(t).counted(t)
		params := url.Values{"interpolateParams": {"true"}}
		if b.dialect == outbox.Postgres {
			params = url.Values{"search_path": {b.name}}
		}
		db := through.open(t, params)
		w := outbox.New(b.dialect, outbox.Options{})
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		two := func() error { return w.Write(t.Context(), tx, order(""), order("")) }
		single := func() error { return w.Write(t.Context(), tx, order("")) }
		require.NoError(t, single())
		require.NoError(t, two())
		for range 3 {
			require.Equal(t, 1, p.took(t, single), "one event")
			require.Equal(t, 1, p.took(t, two), "two events")
		}
		require.Zero(t, p.took(t, func() error { return w.Write(t.Context(), tx) }), "no event")
		require.NoError(t, tx.Commit())
	}, outbox.Postgres, outbox.MySQL, outbox.MariaDB)
}

// TestPgxWriter_Queue_IsNoRoundTrip: a batch with an event goes out and comes back as one without does.
func TestPgxWriter_Queue_IsNoRoundTrip(t *testing.T) {
	t.Parallel()
	w := outboxpgx.New(outbox.Options{})
	on(t, func(t *testing.T, b *base) {
		through, p := b.apply(t).counted(t)
		for _, mode := range queryModes {
			conn := pgxConn(t, through, mode, url.Values{"search_path": {b.name}})
			send := func(events ...outbox.Event) func() error {
				return func() error {
					batch := &pgx.Batch{}
					batch.Queue("SELECT 1")
					if err := w.Queue(t.Context(), batch, events...); err != nil {
						return err
					}
					return conn.SendBatch(t.Context(), batch).Close()
				}
			}
			require.NoError(t, send(order(""))())
			want := 1
			if mode == pgx.QueryExecModeDescribeExec {
				want = 2 // it asks for the types each time
			}
			require.Equal(t, want, p.took(t, send()), "%s: without an event", mode)
			require.Equal(t, want, p.took(t, send(order(""))), "%s: with an event", mode)
		}
	}, outbox.Postgres)
}
