package outboxpgx_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/outbox/outboxpgx"
)

func order(id string) outbox.Event {
	return outbox.Event{ID: id, AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: []byte(`{"a":1}`)}
}

// business is a batch with a statement of the caller's.
func business() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO orders VALUES ($1)", "o-71")
	return batch
}

func TestWriter_Queue_AddsOneStatement(t *testing.T) {
	t.Parallel()
	type traced struct{}
	w := outboxpgx.New(outbox.Options{TraceContext: func(ctx context.Context) (string, string) {
		parent, _ := ctx.Value(traced{}).(string)
		return parent, ""
	}})
	batch := business()
	if err := w.Queue(context.WithValue(t.Context(), traced{}, "00-aa-bb-01"), batch, order("e-1"), order("")); err != nil {
		t.Fatal(err)
	}
	if batch.Len() != 2 || batch.QueuedQueries[0].SQL != "INSERT INTO orders VALUES ($1)" {
		t.Fatalf("%d statements", batch.Len())
	}
	q := batch.QueuedQueries[1]
	if !strings.HasPrefix(q.SQL, `INSERT INTO "outbox_events"`) || len(q.Arguments) != 16 {
		t.Errorf("%d arguments of %s", len(q.Arguments), q.SQL)
	}
	drawn, _ := q.Arguments[8].(string)
	if q.Arguments[0] != "e-1" || len(drawn) != 36 {
		t.Errorf("ids %v and %v", q.Arguments[0], q.Arguments[8])
	}
	if q.Arguments[7] != `{"traceparent":"00-aa-bb-01"}` {
		t.Errorf("headers %v", q.Arguments[7])
	}
}

func TestWriter_Queue_SplitsWithinLimits(t *testing.T) {
	t.Parallel()
	events := make([]outbox.Event, 9000)
	for i := range events {
		events[i] = order(fmt.Sprintf("e-%d", i))
	}
	batch := business()
	if err := outboxpgx.New(outbox.Options{}).Queue(t.Context(), batch, events...); err != nil {
		t.Fatal(err)
	}
	var rows []int
	for _, q := range batch.QueuedQueries[1:] {
		rows = append(rows, len(q.Arguments)/8)
	}
	if !reflect.DeepEqual(rows, []int{8191, 809}) {
		t.Errorf("rows %v", rows)
	}
}

func TestWriter_Queue_LeavesTheBatchAlone(t *testing.T) {
	t.Parallel()
	w, wrong := outboxpgx.New(outbox.Options{}), outboxpgx.New(outbox.Options{PayloadType: "xml"})
	broken := order("e-2")
	broken.AggregateID = ""
	batch := business()
	if err := w.Queue(t.Context(), batch); err != nil {
		t.Errorf("no events: %v", err)
	}
	var invalid *outbox.ValidationError
	if err := w.Queue(t.Context(), batch, order("e-1"), broken); !errors.As(err, &invalid) || invalid.Index != 1 {
		t.Errorf("an invalid event: %v", err)
	}
	if err := w.Queue(t.Context(), batch, order("e-1"), order("e-1")); !errors.Is(err, outbox.ErrDuplicateEvent) {
		t.Errorf("the same id twice: %v", err)
	}
	if err := wrong.Queue(t.Context(), batch, order("e-1")); !errors.Is(err, wrong.Err()) {
		t.Errorf("wrong options: %v", err)
	}
	if batch.Len() != 1 {
		t.Errorf("the batch has %d statements", batch.Len())
	}
	if err := w.Queue(t.Context(), nil, order("e-1")); err == nil {
		t.Error("a nil batch passed")
	}
	if err := w.Queue(t.Context(), nil); err != nil {
		t.Errorf("nothing for a nil batch: %v", err)
	}
}

// answer is a server's answer to one statement.
type answer struct {
	pgx.BatchResults
	err error
}

func (a answer) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, a.err }

func TestWriter_Queue_TellsDuplicatesFromOtherErrors(t *testing.T) {
	t.Parallel()
	batch := &pgx.Batch{}
	if err := outboxpgx.New(outbox.Options{}).Queue(t.Context(), batch, order("e-1"), order("e-2")); err != nil {
		t.Fatal(err)
	}
	result := func(err error) error { return batch.QueuedQueries[0].Fn(answer{err: err}) }
	if err := result(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	refused := &pgconn.PgError{Code: "23505", TableName: "outbox_events", Detail: "Key (event_id)=(e-2) already exists."}
	var dup *outbox.DuplicateError
	if err := result(refused); !errors.As(err, &dup) || !reflect.DeepEqual(dup.EventIDs, []string{"e-2"}) || !errors.Is(err, refused) {
		t.Errorf("a duplicate: %v", err)
	}
	for _, other := range []error{
		errors.New("connection reset"),
		&pgconn.PgError{Code: "23505", TableName: "orders", Detail: "Key (no)=(e-2) already exists."},
	} {
		if err := result(other); err != other { //nolint:errorlint // it must be the very error, unwrapped
			t.Errorf("%v became %v", other, err)
		}
	}
}
