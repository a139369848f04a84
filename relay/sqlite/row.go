package sqlite

import (
	"database/sql"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// eventColumns is the select list that eventRow scans.
func (l *layout) eventColumns(withPayload bool) string {
	body, created := "NULL", "NULL"
	if withPayload {
		body = payload(l.cols.Payload)
	}
	if l.cols.CreatedAt != "" {
		created = columnMillis(col(l.cols.CreatedAt))
	}
	return strings.Join([]string{
		"rowid", l.eventID, text(l.cols.AggregateType), text(l.cols.AggregateID), text(l.cols.EventType), text(l.cols.Topic),
		l.key, body, text(l.cols.Headers), text(l.cols.Status), l.retries(), created, now,
	}, ", ")
}

// retries counts attempts, 0 where the table does not.
func (l *layout) retries() string {
	if l.cols.RetryCount == "" {
		return "0"
	}
	return "coalesce(" + col(l.cols.RetryCount) + ", 0)"
}

// eventRow is one row as it comes, reused from row to row.
type eventRow struct {
	row                            int64
	id, aggregateType, aggregateID sql.NullString
	eventType, topic, key, status  sql.NullString
	payload                        []byte
	headers                        []byte
	retries                        int
	created                        sql.NullInt64
	now                            int64
}

func (r *eventRow) dest() []any {
	return []any{
		&r.row, &r.id, &r.aggregateType, &r.aggregateID, &r.eventType, &r.topic,
		&r.key, &r.payload, &r.headers, &r.status, &r.retries, &r.created, &r.now,
	}
}

func (r *eventRow) event(l *layout) relay.Event {
	e := relay.Event{
		Row: rowID(r.row), State: l.state(r.status.String, r.retries), ID: r.id.String,
		AggregateType: r.aggregateType.String, AggregateID: r.aggregateID.String, Type: r.eventType.String,
		Topic: r.topic.String, Payload: r.payload, RetryCount: r.retries,
	}
	if r.key.Valid {
		key := r.key.String
		e.Key = &key
	}
	if r.created.Valid {
		e.CreatedAt = time.UnixMilli(r.created.Int64).UTC()
		e.Age = max(0, time.Duration(r.now-r.created.Int64)*time.Millisecond)
	}
	e.Headers, e.Malformed = relay.DecodeHeaders(r.headers)
	return e
}

// state puts the table's word into the relay's. A word that it does not know comes back as it is.
func (l *layout) state(word string, retries int) relay.State {
	switch {
	case l.cols.Status == "" && retries > 0:
		return relay.StateFailed
	case l.cols.Status == "":
		return relay.StateNew
	case word == l.states.New && l.sameWord() && retries > 0:
		return relay.StateFailed
	case word == l.states.New:
		return relay.StateNew
	case word == l.states.Failed:
		return relay.StateFailed
	case word == l.states.Dead:
		return relay.StateDead
	case word == l.states.Sent:
		return relay.StateSent
	case word == l.states.Sending && word != "":
		return relay.StateSending
	default:
		return relay.State(word)
	}
}

// word puts the relay's state into the table's.
func (l *layout) word(s relay.State) string {
	switch s {
	case relay.StateSending:
		return l.states.Sending
	case relay.StateSent:
		return l.states.Sent
	case relay.StateFailed:
		return l.states.Failed
	case relay.StateDead:
		return l.states.Dead
	default:
		return l.states.New
	}
}
