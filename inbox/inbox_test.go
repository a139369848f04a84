package inbox

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// fake answers every statement alike.
type fake struct {
	queries []string
	rows    int64
	err     error
}

func (f *fake) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	f.queries = append(f.queries, query)
	return f, f.err
}
func (f *fake) RowsAffected() (int64, error) { return f.rows, nil }
func (f *fake) LastInsertId() (int64, error) { panic("nobody asks") }
func (f *fake) Commit() error                { panic("the inbox commits nothing") }
func (f *fake) Rollback() error              { panic("the inbox rolls back nothing") }

func TestInbox_Once_Statements(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dialect outbox.Dialect
		options Options
		want    string
	}{
		{outbox.Postgres, Options{}, `INSERT INTO "inbox_events" ("consumer_group", "event_id") VALUES ($1, $2) ON CONFLICT ("consumer_group", "event_id") DO NOTHING`},
		{outbox.SQLite, Options{Table: "main.Inbox"}, `INSERT INTO "main"."Inbox" ("consumer_group", "event_id") VALUES (?, ?) ON CONFLICT ("consumer_group", "event_id") DO NOTHING`},
		{outbox.MySQL, ArticleMySQL(), "INSERT INTO `consumed_event` (`consumer_name`, `event_id`, `consumed_at`) VALUES (?, ?, NOW())"},
		{outbox.Postgres, ArticlePostgres(), `INSERT INTO "processed_events" ("consumer_group", "event_id") VALUES ($1, $2) ON CONFLICT ("event_id") DO NOTHING`},
	} {
		tx := &fake{rows: 1}
		ran := false
		fresh, err := New(c.dialect, "g", c.options).Once(t.Context(), tx, "e-1", func(context.Context) error { ran = true; return nil })
		if err != nil || !fresh || !ran {
			t.Errorf("%s: %v, %v", c.dialect, fresh, err)
		}
		if len(tx.queries) != 1 || tx.queries[0] != c.want {
			t.Errorf("got  %s\nwant %s", strings.Join(tx.queries, "\n"), c.want)
		}
	}
}

func TestInbox_Once_Outcomes(t *testing.T) {
	t.Parallel()
	duplicate := errors.New("Error 1062 (23000): Duplicate entry 'g-e-1' for key 'inbox_events.PRIMARY'")
	never := func(context.Context) error { t.Error("the handler ran"); return nil }
	for _, c := range []struct {
		name    string
		dialect outbox.Dialect
		tx      *fake
		err     error // nil: a duplicate, without an error; errAny: no matter which
	}{
		{"no row", outbox.Postgres, &fake{}, nil},
		{"MySQL's duplicate", outbox.MySQL, &fake{err: duplicate}, nil},
		{"MariaDB's, other order of columns", outbox.MariaDB, &fake{err: errors.New("Error 1062 (23000): Duplicate entry 'e-1-g' for key 'uk'")}, nil},
		{"of another table", outbox.MySQL, &fake{err: errors.New("Error 1062 (23000): Duplicate entry 'g-e-1' for key 'audit.PRIMARY'")}, errAny},
		{"of another value", outbox.MariaDB, &fake{err: errors.New("Error 1062 (23000): Duplicate entry '1' for key 'PRIMARY'")}, errAny},
		{"on PostgreSQL it is an error", outbox.Postgres, &fake{err: duplicate}, errAny},
		{"SQLite's missing key", outbox.SQLite, &fake{err: errors.New("ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint")}, ErrNoUniqueKey},
		{"connection", outbox.MySQL, &fake{err: errors.New("bad connection")}, errAny},
	} {
		fresh, err := New(c.dialect, "g", Options{}).Once(t.Context(), c.tx, "e-1", never)
		switch {
		case fresh:
			t.Errorf("%s: fresh", c.name)
		case c.err == nil && err != nil, c.err != nil && err == nil:
			t.Errorf("%s: %v", c.name, err)
		case c.err != nil && !errors.Is(c.err, errAny) && !errors.Is(err, c.err):
			t.Errorf("%s: %v", c.name, err)
		case c.tx.err != nil && err != nil && !errors.Is(err, c.tx.err):
			t.Errorf("%s: the driver's error is lost: %v", c.name, err)
		}
	}
	tx := &fake{rows: 1}
	if _, err := New(outbox.MySQL, "", Options{}).Once(t.Context(), tx, "e-1", never); err == nil || len(tx.queries) > 0 {
		t.Errorf("an empty group: %v", err)
	}
}

var errAny = errors.New("any")

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	err := New("oracle", strings.Repeat("g", 256), Options{
		Table: "a..b", EventIDAlone: true, Columns: Columns{ConsumerGroup: "x", EventID: "x"}, Set: map[string]string{"x": "1"},
	}).Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"oracle", "256 characters", "a..b", "EventIDAlone", "both group and event id", "filled already"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
