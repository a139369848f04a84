package librarytest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

// TestCase_W06_WritersSendNoNotify: a NOTIFY makes transactions commit one after the other, on one lock
// of the whole cluster. Neither the writer nor anything in the table's definition sends one. A session
// that listens and does not read keeps every notification in the queue, whoever sent it.
func TestCase_W06_WritersSendNoNotify(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		deaf, err := b.Conn(t.Context())
		require.NoError(t, err)
		defer deaf.Close()
		for _, sql := range []string{"LISTEN postrider_w06", "BEGIN", "SELECT 1"} {
			_, err = deaf.ExecContext(t.Context(), sql)
			require.NoError(t, err)
		}
		queued := func() float64 { return one[float64](t, b, "SELECT pg_notification_queue_usage()") }

		const commits = 300 // of 100 B at least, if each sent one: more than a page of the queue
		w := outbox.New(outbox.Postgres, outbox.Options{})
		for i := range commits {
			b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
				require.NoError(t, w.Write(ctx, tx, order(fmt.Sprintf("w06-%d", i))))
			})
		}
		require.Equal(t, commits, one[int](t, b, "SELECT count(*) FROM outbox_events"))
		require.Zero(t, queued())

		for i := range commits {
			b.exec(t, fmt.Sprintf("SELECT pg_notify('postrider_w06', '%d')", i))
		}
		require.Positive(t, queued(), "the queue shows what was sent")
		_, err = deaf.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		_, err = deaf.ExecContext(t.Context(), "UNLISTEN *")
		require.NoError(t, err)
	}, outbox.Postgres)
}
