package mysql

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// eventColumns is the select list that eventRow scans, behind the number of its part.
func (l *layout) eventColumns(withPayload bool) string {
	body, created, stamp, retries := "NULL", "NULL", "NULL", "0"
	if withPayload {
		body = col(l.cols.Payload)
	}
	if l.cols.CreatedAt != "" {
		created = instant(l.cols.CreatedAt)
	}
	if l.claim == relay.ClaimRows {
		stamp = "CAST(" + l.now(l.claimColumn()) + " AS CHAR)"
	}
	if l.cols.RetryCount != "" {
		retries = "COALESCE(" + col(l.cols.RetryCount) + ", 0)"
	}
	return strings.Join([]string{
		col(l.cols.ID), l.eventID(), col(l.cols.AggregateType), l.textOf(l.cols.AggregateID), col(l.cols.EventType),
		col(l.cols.Topic), l.key, body, col(l.cols.Headers), col(l.cols.Status), retries, created, "UNIX_TIMESTAMP(NOW(6))", stamp,
	}, ", ")
}

// instant reads a time column, whatever its zone, in seconds since 1970 with its digits behind the
// point: a naive one is in the session's zone.
func instant(name string) string { return "UNIX_TIMESTAMP(" + col(name) + ")" }

// eventRow is one row as it comes, reused from row to row.
type eventRow struct {
	part                                          int
	row                                           string
	id, aggregateType, aggregateID                sql.NullString
	eventType, topic, key, status, created, stamp sql.NullString
	payload, headers                              []byte
	retries                                       int
	now                                           string
	dest                                          []any
}

func newEventRow() *eventRow {
	r := &eventRow{}
	r.dest = []any{
		&r.part, &r.row, &r.id, &r.aggregateType, &r.aggregateID, &r.eventType,
		&r.topic, &r.key, &r.payload, &r.headers, &r.status, &r.retries, &r.created, &r.now, &r.stamp,
	}
	return r
}

func (r *eventRow) found(l *layout) (found, error) {
	n, err := l.rowNumber(relay.RowID(r.row))
	if err != nil {
		return found{}, err
	}
	e, err := r.event(l)
	return found{number: n, event: e, abandoned: l.claim == relay.ClaimRows && r.part == 0, stamp: r.stamp.String}, err
}

func (r *eventRow) event(l *layout) (relay.Event, error) {
	e := relay.Event{
		Row: relay.RowID(r.row), State: l.state(r.status.String, r.retries), ID: r.id.String,
		AggregateType: r.aggregateType.String, AggregateID: r.aggregateID.String, Type: r.eventType.String,
		Topic: r.topic.String, Payload: r.payload, RetryCount: r.retries,
	}
	if r.key.Valid {
		key := r.key.String
		e.Key = &key
	}
	if r.created.Valid {
		created, err := moment(r.created.String)
		if err != nil {
			return e, err
		}
		now, err := moment(r.now)
		if err != nil {
			return e, err
		}
		if !created.IsZero() {
			e.CreatedAt, e.Age = created, max(0, now.Sub(created))
		}
	}
	e.Headers, e.Malformed = relay.DecodeHeaders(r.headers)
	return e, nil
}

// moment reads what UNIX_TIMESTAMP gives, digit by digit; 0 is what it gives for times out of its range.
func moment(text string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time %q: %w", text, err)
	}
	var nanos int64
	if fraction != "" {
		if nanos, err = strconv.ParseInt((fraction + "000000000")[:9], 10, 64); err != nil {
			return time.Time{}, fmt.Errorf("read time %q: %w", text, err)
		}
	}
	if seconds == 0 && nanos == 0 {
		return time.Time{}, nil
	}
	return time.Unix(seconds, nanos).UTC(), nil
}
