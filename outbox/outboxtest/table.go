// Package outboxtest lets a service's own tests look at the events it wrote, within the transaction
// that wrote them or after it.
//
//	table := outboxtest.Table{Dialect: outbox.Postgres}
//	...
//	service.PlaceOrder(ctx, tx, order)
//	table.Require(t, tx, outbox.Event{AggregateType: "Order", AggregateID: "o-71", Type: "OrderCreated", Payload: want})
//
// It owns reading the table back and comparing events. It refuses to know the relay's columns and any
// driver; with pgx use Query and Scan.
package outboxtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// Table is the outbox table to look at. Dialect is required.
type Table struct {
	// Dialect is the database.
	Dialect outbox.Dialect
	// Options are what the service's writer got. The zero value is the product's own table.
	Options outbox.Options
	// OrderBy is the column in whose order events are listed. Defaults to id; outbox.Omit for none.
	OrderBy string
}

// Querier is where the table is read: *sql.Tx sees what is not committed yet, *sql.DB does not.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Rows is what Scan needs of *sql.Rows and pgx.Rows.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// fields lists the columns in the order in which Query selects them.
func (tb Table) fields() (names []string, types []outbox.ColumnType) {
	o := tb.Options.WithDefaults(tb.Dialect)
	c := o.Columns
	return []string{
			c.EventID, c.AggregateType, c.AggregateID, c.EventType, c.Topic, c.MessageKey, c.Payload, c.Headers,
		}, []outbox.ColumnType{
			o.EventIDType, outbox.Text, outbox.Text, outbox.Text, outbox.Text, o.KeyType, o.PayloadType, o.HeadersType,
		}
}

// Query returns the statement whose rows Scan reads.
func (tb Table) Query() string {
	names, types := tb.fields()
	selected := make([]string, len(names))
	for i, name := range names {
		switch {
		case name == outbox.Omit:
			selected[i] = "NULL"
		case tb.Dialect == outbox.Postgres && types[i] != outbox.Bytes:
			selected[i] = tb.Dialect.QuoteIdent(name) + "::text"
		default:
			selected[i] = tb.Dialect.QuoteIdent(name)
		}
	}
	table, err := tb.Dialect.QuoteTable(tb.Options.WithDefaults(tb.Dialect).Table)
	if err != nil {
		return err.Error() // the database will say that this is no SQL
	}
	query := "SELECT " + strings.Join(selected, ", ") + " FROM " + table
	switch tb.OrderBy {
	case outbox.Omit:
		return query
	case "":
		return query + " ORDER BY " + tb.Dialect.QuoteIdent("id")
	}
	return query + " ORDER BY " + tb.Dialect.QuoteIdent(tb.OrderBy)
}

// Scan reads all rows of Query as events and ends the test when it cannot.
func (tb Table) Scan(t testing.TB, rows Rows) []outbox.Event {
	t.Helper()
	var events []outbox.Event
	for rows.Next() {
		e, err := tb.scan(rows)
		if err != nil {
			t.Fatalf("read outbox: %v", err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("read outbox: %v", err)
	}
	return events
}

func (tb Table) scan(rows Rows) (outbox.Event, error) {
	// RawBytes is out of place here: the slices outlive the row.
	var id, aggregateType, aggregateID, eventType, topic []byte
	var key, payload, headers nullBytes
	err := rows.Scan(&id, &aggregateType, &aggregateID, &eventType, &topic, &key, &payload, &headers)
	if err != nil {
		return outbox.Event{}, err
	}
	e := outbox.Event{
		ID: string(id), AggregateType: string(aggregateType), AggregateID: string(aggregateID), Type: string(eventType),
		Topic: string(topic), Key: key, Payload: payload,
	}
	if tb.Options.EventIDType == outbox.UUIDBytes && len(id) == 16 {
		e.ID = fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
	}
	if headers != nil {
		if err := json.Unmarshal(headers, &e.Headers); err != nil {
			return outbox.Event{}, fmt.Errorf("headers of event %s: %w", e.ID, err)
		}
	}
	return e, nil
}

// nullBytes keeps NULL and empty apart, which []byte does not with every driver.
type nullBytes []byte

// Scan implements sql.Scanner.
func (n *nullBytes) Scan(value any) error {
	switch v := value.(type) {
	case nil:
		*n = nil
	case []byte:
		*n = append([]byte{}, v...)
	case string:
		*n = append([]byte{}, v...)
	default:
		return fmt.Errorf("column holds %T, want bytes or text", value)
	}
	return nil
}

// Events returns all events of the table and ends the test when it cannot read them.
func (tb Table) Events(t testing.TB, q Querier) []outbox.Event {
	t.Helper()
	rows, err := q.QueryContext(t.Context(), tb.Query())
	if err != nil {
		t.Fatalf("read outbox: %v", err)
	}
	defer rows.Close()
	events := tb.Scan(t, rows)
	if err := rows.Err(); err != nil {
		t.Fatalf("read outbox: %v", err)
	}
	return events
}

// Require reads the table and ends the test unless it holds just the wanted events in their order.
// See Diff for what is compared.
func (tb Table) Require(t testing.TB, q Querier, want ...outbox.Event) {
	t.Helper()
	if diff := Diff(tb.Events(t, q), want...); diff != "" {
		t.Fatalf("outbox differs: %s", diff)
	}
}
