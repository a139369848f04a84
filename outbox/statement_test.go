package outbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

func TestWriter_Statements_AreThoseOfWrite(t *testing.T) {
	t.Parallel()
	events := make([]Event, 9000) // beyond the parameters of one statement
	for i := range events {
		events[i] = order(fmt.Sprintf("e-%d", i))
	}
	for _, d := range Dialects() {
		w := New(d, Options{TraceContext: func(context.Context) (string, string) { return "00-aa-bb-01", "" }})
		tx := &recorder{}
		if err := w.Write(t.Context(), tx, events...); err != nil {
			t.Fatal(err)
		}
		statements, err := w.Statements(t.Context(), events...)
		if err != nil || len(statements) < 2 || len(statements) != len(tx.queries) {
			t.Fatalf("%s: %d statements, %d of Write, %v", d, len(statements), len(tx.queries), err)
		}
		for i, s := range statements {
			if s.Query != tx.queries[i] || !reflect.DeepEqual(s.Args, tx.args[i]) {
				t.Errorf("%s: statement %d is another than that of Write", d, i)
			}
		}
	}
}

func TestWriter_Statements_NoneAfterAnError(t *testing.T) {
	t.Parallel()
	w := New(Postgres, Options{})
	if statements, err := w.Statements(t.Context()); err != nil || statements != nil {
		t.Errorf("no events: %v, %v", statements, err)
	}
	broken := order("e-2")
	broken.Type = ""
	var invalid *ValidationError
	if statements, err := w.Statements(t.Context(), order("e-1"), broken); !errors.As(err, &invalid) || statements != nil {
		t.Errorf("an invalid event: %v, %v", statements, err)
	}
	if _, err := w.Statements(t.Context(), order("e-1"), order("e-1")); !errors.Is(err, ErrDuplicateEvent) {
		t.Errorf("the same id twice: %v", err)
	}
	w = New(Postgres, Options{PayloadType: "xml"})
	for _, events := range [][]Event{nil, {order("e-1")}} {
		if statements, err := w.Statements(t.Context(), events...); !errors.Is(err, w.Err()) || statements != nil {
			t.Errorf("wrong options: %v, %v", statements, err)
		}
	}
}

func TestStatement_Err(t *testing.T) {
	t.Parallel()
	statements, err := New(MySQL, Options{}).Statements(t.Context(), order("e-1"), order("e-2"))
	if err != nil || len(statements) != 1 {
		t.Fatal(statements, err)
	}
	if err := statements[0].Err(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
	lost := errors.New("connection reset")
	if err := statements[0].Err(lost); !errors.Is(err, lost) || errors.Is(err, ErrDuplicateEvent) {
		t.Errorf("another error: %v", err)
	}
	refused := errors.New("Error 1062 (23000): Duplicate entry 'e-2' for key 'outbox_events.outbox_events_event_id_key'")
	var dup *DuplicateError
	if err := statements[0].Err(refused); !errors.As(err, &dup) || !reflect.DeepEqual(dup.EventIDs, []string{"e-2"}) || !errors.Is(err, refused) {
		t.Errorf("a duplicate: %v", err)
	}
}
