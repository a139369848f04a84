package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// recorder is a transaction that keeps what it is asked to execute.
type recorder struct {
	queries []string
	args    [][]any
	err     error
}

func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	r.queries = append(r.queries, query)
	r.args = append(r.args, args)
	return nil, r.err
}

func (r *recorder) Commit() error   { panic("the writer commits nothing") }
func (r *recorder) Rollback() error { panic("the writer rolls back nothing") }

func order(id string) Event {
	return Event{ID: id, AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: []byte(`{"a":1}`)}
}

func TestWriter_Write_OneStatementPerDialect(t *testing.T) {
	t.Parallel()
	full := Event{
		ID: "e-1", AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Topic: "orders", Key: []byte("u-7"),
		Payload: []byte(`{"a":1}`), Headers: map[string]string{"b": "2", "a": "1"},
	}
	bare := Event{ID: "e-2", AggregateType: "Order", AggregateID: "o-71", Type: "OrderDeleted", Key: []byte{}}
	for _, c := range []struct {
		dialect Dialect
		options Options
		query   string
		args    []any
	}{
		{
			Postgres, Options{},
			`INSERT INTO "outbox_events" ("event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "message_key", "payload", "headers") VALUES ` +
				`($1, $2, $3, $4, $5, $6, $7, $8), ($9, $10, $11, $12, $13, $14, $15, $16)`,
			[]any{
				"e-1", "Order", "o-71", "OrderCreated", "orders", "u-7", []byte(`{"a":1}`), `{"a":"1","b":"2"}`,
				"e-2", "Order", "o-71", "OrderDeleted", nil, "", nil, nil,
			},
		},
		{
			MySQL, Options{Table: "`cap.published`", Columns: Columns{EventType: Omit, AggregateType: "kind"}, PayloadType: Text, KeyType: Bytes},
			"INSERT INTO `cap.published` (`event_id`, `kind`, `aggregate_id`, `topic`, `message_key`, `payload`, `headers`) VALUES " +
				"(?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?)",
			[]any{
				"e-1", "Order", "o-71", "orders", []byte("u-7"), `{"a":1}`, `{"a":"1","b":"2"}`,
				"e-2", "Order", "o-71", nil, []byte{}, nil, nil,
			},
		},
		{
			SQLite, Options{Table: `main."Out""box"`, Set: map[string]string{"created_at": "datetime('now')", "a": "1"}},
			`INSERT INTO "main"."Out""box" ("event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "message_key", "payload", "headers", "a", "created_at") VALUES ` +
				`(?, ?, ?, ?, ?, ?, ?, ?, 1, datetime('now')), (?, ?, ?, ?, ?, ?, ?, ?, 1, datetime('now'))`,
			[]any{
				"e-1", "Order", "o-71", "OrderCreated", "orders", "u-7", []byte(`{"a":1}`), `{"a":"1","b":"2"}`,
				"e-2", "Order", "o-71", "OrderDeleted", nil, "", nil, nil,
			},
		},
	} {
		tx := &recorder{}
		if err := New(c.dialect, c.options).Write(t.Context(), tx, full, bare); err != nil {
			t.Fatalf("%s: %v", c.dialect, err)
		}
		if len(tx.queries) != 1 || tx.queries[0] != c.query {
			t.Errorf("%s: got\n%s\nwant\n%s", c.dialect, strings.Join(tx.queries, "\n"), c.query)
		}
		if !reflect.DeepEqual(tx.args[0], c.args) {
			t.Errorf("%s: got\n%#v\nwant\n%#v", c.dialect, tx.args[0], c.args)
		}
	}
}

func TestWriter_Write_NothingToDo(t *testing.T) {
	t.Parallel()
	tx := &recorder{}
	if err := New(Postgres, Options{}).Write(t.Context(), tx); err != nil || len(tx.queries) > 0 {
		t.Fatalf("err %v, queries %v", err, tx.queries)
	}
	if err := New(Postgres, Options{}).Write(t.Context(), nil, order("e-1")); err == nil {
		t.Fatal("a nil transaction passed")
	}
}

func TestWriter_Write_DrawsIDs(t *testing.T) {
	t.Parallel()
	tx := &recorder{}
	events := []Event{order(""), order("")}
	if err := New(Postgres, Options{}).Write(t.Context(), tx, events...); err != nil {
		t.Fatal(err)
	}
	first, second := tx.args[0][0].(string), tx.args[0][8].(string)
	if len(first) != 36 || first >= second {
		t.Fatalf("ids %s, %s", first, second)
	}
	if events[0].ID != "" {
		t.Fatal("the caller's event was changed")
	}
}

func TestWriter_Write_SplitsWithinLimits(t *testing.T) {
	t.Parallel()
	events := func(n, size int) []Event {
		all := make([]Event, n)
		for i := range all {
			all[i] = order(fmt.Sprintf("e-%d", i))
			all[i].Payload = make([]byte, size)
		}
		return all
	}
	for _, c := range []struct {
		name    string
		dialect Dialect
		events  []Event
		rows    []int
	}{
		{"parameters of PostgreSQL", Postgres, events(9000, 1), []int{8191, 809}},
		{"parameters of SQLite", SQLite, events(9000, 1), []int{4095, 4095, 810}},
		{"bytes", MySQL, events(5, 400<<10), []int{2, 2, 1}},
		{"a row beyond the bytes goes alone", MySQL, events(3, 2<<20), []int{1, 1, 1}},
	} {
		tx := &recorder{}
		if err := New(c.dialect, Options{}).Write(t.Context(), tx, c.events...); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var rows []int
		next := 0
		for i, args := range tx.args {
			rows = append(rows, len(args)/8)
			if marks := strings.Count(tx.queries[i], "?") + strings.Count(tx.queries[i], "$"); marks != len(args) {
				t.Errorf("%s: %d parameters in the text, %d arguments", c.name, marks, len(args))
			}
			for k := 0; k < len(args); k += 8 {
				if args[k] != c.events[next].ID {
					t.Fatalf("%s: row %d holds %v", c.name, next, args[k])
				}
				next++
			}
		}
		if !reflect.DeepEqual(rows, c.rows) || next != len(c.events) {
			t.Errorf("%s: rows %v, want %v", c.name, rows, c.rows)
		}
	}
}

func TestWriter_Write_TraceContext(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	write := func(options Options, parent, state string, e Event) (map[string]string, error) {
		options.TraceContext = func(context.Context) (string, string) { return parent, state }
		tx := &recorder{}
		if err := New(Postgres, options).Write(t.Context(), tx, e); err != nil {
			return nil, err
		}
		text, _ := tx.args[0][len(tx.args[0])-1].(string)
		headers := map[string]string{}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &headers); err != nil {
				t.Fatal(err)
			}
		}
		return headers, nil
	}
	own := order("e-1")
	own.Headers = map[string]string{"traceparent": "mine", "x": "y"}
	old := order("e-1")
	old.Headers = map[string]string{"tracestate": "stale", "x": "y"}
	for name, c := range map[string]struct {
		parent, state string
		event         Event
		want          map[string]string
	}{
		"stored":                {parent, "k=v", order("e-1"), map[string]string{"traceparent": parent, "tracestate": "k=v"}},
		"no state":              {parent, "", old, map[string]string{"traceparent": parent, "x": "y"}},
		"none":                  {"", "k=v", order("e-1"), map[string]string{}},
		"the event's own wins":  {parent, "k=v", own, map[string]string{"traceparent": "mine", "x": "y"}},
		"a broken one is left":  {"00-\x00", "k=v", order("e-1"), map[string]string{}},
		"a state beyond reason": {parent, strings.Repeat("x", 600), order("e-1"), map[string]string{"traceparent": parent}},
	} {
		got, err := write(Options{}, c.parent, c.state, c.event)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
	if len(own.Headers) != 2 || len(old.Headers) != 2 {
		t.Error("the caller's map was changed")
	}
	if _, err := write(Options{Columns: Columns{Headers: Omit}}, parent, "", order("e-1")); err != nil {
		t.Errorf("without a headers column: %v", err)
	}
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	w := New("oracle", Options{
		Table: "a.b.c", PayloadType: "xml", EventIDType: JSON, Columns: Columns{Topic: "event_id"}, Set: map[string]string{"payload": "1"},
	})
	err := w.Err()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"oracle", "a.b.c", "PayloadType", "EventIDType", `"event_id" is filled twice`, `"payload" is filled twice`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	tx := &recorder{}
	if got := w.Write(t.Context(), tx, order("e-1")); !errors.Is(got, err) || len(tx.queries) > 0 {
		t.Errorf("Write: %v", got)
	}
	if err := New(Postgres, Options{}).Err(); err != nil {
		t.Errorf("valid options: %v", err)
	}
	if New(MySQL, Options{PayloadType: JSONB}).Err() == nil {
		t.Error("jsonb passed on MySQL")
	}
	for _, o := range []Options{ArticlePostgres(), Debezium()} {
		if err := New(Postgres, o).Err(); err != nil {
			t.Error(err)
		}
	}
	if err := New(MySQL, ArticleMySQL()).Err(); err != nil {
		t.Error(err)
	}
}

func TestWriter_Write_KeepsTheDriversError(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	err := New(Postgres, Options{}).Write(t.Context(), &recorder{err: broken}, order("e-1"))
	if !errors.Is(err, broken) || errors.Is(err, ErrDuplicateEvent) {
		t.Fatal(err)
	}
}

func BenchmarkWriter_Write(b *testing.B) {
	for _, ct := range []ColumnType{Bytes, JSONB} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", ct, n), func(b *testing.B) {
				w := New(Postgres, Options{PayloadType: ct})
				events := make([]Event, n)
				for i := range events {
					events[i] = order("")
					events[i].Payload = []byte(`{"pad":"` + strings.Repeat("x", 280) + `"}`)
					events[i].Headers = map[string]string{"source": "order-service"}
				}
				tx := discard{}
				b.ReportAllocs()
				for b.Loop() {
					if err := w.Write(b.Context(), tx, events...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// discard is a transaction that costs nothing.
type discard struct{}

func (discard) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }
func (discard) Commit() error                                                   { return nil }
func (discard) Rollback() error                                                 { return nil }
