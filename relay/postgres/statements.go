package postgres

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// statements are the texts of all reads, made once. Their results have the columns of recordColumns. Those of
// some lanes have one parameter more, which names the lanes; lookup has the most rows after it.
type statements struct {
	plain          string // after, most, window; "" where rows cannot be weighed exactly
	forward        string // after, limit, bytes, window
	forwardBlocked string // and the closed keys
	lookup         string // lows, highs, limit, bytes
	replay         string // from, to, limit, bytes, window, keys
	due            string // page, limit, bytes; "" when there is nothing to look for
	dueExact       string // and closed keys, heads, busy
	reclaim        string // page, limit, bytes
	below          string // up to, busy, closed keys, limit
	passed         string // up to, closed keys
	locks          string // own processes
	claim          string // ids, limit, bytes
}

// recordColumns name the columns of every read, in order.
var recordColumns = []string{
	"id", "kind", "st", "wait", "key", "event_id", "aggregate_type", "aggregate_id", "event_type", "topic",
	"attempts", "created", "headers", "payload", "token", "size",
}

// newStatements makes the texts for the whole table, or for some lanes of it: there rows of other lanes are of
// no kind that comes. Rows of keys that are named need no look at their lane.
func newStatements(l *layout, laned bool) *statements {
	id := "t." + quote(l.cols.ID)
	s := &statements{}
	lane := func(param int) string {
		if !laned {
			return ""
		}
		return l.inLane(param)
	}
	only := func(param int) string {
		if !laned {
			return ""
		}
		return " AND " + l.inLane(param)
	}
	forward := func(blocked string, param int) string {
		return l.limited(l.scan(blocked, 0, lane(param))+fmt.Sprintf(" FROM %s t WHERE %s > $1::int8 ORDER BY %s LIMIT $4::int8", l.table, id, id), "id", 2, 3)
	}
	if c, _ := l.catalog.column(l.cols.Payload); c.kind != "json" && c.kind != "jsonb" && l.claim != relay.ClaimRows {
		s.plain = l.capped(l.scan("", 0, lane(4))+fmt.Sprintf(" FROM %s t WHERE %s > $1::int8 ORDER BY %s LIMIT $3::int8", l.table, id, id), 2)
	}
	s.forward = forward("", 5)
	s.forwardBlocked = forward("$5::text[]", 6)
	open, looks := l.open(), 3
	if laned { // rows of others have appeared, whatever they are
		open, looks = fmt.Sprintf("(%s OR NOT %s)", open, lane(5)), 6
	}
	s.lookup = l.limited(l.scan("", 0, lane(5))+fmt.Sprintf(` FROM unnest($1::int8[], $2::int8[]) g(lo, hi) CROSS JOIN LATERAL
		(SELECT t.* FROM %s t WHERE %s BETWEEN g.lo AND g.hi AND %s ORDER BY %s LIMIT $%d::int8 + 1) t ORDER BY %s LIMIT $%d::int8 + 1`,
		l.table, id, byID(open), id, looks, id, looks), "id", 3, 4)
	s.replay = l.replay(id)
	s.below = fmt.Sprintf(`SELECT %s::int8 FROM %s t WHERE %s AND %s <= $1::int8 AND %s AND NOT %s
		AND NOT %s%s ORDER BY %s + 0 LIMIT $4::int8`,
		id, l.table, l.isNew(), id, l.itsTime(), among(id, "$2::int8[]"), among(l.key(), "$3::text[]"), only(5), id)
	s.passed = fmt.Sprintf("SELECT %s, min(%s)::int8 FROM %s t WHERE %s AND %s <= $1::int8 AND %s GROUP BY 1",
		l.key(), id, l.table, l.isNew(), id, among(l.key(), "$2::text[]"))
	s.locks = l.lockQuery()
	if l.cols.Status == "" {
		return s
	}
	s.due, s.dueExact, s.reclaim = l.dueQueries(id, only)
	if l.claim == relay.ClaimRows {
		s.claim = l.claimQuery(id)
	}
	return s
}

// among says whether a value is in an array; NULL is in none. A cached plan compares "= ANY" of a parameter
// with one element after the other for each row, which with ten thousand closed keys takes a third of a
// second a read. A subquery is hashed in every plan, and IS TRUE keeps it from becoming a join.
func among(value, array string) string {
	return fmt.Sprintf("((%s IN (SELECT unnest(%s))) IS TRUE)", value, array)
}

// scan is the select list of a read without FROM: one row of the table, what it is and what it weighs.
// Rows of the closed keys count as rows without content; abandoned claims are of the kind given; rows for
// which mine does not hold are nobody's. "" leaves a condition out.
func (l *layout) scan(blocked string, abandoned int, mine string) string {
	tried := "FALSE"
	switch {
	case l.failedIsNew():
		tried = l.attempts() + " > 0"
	case l.cols.Status != "":
		tried = l.status() + " = " + l.failed
	}
	fresh := "1"
	if blocked != "" {
		fresh = fmt.Sprintf("CASE WHEN NOT (%s) AND %s THEN 3 ELSE 1 END", tried, among(l.key(), blocked))
	}
	kind := "CASE "
	if mine != "" {
		kind += "WHEN NOT " + mine + " THEN 0 "
	}
	kind += fmt.Sprintf("WHEN %s THEN CASE WHEN %s THEN %s ELSE 2 END", l.isNew(), l.itsTime(), fresh)
	if !l.failedIsNew() && l.cols.Status != "" {
		kind += fmt.Sprintf(" WHEN %s AND %s THEN 1", tried, l.itsTime())
	}
	if abandoned > 0 {
		kind += fmt.Sprintf(" WHEN %s THEN %d", l.abandoned(), abandoned)
	}
	kind += " ELSE 0 END"
	state := fmt.Sprintf("CASE WHEN %s THEN 1 ELSE 0 END", tried)
	if l.cols.Status != "" && l.sending != "" {
		state = fmt.Sprintf("CASE WHEN %s THEN 1 WHEN %s = %s THEN 2 ELSE 0 END", tried, l.status(), l.sending)
	}
	return fmt.Sprintf("SELECT %s::int8 AS id, %s AS kind, %s AS st, %s AS size, %s", l.col(l.cols.ID, "int8"), kind, state, l.size(false), l.values())
}

// values are the columns that events are made of, as the table has them.
func (l *layout) values() string {
	token := "NULL::timestamptz"
	if c := l.claimColumn(); c != "" {
		token = l.col(c, "timestamptz")
	}
	return strings.Join([]string{
		l.instant(l.cols.NextRetryAt) + " AS next", l.key() + " AS key", l.eventID() + " AS event_id", l.text(l.cols.AggregateType) + " AS aggregate_type",
		l.text(l.cols.AggregateID) + " AS aggregate_id", l.text(l.cols.EventType) + " AS event_type", l.text(l.cols.Topic) + " AS topic",
		l.attempts() + "::int4 AS attempts", l.instant(l.cols.CreatedAt) + " AS created", l.col(l.cols.Headers, "text") + " AS headers",
		l.col(l.cols.Payload, "bytea") + " AS payload", token + " AS token",
	}, ", ")
}

// limited wraps a scan so that content comes for the first rows that are due, within the limits that two
// parameters give. The running sum is taken in the scan's own order, so nothing is sorted, and values
// that are stored apart are read only when they are sent.
func (l *layout) limited(scan, order string, limit, bytes int) string {
	return fmt.Sprintf(`SELECT r.id, CASE WHEN r.kind = 1 AND (r.nth > $%d::int8 OR r.nth > 1 AND r.run > $%d::int8) THEN 3 ELSE r.kind END AS kind,
		%s FROM (SELECT k.*, count(*) FILTER (WHERE k.kind = 1) OVER w AS nth, sum(k.size) FILTER (WHERE k.kind = 1) OVER w AS run
		FROM (%s) k WINDOW w AS (ORDER BY %s ROWS UNBOUNDED PRECEDING)) r ORDER BY %s`,
		limit, bytes, l.content(fmt.Sprintf("r.kind = 1 AND (r.nth = 1 OR r.nth <= $%d::int8 AND r.run <= $%d::int8)", limit, bytes)),
		scan, prefixed("k.", order), prefixed("r.", order))
}

// capped wraps a scan so that content comes for all rows that are due but those that weigh more than a
// parameter says. That bounds the answer as limited does, at half the cost for the server, as long as
// rows are small.
func (l *layout) capped(scan string, most int) string {
	take := fmt.Sprintf("r.kind = 1 AND r.size <= $%d::int8", most)
	return fmt.Sprintf("SELECT r.id, CASE WHEN r.kind = 1 AND r.size > $%d::int8 THEN 3 ELSE r.kind END AS kind, %s FROM (%s) r ORDER BY r.id",
		most, l.content(take), scan)
}

func prefixed(alias, columns string) string {
	return alias + strings.ReplaceAll(columns, ", ", ", "+alias)
}

// content are the rest of the record's columns, with values where take holds.
func (l *layout) content(take string) string {
	out := []string{
		"r.st", "CASE WHEN r.kind = 2 THEN (extract(epoch FROM r.next - statement_timestamp()) * 1000000)::int8 END AS wait",
		"CASE WHEN r.kind > 0 THEN r.key END AS key",
	}
	if l.claim == relay.ClaimRows {
		take = "FALSE" // the claim brings it
	}
	for _, name := range []string{"event_id", "aggregate_type", "aggregate_id", "event_type", "topic", "attempts", "created"} {
		out = append(out, fmt.Sprintf("CASE WHEN r.kind = 1 THEN r.%s END AS %s", name, name))
	}
	out = append(out, fmt.Sprintf("CASE WHEN %s THEN r.headers::text END AS headers", take))
	payload := "r.payload::text"
	if c, _ := l.catalog.column(l.cols.Payload); c.kind == "bytea" {
		payload = "r.payload"
	}
	return strings.Join(append(out, fmt.Sprintf("CASE WHEN %s THEN %s END AS payload", take, payload), "r.token", "r.size"), ", ")
}

// replay reads the NEW rows of some keys in a window of ids. Its last row, of kind 9, names the last id that
// was looked at.
func (l *layout) replay(id string) string {
	window := fmt.Sprintf(`(SELECT CASE WHEN count(*) < $5::int8 THEN $2::int8 ELSE max(x.id) END AS hi
		FROM (SELECT %s AS id FROM %s t WHERE %s BETWEEN $1::int8 AND $2::int8 ORDER BY %s LIMIT $5::int8) x)`, id, l.table, id, id)
	read := l.limited(l.scan("", 0, "")+fmt.Sprintf(" FROM %s t WHERE %s BETWEEN $1::int8 AND (SELECT w.hi FROM w) AND %s AND %s ORDER BY %s LIMIT $3::int8 + 1",
		l.table, id, byID(l.isNew()), among(l.key(), "$6::text[]"), id), "id", 3, 4)
	payload := "NULL::text"
	if c, _ := l.catalog.column(l.cols.Payload); c.kind == "bytea" {
		payload = "NULL::bytea"
	}
	token := "NULL::timestamptz"
	if c := l.claimColumn(); c != "" && l.naive(c) {
		token = "NULL::timestamp"
	}
	return fmt.Sprintf(`WITH w AS MATERIALIZED %s SELECT * FROM (%s) q UNION ALL SELECT w.hi, 9, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
		NULL::timestamptz, NULL, %s, %s, 0 FROM w`, window, read, payload, token)
}

// dueQueries find rows by next_retry_at. On the product's own table one partial index holds them all,
// abandoned claims included. Tables of others are asked by state.
func (l *layout) dueQueries(id string, mine func(param int) string) (due, exact, reclaim string) {
	at := l.col(l.cols.NextRetryAt, "timestamptz")
	query := func(where, order string) string {
		scan := strings.Replace(l.scan("", 1, ""), "SELECT ", "SELECT "+order+" AS at, ", 1)
		return l.limited(fmt.Sprintf("%s FROM %s t WHERE %s ORDER BY %s, %s LIMIT $1::int8", scan, l.table, where, order, id), "at, id", 2, 3)
	}
	exactly := fmt.Sprintf(" AND (NOT %s OR %s) AND NOT %s", among(l.key(), "$4::text[]"), among(id, "$5::int8[]"), among(id, "$6::int8[]"))
	if l.own {
		where := fmt.Sprintf("%s <= %s AND (%s OR %s)", at, l.now(l.cols.NextRetryAt), l.open(), l.abandoned())
		return query(where+mine(4), at), query(where+exactly+mine(7), at), ""
	}
	if l.sending != "" {
		reclaim = query(l.abandoned()+mine(4), l.col(l.claimColumn(), "timestamptz"))
	}
	if l.failedIsNew() {
		if c, _ := l.catalog.column(l.cols.NextRetryAt); c.notNull || c.fallback {
			return "", "", reclaim // new rows have a time too: these are tracked, and swept
		}
	}
	where := fmt.Sprintf("%s AND %s <= %s", l.isFailed(), at, l.now(l.cols.NextRetryAt))
	return query(where+mine(4), at), query(where+exactly+mine(7), at), reclaim
}

// lockQuery lists the transactions that may have drawn ids: those that hold the table's ROW EXCLUSIVE lock,
// a partition's included. The snapshot of the statement is older than its look at the locks.
func (l *layout) lockQuery() string {
	relation := fmt.Sprintf("relation = %d", l.catalog.oid)
	if l.catalog.kind == "p" {
		relation = fmt.Sprintf("relation IN (SELECT p.relid::oid FROM pg_partition_tree(%d::oid::regclass) p)", l.catalog.oid)
	}
	return fmt.Sprintf(`SELECT pg_current_snapshot()::text, ''::text, ''::text UNION ALL
		SELECT '', virtualtransaction || '/' || coalesce(pid, 0), coalesce(string_agg(transactionid::text, ',')
			FILTER (WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted), '')
		FROM pg_locks WHERE pid IS NULL OR pid <> ALL ($1::int4[])
		GROUP BY virtualtransaction, pid
		HAVING bool_or(locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND database = %d AND %s)`,
		l.catalog.database, relation)
}

// claimQuery takes rows that are still due and that nobody else has locked, the first of the list first.
// What it takes is bounded by what the rows really weigh.
func (l *layout) claimQuery(id string) string {
	set := []string{quote(l.cols.Status) + " = " + l.sending}
	if l.cols.UpdatedAt != "" {
		set = append(set, quote(l.cols.UpdatedAt)+" = "+l.clock(l.cols.UpdatedAt))
	}
	switch next := quote(l.cols.NextRetryAt); {
	case l.own: // where the index of due rows finds the claim if it is abandoned
		set = append(set, next+" = clock_timestamp() + interval '"+l.timeout+"'")
	case l.cols.UpdatedAt == "":
		set = append(set, next+" = "+l.clock(l.cols.NextRetryAt))
	}
	headers := l.text(l.cols.Headers)
	return fmt.Sprintf(`UPDATE %s t SET %s FROM (SELECT p.id, p.st FROM (SELECT c.*, count(*) OVER w AS nth, sum(c.size) OVER w AS run
		FROM (SELECT %s AS id, a.n, CASE WHEN %s = %s THEN 2 ELSE 0 END AS st, %s AS size
			FROM unnest($1::int8[]) WITH ORDINALITY a(id, n) JOIN %s t ON %s = a.id
			WHERE %s FOR UPDATE OF t SKIP LOCKED) c
		WINDOW w AS (ORDER BY c.n ROWS UNBOUNDED PRECEDING)) p WHERE p.nth <= $2::int8 AND (p.nth = 1 OR p.run <= $3::int8)) pick
		WHERE %s = pick.id RETURNING %s::int8, 1, pick.st, 0::int8, %s, %s, %s, %s, %s, %s, %s::int4, %s, %s, %s, %s, 0`,
		l.table, strings.Join(set, ", "),
		id, l.status(), l.sending, l.size(true), l.table, id, byID(l.open()+" AND "+l.itsTime()+" OR "+l.abandoned()),
		id, id, l.key(), l.eventID(), l.text(l.cols.AggregateType), l.text(l.cols.AggregateID), l.text(l.cols.EventType),
		l.text(l.cols.Topic), l.attempts(), l.instant(l.cols.CreatedAt), headers, l.payload(), l.col(l.claimColumn(), "timestamptz"))
}
