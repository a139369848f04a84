package librarytest

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
)

func nothing(context.Context) error { return nil }

func TestInbox_Once(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE stock (n INT)")
		inventory := inbox.New(b.dialect, "inventory", inbox.Options{})
		points := inbox.New(b.dialect, "points", inbox.Options{})
		apply := func(box *inbox.Inbox, id string) (fresh bool) {
			t.Helper()
			b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
				var err error
				fresh, err = box.Once(ctx, tx, id, func(ctx context.Context) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO stock VALUES (1)")
					return err
				})
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, "UPDATE stock SET n = n")
				require.NoError(t, err, "a duplicate leaves the transaction usable")
			})
			return fresh
		}
		require.True(t, apply(inventory, "e-71"))
		require.False(t, apply(inventory, "e-71"))
		require.True(t, apply(points, "e-71"), "another group applies it too")
		require.True(t, apply(inventory, "E-71"), "ids are told apart by case")
		require.True(t, apply(inventory, "e-71 "), "and by a space at the end")
		require.False(t, apply(points, "e-71"))
		require.Equal(t, 4, one[int](t, b, "SELECT count(*) FROM stock"))

		// A failing handler takes its note with it.
		broken := errors.New("no stock")
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		fresh, err := inventory.Once(t.Context(), tx, "e-72", func(context.Context) error { return broken })
		require.True(t, fresh)
		require.Same(t, broken, err)
		require.NoError(t, tx.Rollback())
		require.True(t, apply(inventory, "e-72"))

		// Twice within one transaction, as a batch may hold it.
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			for _, want := range []bool{true, false} {
				fresh, err := inventory.Once(ctx, tx, "e-73", nothing)
				require.NoError(t, err)
				require.Equal(t, want, fresh)
			}
		})
	})
}

// TestInbox_RefusesIDsItCannotTellApart: a database that cuts an id would take two events for one.
func TestInbox_RefusesIDsItCannotTellApart(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		b.apply(t)
		box := inbox.New(b.dialect, "inventory", inbox.Options{})
		b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
			for _, id := range []string{"", strings.Repeat("é", 256), "a\x00b", "a\xff"} {
				fresh, err := box.Once(ctx, tx, id, nothing)
				require.ErrorIs(t, err, inbox.ErrEventID)
				require.False(t, fresh)
			}
			fresh, err := box.Once(ctx, tx, strings.Repeat("😀", 255), nothing)
			require.NoError(t, err)
			require.True(t, fresh)
		})
	})
}

// TestInbox_MySQLClientSettings: what is new must not depend on how rows are counted.
func TestInbox_MySQLClientSettings(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t)
		for _, params := range []url.Values{
			{"clientFoundRows": {"true"}}, {"clientFoundRows": {"true"}, "interpolateParams": {"true"}}, {"sql_mode": {"''"}},
		} {
			db := b.open(t, params)
			box := inbox.New(b.dialect, params.Encode(), inbox.Options{})
			for _, want := range []bool{true, false, false} {
				tx, err := db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				fresh, err := box.Once(t.Context(), tx, "e-71", nothing)
				require.NoError(t, err)
				require.Equal(t, want, fresh, "%v", params)
				require.NoError(t, tx.Commit())
			}
		}
	}, outbox.MySQL, outbox.MariaDB)
}

func TestInbox_ArticleTables(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.exec(t, `CREATE TABLE processed_events (event_id VARCHAR(64) PRIMARY KEY, consumer_group VARCHAR(128) NOT NULL,
			processed_at TIMESTAMP NOT NULL DEFAULT NOW())`)
		once := func(group string) (bool, error) {
			box := inbox.New(b.dialect, group, inbox.ArticlePostgres())
			require.NoError(t, box.Check(t.Context(), b.DB))
			tx, err := b.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			fresh, err := box.Once(t.Context(), tx, "e-71", nothing)
			if err == nil {
				require.NoError(t, tx.Commit())
			}
			return fresh, err
		}
		fresh, err := once("inventory")
		require.NoError(t, err)
		require.True(t, fresh)
		fresh, err = once("inventory")
		require.NoError(t, err)
		require.False(t, fresh)
		_, err = once("points")
		require.ErrorIs(t, err, inbox.ErrForeignGroup, "another group's work must not be hidden")
		require.ErrorContains(t, err, "make it (consumer_group, event_id)")
	}, outbox.Postgres)
	on(t, func(t *testing.T, b *base) {
		b.exec(t, `CREATE TABLE consumed_event (id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL,
			consumer_name VARCHAR(128) NOT NULL, consumed_at DATETIME NOT NULL, UNIQUE KEY uk_event_consumer (event_id, consumer_name))`)
		for _, group := range []string{"inventory", "points"} {
			box := inbox.New(b.dialect, group, inbox.ArticleMySQL())
			require.NoError(t, box.Check(t.Context(), b.DB))
			for _, want := range []bool{true, false, false} {
				b.inTx(t, func(ctx context.Context, tx *sql.Tx) {
					fresh, err := box.Once(ctx, tx, "e-71", nothing)
					require.NoError(t, err)
					require.Equal(t, want, fresh)
				})
			}
		}
		require.Equal(t, 2, one[int](t, b, "SELECT count(*) FROM consumed_event"))
	}, outbox.MySQL, outbox.MariaDB)
}

// TestInbox_DuplicateOfAnotherTable: a trigger's unique key is no repetition of the event.
func TestInbox_DuplicateOfAnotherTable(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, b *base) {
		b.apply(t).exec(t, "CREATE TABLE audit (n INT PRIMARY KEY)", "INSERT INTO audit VALUES (1)",
			"CREATE TRIGGER note AFTER INSERT ON inbox_events FOR EACH ROW INSERT INTO audit VALUES (1)")
		tx, err := b.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = inbox.New(b.dialect, "inventory", inbox.Options{}).Once(t.Context(), tx, "e-71", nothing)
		require.ErrorContains(t, err, "audit")
	}, outbox.MySQL)
}

func TestInbox_Check(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, b *base) {
		box := inbox.New(b.dialect, "inventory", inbox.Options{})
		require.ErrorContains(t, box.Check(t.Context(), b.DB), "inbox_events", "the table is missing")
		require.NoError(t, box.Check(t.Context(), b.apply(t).DB))
		require.Zero(t, one[int](t, b, "SELECT count(*) FROM inbox_events"), "Check writes nothing")
		other := inbox.New(b.dialect, "inventory", inbox.Options{Columns: inbox.Columns{EventID: "message_id"}})
		require.ErrorContains(t, other.Check(t.Context(), b.DB), "message_id")
		wrong := inbox.New("oracle", "", inbox.Options{Table: "a.b.c"})
		for _, want := range []string{"oracle", "consumer group is empty", "a.b.c"} {
			require.ErrorContains(t, wrong.Err(), want)
		}
		require.Equal(t, wrong.Err(), wrong.Check(t.Context(), b.DB))
	})
}
