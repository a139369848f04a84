package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/relay"
)

// layout is the table as the relay uses it: expressions ready for SQL, each quoted. An expression of a
// column that the table lacks is "NULL".
type layout struct {
	table    string
	cols     relay.Columns // resolved, "" where the table has none
	states   relay.States
	own      bool
	delete   bool // sent rows are deleted
	claim    relay.ClaimMode
	onDead   string
	unsigned bool // of id
	nullNRA  bool // next_retry_at may be NULL
	key      string
	gate     string // the key, or a digest of a long one
	plan     plan
	notices  []string
	catalog  catalog
}

// newLayout checks the table against the configuration. Every problem is a *relay.SetupError.
func newLayout(ctx context.Context, db *sql.DB, s server, o relay.StoreOptions) (*layout, error) {
	c, err := readCatalog(ctx, db, s, o.Table.Name)
	if err != nil {
		return nil, err
	}
	l := &layout{
		table: c.table(), states: o.Table.States, own: o.Table.Own, delete: o.Table.AfterSend == "delete",
		claim: o.Claim, onDead: o.OnDead, catalog: c, notices: slices.Clone(s.notices),
	}
	for _, check := range []func() error{
		func() error { return l.resolve(ctx, db, s, o.Table.Columns) },
		l.checkMode,
		l.checkTypes,
		l.checkIDs,
		func() error { return l.checkStates(ctx, db) },
		func() error {
			if o.ReadOnly {
				return nil
			}
			return l.checkRights(ctx, db, s)
		},
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	l.key = l.keyExpr()
	l.gate = fmt.Sprintf("IF(LENGTH(%[1]s) > %[2]d, UNHEX(SHA2(%[1]s, 224)), %[1]s)", l.key, maxGateKey)
	l.choosePlan()
	return l, nil
}

// resolve finds the columns. id and payload must be there; a column that is named and not optional too.
func (l *layout) resolve(ctx context.Context, db *sql.DB, s server, want relay.Columns) error {
	l.cols = want
	var left, lacks, keys []string
	for _, f := range fields(&l.cols) {
		spec, optional := strings.CutSuffix(*f.column, "?")
		if spec == "" {
			*f.column = ""
			continue
		}
		name, ok := l.firstOf(spec)
		switch {
		case ok:
		case optional:
			left = append(left, f.name)
		case l.hidden(ctx, db, spec):
			return l.catalog.right(s, fmt.Sprintf("user %s may not read column %s", s.user, orList(spec)),
				"SELECT, UPDATE", nil)
		default:
			lacks, keys = append(lacks, orList(spec)+" for "+f.name), append(keys, "outbox.columns."+f.name)
		}
		*f.column = name
	}
	if len(lacks) > 0 {
		return usage("table "+l.table, fmt.Sprintf("has no column %s (it has %s)", strings.Join(lacks, ", "), l.catalog.columnNames()),
			"set "+strings.Join(keys, ", ")+", or write \"-\" there if the table has none")
	}
	if len(left) > 0 {
		l.notices = append(l.notices,
			"the table has no columns for "+strings.Join(left, ", ")+": what they hold is not kept")
	}
	if l.cols.ID == "" || l.cols.Payload == "" {
		return usage("outbox.columns", "id and payload are not both set", "name the columns that hold them")
	}
	return nil
}

func (l *layout) firstOf(spec string) (string, bool) {
	for _, name := range strings.Split(spec, "|") {
		if c, ok := l.catalog.column(name); ok {
			return c.name, true
		}
	}
	return "", false
}

// hidden says whether a column is there and this user may not see it.
func (l *layout) hidden(ctx context.Context, db *sql.DB, spec string) bool {
	for _, name := range strings.Split(spec, "|") {
		err := readable(ctx, db, "SELECT "+ident(name)+" FROM "+l.table+" LIMIT 0")
		if n := number(err); n == errNoColumnRight || n == errNoTableRight {
			return true
		}
	}
	return false
}

func orList(spec string) string {
	names := strings.Split(spec, "|")
	for i := range names {
		names[i] = fmt.Sprintf("%q", names[i])
	}
	return strings.Join(names, " or ")
}

type field struct {
	name   string
	column *string
}

// fields lists the logical columns by their names in the configuration.
func fields(c *relay.Columns) []field {
	return []field{
		{"id", &c.ID}, {"event_id", &c.EventID}, {"aggregate_type", &c.AggregateType},
		{"aggregate_id", &c.AggregateID}, {"event_type", &c.EventType}, {"topic", &c.Topic},
		{"message_key", &c.MessageKey}, {"payload", &c.Payload}, {"headers", &c.Headers},
		{"status", &c.Status}, {"retry_count", &c.RetryCount}, {"next_retry_at", &c.NextRetryAt},
		{"last_error", &c.LastError}, {"created_at", &c.CreatedAt}, {"updated_at", &c.UpdatedAt},
		{"sent_at", &c.SentAt}, {"kafka_topic", &c.KafkaTopic}, {"kafka_partition", &c.KafkaPartition},
		{"kafka_offset", &c.KafkaOffset},
	}
}

// col quotes the column's name, or gives NULL when the table has none.
func col(name string) string {
	if name == "" {
		return "NULL"
	}
	return ident(name)
}

// isUUID says that the column holds UUIDs as BINARY(16).
func (l *layout) isUUID(name string) bool {
	c, _ := l.catalog.column(name)
	return c.fullType == "binary(16)"
}

// textOf reads a column as people write it: UUIDs in their usual form, everything else as it is.
func (l *layout) textOf(name string) string {
	if !l.isUUID(name) {
		return col(name)
	}
	hex := "LOWER(HEX(" + col(name) + "))"
	return fmt.Sprintf("INSERT(INSERT(INSERT(INSERT(%s, 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')", hex)
}

// bytesOf reads a column as the bytes of its UTF-8 text, or as its bytes where it is binary: keys are
// equal when their bytes are, whatever the column's collation says.
func (l *layout) bytesOf(name string) string {
	c, _ := l.catalog.column(name)
	if isBinary(c.dataType) && !l.isUUID(name) {
		return col(name)
	}
	return "CAST(CONVERT(" + l.textOf(name) + " USING utf8mb4) AS BINARY)"
}

// keyExpr is the ordering key: message_key, else aggregate_id, else NULL.
func (l *layout) keyExpr() string {
	switch {
	case l.cols.MessageKey == "" && l.cols.AggregateID == "":
		return "NULL"
	case l.cols.MessageKey == "":
		return l.bytesOf(l.cols.AggregateID)
	case l.cols.AggregateID == "":
		return l.bytesOf(l.cols.MessageKey)
	default:
		return "COALESCE(" + l.bytesOf(l.cols.MessageKey) + ", " + l.bytesOf(l.cols.AggregateID) + ")"
	}
}

// claimColumn carries the claim's time: updated_at, else next_retry_at.
func (l *layout) claimColumn() string {
	if l.cols.UpdatedAt != "" {
		return l.cols.UpdatedAt
	}
	return l.cols.NextRetryAt
}

// eventColumn holds the event's id: its own column, else the row's.
func (l *layout) eventColumn() string {
	if l.cols.EventID != "" {
		return col(l.cols.EventID)
	}
	return col(l.cols.ID)
}

// eventID is its text, and eventIs a condition on it that its index serves.
func (l *layout) eventID() string {
	if l.cols.EventID != "" {
		return l.textOf(l.cols.EventID)
	}
	return col(l.cols.ID)
}

func (l *layout) eventIs(n int) string {
	value := "?"
	if l.isUUID(l.cols.EventID) {
		value = "UNHEX(REPLACE(?, '-', ''))"
	}
	return l.eventColumn() + " IN (" + value + strings.Repeat(", "+value, n-1) + ")"
}

// now is the database's clock with as many digits of seconds as the column keeps.
func (l *layout) now(name string) string {
	c, _ := l.catalog.column(name)
	return fmt.Sprintf("NOW(%d)", c.precision)
}

// roundUp is the most that the column's precision cuts from a time, in microseconds.
func (l *layout) roundUp(name string) int64 {
	c, _ := l.catalog.column(name)
	return int64(math.Pow10(6-c.precision)) - 1
}

// rowNumber reads what this store gave out as a RowID: ids in an order-keeping unsigned form.
func (l *layout) rowNumber(id relay.RowID) (uint64, error) {
	if l.unsigned {
		n, err := strconv.ParseUint(string(id), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("row %q is not one of this table", string(id))
		}
		return n, nil
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("row %q is not one of this table", string(id))
	}
	return uint64(n) ^ 1<<63, nil //nolint:gosec // the mapping keeps the order
}

// digits writes a rowNumber as the id it stands for.
func (l *layout) digits(n uint64) string {
	if l.unsigned {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatInt(int64(n^1<<63), 10) //nolint:gosec // see rowNumber
}

// state puts the table's word into the relay's. A word that it does not know comes back as it is.
func (l *layout) state(word string, retries int) relay.State {
	same := strings.EqualFold
	switch {
	case l.cols.Status == "" && retries > 0:
		return relay.StateFailed
	case l.cols.Status == "":
		return relay.StateNew
	case same(word, l.states.New) && l.sameWord() && retries > 0:
		return relay.StateFailed
	case same(word, l.states.New):
		return relay.StateNew
	case same(word, l.states.Failed):
		return relay.StateFailed
	case same(word, l.states.Dead):
		return relay.StateDead
	case same(word, l.states.Sent):
		return relay.StateSent
	case word != "" && same(word, l.states.Sending):
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

// sameWord says that a failed row goes back to the word of new ones, with a time.
func (l *layout) sameWord() bool { return l.states.Failed == l.states.New }
