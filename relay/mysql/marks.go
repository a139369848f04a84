package mysql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/relay"
)

func (l *layout) sentSQL(where string) string {
	if l.delete {
		return "DELETE t FROM " + l.joined() + " WHERE " + where
	}
	return "UPDATE " + l.joined() + " SET " + strings.Join(l.sentSets(), ", ") + " WHERE " + where
}

// otherSQL is empty when nothing can be written to a row that was not sent.
func (l *layout) otherSQL() string {
	if len(l.written()) == 0 {
		return ""
	}
	return "UPDATE " + l.joined() + " SET " + strings.Join(l.otherSets(), ", ") + " WHERE " + l.markWhere()
}

// joined is the outcomes as a table, and the rows by primary key. The order is forced, since an
// optimizer without statistics might walk the table instead.
func (l *layout) joined() string {
	return fmt.Sprintf(`JSON_TABLE(?, '$[*]' COLUMNS (
n DECIMAL(20) PATH '$[0]', was INT PATH '$[1]', claim VARCHAR(32) PATH '$[2]', state INT PATH '$[3]', attempt INT PATH '$[4]',
wait BIGINT PATH '$[5]', error VARCHAR(%d) CHARACTER SET utf8mb4 PATH '$[6]', topic VARCHAR(249) PATH '$[7]', part INT PATH '$[8]',
place BIGINT PATH '$[9]')) d STRAIGHT_JOIN %s t%s ON t.%s = d.n`, maxError, l.table, l.force(l.uniqueIndex()), col(l.cols.ID))
}

// The states in the JSON are numbers, so that no collation is asked whether two words are the same.
var markStates = []relay.State{relay.StateNew, relay.StateSending, relay.StateSent, relay.StateFailed, relay.StateDead}

// encode writes the outcomes as JSON, by hand: this is the hot path of the marks.
func (l *layout) encode(outs []relay.Outcome) (string, error) {
	b := make([]byte, 0, 64*len(outs)+2)
	b = append(b, '[')
	for i := range outs {
		o := &outs[i]
		if !decimal(string(o.Row)) {
			return "", fmt.Errorf("row %q is no number", o.Row)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, '['), o.Row...)
		from := o.From
		if from == relay.StateDead { // that a row is DEAD does not say that it was not given up since: see sentWhere
			from = relay.StateNew
		}
		b = appendNumbers(b, int64(slices.Index(markStates, from)))
		b = appendText(append(b, ','), o.Claim)
		attempt, wait := int64(0), int64(0)
		if o.Attempt {
			attempt = 1
		}
		if o.RetryAfter > 0 { // never early
			wait = o.RetryAfter.Microseconds() + l.roundUp(l.cols.NextRetryAt)
		}
		b = appendNumbers(b, int64(slices.Index(markStates, o.State)), attempt, wait)
		switch o.State {
		case relay.StateSent:
			b = appendText(append(b, ",null,"...), o.Receipt.Topic)
			b = appendNumbers(b, int64(o.Receipt.Partition), o.Receipt.Offset)
		case relay.StateFailed, relay.StateDead:
			b = appendText(append(b, ','), l.cutError(o.LastError))
		}
		b = append(b, ']')
	}
	return string(append(b, ']')), nil
}

func decimal(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func appendNumbers(b []byte, ns ...int64) []byte {
	for _, n := range ns {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	return b
}

// appendText writes a JSON string.
func appendText(b []byte, s string) []byte {
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
	if !plain {
		text, _ := json.Marshal(s) // a string is always encodable
		return append(b, text...)
	}
	return append(append(append(b, '"'), s...), '"')
}

// maxError is the longest error that is kept, in characters.
const maxError = 1000

// cutError makes an error fit its column: valid text without NUL. VARCHAR counts characters, TEXT bytes.
func (l *layout) cutError(s string) string {
	c, ok := l.catalog.column(l.cols.LastError)
	if !ok {
		return ""
	}
	limit := int(min(c.length, 4*maxError))
	if !strings.HasSuffix(c.dataType, "char") {
		limit /= 4
	}
	text := []rune(strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", ""))
	return string(text[:min(len(text), limit, maxError)])
}

// markWhere is the condition: the row is in the state and under the claim in which it was read.
func (l *layout) markWhere() string {
	var where []string
	if l.cols.Status != "" {
		where = append(where, was(l.cols.Status)+" = "+l.wordOf("d.was"))
	}
	next := was(l.cols.NextRetryAt)
	switch {
	case l.claim == relay.ClaimRows:
		where = append(where, fmt.Sprintf("%s = CAST(d.claim AS DATETIME(6))", was(l.claimColumn())))
	case l.cols.NextRetryAt != "":
		// A row was due when it was read. One that says FAILED already, and was FAILED then, is told by
		// its new time.
		where = append(where, fmt.Sprintf("(%s IS NULL OR %s <= NOW(6))", next, next))
	}
	if len(where) == 0 {
		return "TRUE"
	}
	return strings.Join(where, " AND ")
}

// sentWhere is the condition of SENT with lanes: that Kafka has the record is the newer truth than a verdict of
// a relay that did not know yet that it had lost the lane. What a person gave up stays so.
func (l *layout) sentWhere() string {
	if l.cols.Status == "" {
		return "TRUE"
	}
	status := was(l.cols.Status)
	dead := fmt.Sprintf("%s = %s", status, quote(l.states.Dead))
	if l.cols.LastError != "" {
		dead += fmt.Sprintf(" AND COALESCE(%s, '') NOT LIKE 'discarded:%%'", was(l.cols.LastError))
	}
	return fmt.Sprintf("(%s IN (%s, %s) OR %s)", status, quote(l.states.New), quote(l.states.Failed), dead)
}

// wordOf turns a number of markStates into the table's word.
func (l *layout) wordOf(expr string) string {
	words := make([]string, len(markStates))
	for i, st := range markStates {
		words[i] = quote(l.word(st))
	}
	return "ELT(" + expr + " + 1, " + strings.Join(words, ", ") + ")"
}

// was is a column of the row before the mark.
func was(name string) string { return "t." + col(name) }

// assignments collects what to set, for the columns that the table has.
type assignments []string

func (a *assignments) set(name, format string, args ...any) {
	if name != "" {
		*a = append(*a, was(name)+" = "+fmt.Sprintf(format, args...))
	}
}

// sentSets mark a row as sent, with its receipt.
func (l *layout) sentSets() []string {
	var a assignments
	a.set(l.cols.Status, "%s", quote(l.states.Sent))
	if l.nullNRA {
		a.set(l.cols.NextRetryAt, "NULL")
	}
	a.set(l.cols.UpdatedAt, "%s", l.now(l.cols.UpdatedAt))
	a.set(l.cols.SentAt, "%s", l.now(l.cols.SentAt))
	a.set(l.cols.KafkaTopic, "d.topic")
	a.set(l.cols.KafkaPartition, "d.part")
	a.set(l.cols.KafkaOffset, "d.place")
	return a
}

// otherSets mark a row as failed, dead or handed back.
func (l *layout) otherSets() []string {
	const released, failed = "d.state = 0", "d.state = 3"
	var a assignments
	if l.cols.Status != "" {
		// A claimed row that goes back unsent is again what it was before the claim.
		a.set(l.cols.Status, "IF(%s AND %s, %s, %s)", released, l.wasFailed(), quote(l.states.Failed), l.wordOf("d.state"))
	}
	a.set(l.cols.RetryCount, "%s + d.attempt", was(l.cols.RetryCount))
	rest := "NULL"
	if !l.nullNRA {
		rest = was(l.cols.NextRetryAt)
	}
	a.set(l.cols.NextRetryAt, "CASE WHEN %s THEN NOW(6) + INTERVAL d.wait MICROSECOND WHEN %s THEN %s ELSE %s END",
		failed, released, was(l.cols.NextRetryAt), rest)
	if c, ok := l.catalog.column(l.cols.LastError); ok {
		a.set(c.name, "COALESCE(CONVERT(d.error USING %s), %s)", c.charset, was(c.name))
	}
	a.set(l.cols.UpdatedAt, "%s", l.now(l.cols.UpdatedAt))
	return a
}

// wasFailed tells of a claimed row whether it was FAILED before.
func (l *layout) wasFailed() string {
	if l.nullNRA && l.claimColumn() != l.cols.NextRetryAt {
		return was(l.cols.NextRetryAt) + " IS NOT NULL"
	}
	return was(l.cols.RetryCount) + " > 0"
}
