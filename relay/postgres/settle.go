package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/relay"
)

// Codes of states in statements.
const (
	codeSent = iota
	codeFailed
	codeDead
	codeNew
)

// markTexts are the statements of Settle.
type markTexts struct {
	fresh   string // all outcomes are SENT, from NEW and without claims: the usual case, with few parameters
	sent    string // all outcomes are SENT
	mixed   string
	delete  string // sent rows are deleted
	applied string // which of the outcomes the rows show already
}

// marks are outcomes as arrays of parameters.
type marks struct {
	ids               []int64
	from, to          []int16
	claims            any // []pgtype.Timestamptz or []pgtype.Timestamp
	tries             []int32
	topics            []string
	partitions        []int32
	offsets           []int64
	attempts          []int16
	afterMicroseconds []int64
	errors            []string
}

func (m *marks) args(sentOnly bool) []any {
	args := []any{m.ids, m.from, m.claims, m.tries, m.topics, m.partitions, m.offsets}
	if !sentOnly {
		args = append(args, m.to, m.attempts, m.afterMicroseconds, m.errors)
	}
	return args
}

func newMarkTexts(l *layout) markTexts {
	if l.cols.Status == "" {
		id := l.col(l.cols.ID, "int8")
		return markTexts{
			delete:  fmt.Sprintf("DELETE FROM %s t WHERE %s = ANY ($1::int8[]) RETURNING %s::int8", l.table, id, id),
			applied: fmt.Sprintf("SELECT %s::int8 FROM %s t WHERE %s = ANY ($1::int8[])", id, l.table, id),
		}
	}
	return markTexts{
		fresh: l.freshQuery(), sent: l.updateQuery(true), mixed: l.updateQuery(false), delete: l.deleteQuery(), applied: l.appliedQuery(),
	}
}

// source is the FROM item of a set of marks.
func (l *layout) source(sentOnly bool) string {
	claim := "timestamptz"
	if l.naive(l.claimColumn()) {
		claim = "timestamp"
	}
	arrays := "$1::int8[], $2::int2[], $3::" + claim + "[], $4::int4[], $5::text[], $6::int4[], $7::int8[]"
	names := "id, f, claim, tries, topic, part, off"
	if !sentOnly {
		arrays += ", $8::int2[], $9::int2[], $10::int8[], $11::text[]"
		names += ", k, attempt, after, err"
	}
	return "unnest(" + arrays + ") o(" + names + ")"
}

// asRead is the condition that a row still is as it was read. With lanes SENT needs less, see relay.Store.
func (l *layout) asRead(sentOnly bool) string {
	failed, sending := l.failed, l.sending
	if sending == "" {
		sending = l.new
	}
	id := l.col(l.cols.ID, "int8")
	same := fmt.Sprintf("(%s = CASE o.f WHEN %d THEN %s WHEN %d THEN %s ELSE %s END) IS TRUE"+
		" AND (o.claim IS NULL OR %s = o.claim) AND (o.tries < 0 OR %s = o.tries)",
		l.status(), codeNew, l.new, codeFailed, failed, sending,
		l.col(l.claimColumn(), "timestamptz"), l.attempts())
	if l.claim == relay.ClaimLanes && sentOnly {
		same = byID(l.unsettled())
	} else if l.claim == relay.ClaimLanes {
		same = fmt.Sprintf("CASE o.k WHEN %d THEN %s ELSE %s END", codeSent, byID(l.unsettled()), same)
	}
	return id + " = o.id AND " + same
}

// unsettled is the condition that a row may be made SENT by whoever knows that it was sent.
func (l *layout) unsettled() string {
	if l.cols.Status == "" {
		return "TRUE"
	}
	return fmt.Sprintf("%s OR %s = %s AND NOT %s", l.open(), l.status(), l.dead, l.discarded())
}

// updateQuery marks rows. No indexed column of the product's own table changes when an event that never
// failed becomes SENT, which makes the update heap-only.
func (l *layout) updateQuery(sentOnly bool) string {
	pick := func(sent, failed, dead, back string) string {
		if sentOnly {
			return sent
		}
		return fmt.Sprintf("CASE o.k WHEN %d THEN %s WHEN %d THEN %s WHEN %d THEN %s ELSE %s END",
			codeSent, sent, codeFailed, failed, codeDead, dead, back)
	}
	var set []string
	add := func(name, expr string) {
		if name != "" {
			set = append(set, quote(name)+" = "+expr)
		}
	}
	sent := l.sent
	if sent == "" {
		sent = l.status()
	}
	add(l.cols.Status, pick(sent, l.failed, l.dead, l.new))
	add(l.cols.UpdatedAt, l.clock(l.cols.UpdatedAt))
	keep := func(name string) string { return l.col(name, "text") }
	add(l.cols.SentAt, pick(l.clock(l.cols.SentAt), keep(l.cols.SentAt), keep(l.cols.SentAt), keep(l.cols.SentAt)))
	add(l.cols.KafkaTopic, pick("o.topic", keep(l.cols.KafkaTopic), keep(l.cols.KafkaTopic), keep(l.cols.KafkaTopic)))
	add(l.cols.KafkaPartition, pick("o.part", keep(l.cols.KafkaPartition), keep(l.cols.KafkaPartition), keep(l.cols.KafkaPartition)))
	add(l.cols.KafkaOffset, pick("o.off", keep(l.cols.KafkaOffset), keep(l.cols.KafkaOffset), keep(l.cols.KafkaOffset)))
	next := l.cols.NextRetryAt
	add(next, pick(l.cleared(next), l.local(next, "(clock_timestamp() + o.after * interval '1 microsecond')"), l.never(), l.backAt()))
	add(l.cols.LastError, pick(l.cleared(l.cols.LastError), "o.err", "o.err", keep(l.cols.LastError)))
	if !sentOnly {
		add(l.cols.RetryCount, l.counted())
	}
	return fmt.Sprintf("UPDATE %s t SET %s FROM %s WHERE %s RETURNING %s::int8",
		l.table, strings.Join(set, ", "), l.source(sentOnly), l.asRead(sentOnly), l.col(l.cols.ID, "int8"))
}

// freshQuery is updateQuery for rows whose state says all: they were NEW and never claimed, or are marked whatever
// they were read as.
func (l *layout) freshQuery() string {
	text, from := l.updateQuery(true), l.source(true)
	text = strings.Replace(text, from, "unnest($1::int8[], $2::text[], $3::int4[], $4::int8[]) o(id, topic, part, off)", 1)
	as := l.isNew()
	if l.claim == relay.ClaimLanes {
		as = l.unsettled()
	}
	return strings.Replace(text, l.asRead(true), fmt.Sprintf("%s = o.id AND %s", l.col(l.cols.ID, "int8"), byID(as)), 1)
}

// cleared is NULL where the column takes it.
func (l *layout) cleared(name string) string {
	if c, _ := l.catalog.column(name); c.notNull {
		return l.col(name, "text")
	}
	return "NULL"
}

// never is next_retry_at of a dead row. On the product's own table it keeps the row in the index of rows that
// failed, out of the way of those that are due.
func (l *layout) never() string {
	if l.own {
		return "'infinity'"
	}
	return l.col(l.cols.NextRetryAt, "timestamptz")
}

// backAt is next_retry_at of a row that goes back unsent. With claims any relay must find it, which on the
// product's own table is by the index of due rows.
func (l *layout) backAt() string {
	switch {
	case l.own && l.claim == relay.ClaimRows:
		return "clock_timestamp()"
	case l.own:
		return "NULL"
	}
	return l.col(l.cols.NextRetryAt, "timestamptz")
}

// counted is retry_count with the attempt, within the column's type.
func (l *layout) counted() string {
	c, _ := l.catalog.column(l.cols.RetryCount)
	most := map[string]string{"int2": "32767", "int4": "2147483647"}[c.kind]
	if most == "" {
		most = "9223372036854775806"
	}
	return fmt.Sprintf("least(%s::int8 + o.attempt, %s)::%s", l.attempts(), most, c.kind)
}

func (l *layout) deleteQuery() string {
	return fmt.Sprintf("DELETE FROM %s t USING %s WHERE %s RETURNING %s::int8",
		l.table, l.source(true), l.asRead(true), l.col(l.cols.ID, "int8"))
}

// appliedQuery finds the marks that stand in the table already, for a Settle that is repeated after its answer
// was lost.
func (l *layout) appliedQuery() string {
	sent := l.col(l.cols.ID, "int8") + " IS NULL"
	if !l.delete {
		sent = l.status() + " = " + l.sent
		if l.cols.KafkaOffset != "" {
			sent += fmt.Sprintf(" AND %s = o.off", l.col(l.cols.KafkaOffset, "int8"))
		}
	}
	return fmt.Sprintf("SELECT o.id FROM %s LEFT JOIN %s t ON %s = o.id WHERE CASE o.k WHEN %d THEN %s WHEN %d THEN %s = %s WHEN %d THEN %s = %s ELSE %s = %s END",
		l.source(false), l.table, l.col(l.cols.ID, "int8"), codeSent, sent, codeFailed, l.status(), l.failed,
		codeDead, l.status(), l.dead, l.status(), l.new)
}

// newMarks turns outcomes into arrays, in the order of ids so that two relays never lock crosswise.
func (s *Store) newMarks(outs []relay.Outcome) (*marks, error) {
	type numbered struct {
		id  int64
		out *relay.Outcome
	}
	order := make([]numbered, len(outs))
	for i := range outs {
		order[i] = numbered{parseRow(outs[i].Row), &outs[i]}
	}
	slices.SortFunc(order, func(a, b numbered) int { return cmp.Compare(a.id, b.id) })
	n := len(order)
	m := &marks{
		ids: make([]int64, n), from: make([]int16, n), to: make([]int16, n), tries: make([]int32, n),
		topics: make([]string, n), partitions: make([]int32, n), offsets: make([]int64, n),
		attempts: make([]int16, n), afterMicroseconds: make([]int64, n), errors: make([]string, n),
	}
	claims := make([]pgtype.Timestamptz, n)
	for i := range order {
		o := order[i].out
		m.ids[i] = order[i].id
		m.from[i], m.to[i] = stateCode(o.From), stateCode(o.State)
		if o.Claim != "" {
			at, err := parseClaim(o.Claim)
			if err != nil {
				return nil, fmt.Errorf("read the claim of row %s: %w", o.Row, err)
			}
			claims[i] = pgtype.Timestamptz{Time: at, Valid: true}
		}
		m.tries[i] = -1
		m.topics[i], m.partitions[i], m.offsets[i] = o.Receipt.Topic, o.Receipt.Partition, o.Receipt.Offset
		if o.Attempt {
			m.attempts[i] = 1
		}
		m.afterMicroseconds[i] = o.RetryAfter.Microseconds()
		m.errors[i] = clip(o.LastError, s.layout.lastError)
	}
	m.claims = claims
	if s.layout.naive(s.layout.claimColumn()) {
		naive := make([]pgtype.Timestamp, n)
		for i, c := range claims {
			naive[i] = pgtype.Timestamp(c)
		}
		m.claims = naive
	}
	s.engine.triesOf(m.ids, m.tries)
	return m, nil
}

// stateCode is a state as a number; SENDING, which only From can be, falls to the last case of asRead.
func stateCode(st relay.State) int16 {
	switch st {
	case relay.StateSent:
		return codeSent
	case relay.StateFailed:
		return codeFailed
	case relay.StateDead:
		return codeDead
	case relay.StateNew:
		return codeNew
	}
	return -1
}

// clip makes text fit for a column of so many characters, in which PostgreSQL takes no NUL.
func clip(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}

// Settle implements relay.Store.
func (s *Store) Settle(ctx context.Context, outs []relay.Outcome) (lost []relay.RowID, err error) {
	if len(outs) == 0 {
		return nil, nil
	}
	s.settling.Lock()
	defer s.settling.Unlock()
	applied, err := s.mark(ctx, outs)
	if err != nil {
		s.owner.suspect()
		for i := range outs {
			s.unsure[outs[i].Row] = struct{}{}
		}
		return nil, fmt.Errorf("settle %d events: %w", len(outs), err)
	}
	slices.Sort(applied)
	done := make([]relay.Outcome, 0, len(outs))
	for i := range outs {
		delete(s.unsure, outs[i].Row)
		if _, ok := slices.BinarySearch(applied, parseRow(outs[i].Row)); ok {
			done = append(done, outs[i])
		} else {
			lost = append(lost, outs[i].Row)
		}
	}
	s.engine.settled(done, s.databaseNow())
	return lost, nil
}

// mark writes outcomes and returns the ids of rows that show them.
func (s *Store) mark(ctx context.Context, outs []relay.Outcome) (applied []int64, err error) {
	if s.reader.memory != nil {
		return s.markInMemory(ctx, outs)
	}
	groups := [2][]relay.Outcome{nil, outs} // deleted, updated
	if s.layout.delete {
		groups[1] = nil
		for _, o := range outs {
			if o.State == relay.StateSent {
				groups[0] = append(groups[0], o)
			} else {
				groups[1] = append(groups[1], o)
			}
		}
	}
	applied = make([]int64, 0, len(outs))
	collect := func(rows pgx.Rows) error {
		format := rows.FieldDescriptions()[0].Format
		for rows.Next() {
			applied = append(applied, number(rows.RawValues()[0], format))
		}
		return rows.Err()
	}
	var stmts []stmt
	for i, group := range groups {
		if len(group) == 0 {
			continue
		}
		m, err := s.newMarks(group)
		if err != nil {
			return nil, err
		}
		text, args := s.statement(m, i == 0)
		stmts = append(stmts, stmt{sql: text, args: args, read: collect})
	}
	if again := s.repeated(outs); len(again) > 0 {
		m, err := s.newMarks(again)
		if err != nil {
			return nil, err
		}
		stmts = append(stmts, stmt{sql: s.marks.applied, args: m.args(false), read: collect})
	}
	first := stmts[0].read
	stmts[0].read = func(rows pgx.Rows) error { applied = applied[:0]; return first(rows) } // of the last try only
	err = s.db.tx(ctx, stmts...)
	return applied, err
}

// statement picks the cheapest for the marks.
func (s *Store) statement(m *marks, deleted bool) (text string, args []any) {
	only := func(codes []int16, code int16) bool {
		return !slices.ContainsFunc(codes, func(k int16) bool { return k != code })
	}
	switch {
	case deleted:
		return s.marks.delete, m.args(true)
	case !only(m.to, codeSent):
		return s.marks.mixed, m.args(false)
	case s.options.Claim == relay.ClaimLanes, s.options.Claim == relay.ClaimSingle && !s.layout.failedIsNew() && only(m.from, codeNew):
		return s.marks.fresh, []any{m.ids, m.topics, m.partitions, m.offsets}
	}
	return s.marks.sent, m.args(true)
}

// repeated lists the outcomes that an earlier Settle may have written although it failed.
func (s *Store) repeated(outs []relay.Outcome) (again []relay.Outcome) {
	if len(s.unsure) == 0 {
		return nil
	}
	for _, o := range outs {
		if _, ok := s.unsure[o.Row]; ok {
			again = append(again, o)
		}
	}
	return again
}

// markInMemory deletes sent rows and remembers the rest.
func (s *Store) markInMemory(ctx context.Context, outs []relay.Outcome) (applied []int64, err error) {
	var gone, stay []int64
	for i := range outs {
		if id := parseRow(outs[i].Row); outs[i].State == relay.StateSent {
			gone = append(gone, id)
		} else {
			stay = append(stay, id)
		}
	}
	var deleted, there []int64
	into := func(ids *[]int64) func(pgx.Rows) error {
		return func(rows pgx.Rows) (err error) {
			*ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		}
	}
	err = s.db.tx(ctx, stmt{sql: s.marks.delete, args: []any{gone}, read: into(&deleted)},
		stmt{sql: s.marks.applied, args: []any{stay}, read: into(&there)})
	if err != nil {
		return nil, err
	}
	s.reader.memory.settle(outs, time.Now())
	return append(deleted, there...), nil
}
