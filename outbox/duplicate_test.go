package outbox

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// pgError has the shape of pgconn.PgError, pqError that of lib/pq's Error.
type pgError struct{ Code, TableName, Detail string }

func (e *pgError) Error() string    { return "ERROR: duplicate key (SQLSTATE " + e.Code + ")" }
func (e *pgError) SQLState() string { return e.Code }

type pqError struct{ Table, Detail string }

func (e *pqError) Error() string    { return "pq: duplicate key" }
func (e *pqError) SQLState() string { return "23505" }

func TestWriter_Write_RecognisesDuplicates(t *testing.T) {
	t.Parallel()
	all := []string{"e-7", "e-71", "e-71-2"}
	partitioned := "Key (event_id, created_at)=(e-71, 2026-11-30 00:00:00+00) already exists."
	for _, c := range []struct {
		name    string
		dialect Dialect
		options Options
		err     error
		want    []string // nil: not a duplicate
	}{
		{"pgx", Postgres, Options{}, &pgError{"23505", "outbox_events", "Key (event_id)=(e-71) already exists."}, []string{"e-71"}},
		{"wrapped", Postgres, Options{}, fmt.Errorf("exec: %w", &pgError{"23505", "outbox_events", "Key (event_id)=(e-71) already exists."}), []string{"e-71"}},
		{"lib/pq", Postgres, Options{}, &pqError{"outbox_events", "Schlüssel »(event_id)=(e-7)« existiert bereits."}, []string{"e-7"}},
		{"longest id", Postgres, Options{}, &pgError{"23505", "outbox_events", "Key (event_id)=(e-71-2) already exists."}, []string{"e-71-2"}},
		{"no SELECT right", Postgres, Options{}, &pgError{"23505", "outbox_events", ""}, all},
		{"partition", Postgres, Options{}, &pgError{"23505", "outbox_events_2026_11", partitioned}, []string{"e-71"}},
		{"a trigger's table", Postgres, Options{}, &pgError{"23505", "audit", "Key (event_id)=(e-71) already exists."}, nil},
		{"another key", Postgres, Options{}, &pgError{"23505", "outbox_events", "Key (id)=(71) already exists."}, nil},
		{"another state", Postgres, Options{}, &pgError{"23514", "outbox_events", ""}, nil},
		{"MySQL", MySQL, Options{}, errors.New("Error 1062 (23000): Duplicate entry 'e-71' for key 'outbox_events.outbox_events_event_id_key'"), []string{"e-71"}},
		{"MariaDB", MariaDB, Options{}, errors.New("Error 1062 (23000): Duplicate entry 'e-71-2' for key 'outbox_events_event_id_key'"), []string{"e-71-2"}},
		{"another language", MariaDB, Options{}, errors.New("Error 1062 (23000): Doppelter Eintrag 'e-7' für Schlüssel 'uk'"), []string{"e-7"}},
		{"MySQL partition", MySQL, Options{}, errors.New("Error 1062 (23000): Duplicate entry 'e-7-2026-11-30' for key 'outbox_events.PRIMARY'"), []string{"e-7"}},
		{"dotted table", MySQL, Options{Table: "`cap.published`"}, errors.New("Error 1062 (23000): Duplicate entry 'e-7' for key 'cap.published.uk'"), []string{"e-7"}},
		{"MySQL trigger", MySQL, Options{}, errors.New("Error 1062 (23000): Duplicate entry 'e-71' for key 'audit.uk'"), nil},
		{"MariaDB other value", MariaDB, Options{}, errors.New("Error 1062 (23000): Duplicate entry 'o-1' for key 'PRIMARY'"), nil},
		{"MySQL other error", MySQL, Options{}, errors.New("Error 1048 (23000): Column 'x' cannot be null"), nil},
		{"SQLite", SQLite, Options{}, errors.New("constraint failed: UNIQUE constraint failed: outbox_events.event_id (2067)"), all},
		{"SQLite mapped", SQLite, Options{Table: "Outbox", Columns: Columns{EventID: "id"}}, errors.New("UNIQUE constraint failed: Outbox.id"), all},
		{"SQLite other table", SQLite, Options{}, errors.New("UNIQUE constraint failed: my_outbox_events.event_id"), nil},
		{"SQLite other column", SQLite, Options{}, errors.New("UNIQUE constraint failed: outbox_events.event_id_2"), nil},
		{"no id column", Postgres, Options{Columns: Columns{EventID: Omit}}, &pgError{"23505", "outbox_events", ""}, nil},
	} {
		events := []Event{order(all[0]), order(all[1]), order(all[2])}
		err := New(c.dialect, c.options).Write(t.Context(), &recorder{err: c.err}, events...)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: the driver's error is lost: %v", c.name, err)
		}
		if errors.Is(err, ErrDuplicateEvent) != (c.want != nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		var dup *DuplicateError
		if errors.As(err, &dup) && !reflect.DeepEqual(dup.EventIDs, c.want) {
			t.Errorf("%s: names %v, want %v", c.name, dup.EventIDs, c.want)
		}
	}
}

func TestDuplicateError_Error(t *testing.T) {
	t.Parallel()
	one := &DuplicateError{EventIDs: []string{"e-71"}}
	if one.Error() != `event id "e-71" is already in the outbox` {
		t.Error(one)
	}
	many := &DuplicateError{EventIDs: []string{"a", "b", "c", "d", "e", "f", "g"}}
	if many.Error() != "an event id is already in the outbox: one of a, b, c, d, e and 2 more" {
		t.Error(many)
	}
}
