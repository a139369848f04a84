package postgres

import (
	"time"

	"github.com/postrider/postrider/relay"
)

// kind is what a statement says of a row.
type kind int8

const (
	kindOther kind = iota // finished, claimed by somebody, or of a state that is not ours
	kindDue               // NEW or FAILED and its time has come
	kindLater             // NEW, and its next_retry_at has not come
	kindOver              // due, but beyond the limits of the statement: its columns were left out
)

// record is one row as a statement returned it.
type record struct {
	id    int64
	kind  kind
	state relay.State // of due rows
	key   *string
	wait  time.Duration // kindLater: until it is due
	size  int64
	late  bool        // found by the second round
	event relay.Event // kindDue, and only where the statement was asked for content
}

// round is the questions that go to the server in one go, answered in the order of the fields, each in a
// snapshot of its own that is not older than the one before. A Fetch asks one or two rounds; the second
// has locksFirst, lookup and locks only.
type round struct {
	limit int
	looks int // rows that a look at ids returns, those of other lanes counted
	bytes int64
	lanes []bool // its own, nil for all

	locksFirst bool

	due     *dueAsk
	replay  *replayAsk
	forward *forwardAsk
	lookup  spans // NEW rows among these ids
	below   *belowAsk
	locks   bool // last of all

	gapless   bool // missing ids mean nothing
	headsOnly bool
}

// dueAsk asks for rows whose next_retry_at has come, oldest first.
type dueAsk struct {
	page int
	// exact leaves out in the database what may not come, for when more than a page is due.
	exact   bool
	blocked []string
	heads   []int64
	busy    []int64
}

// replayAsk asks for NEW rows of keys that have reopened, in one window of ids.
type replayAsk struct {
	from, to int64
	keys     []string
	window   int // rows looked at
}

// forwardAsk asks for the rows after the cursor.
type forwardAsk struct {
	after   int64
	window  int      // rows looked at
	blocked []string // rows of these keys come without content
}

// belowAsk asks for the ids of NEW rows up to the cursor, where gaps cannot be known (see strategy).
type belowAsk struct {
	upTo    int64
	limit   int
	busy    []int64
	blocked []string
	last    bool // no look like this follows: the first rows of the closed keys are named too
}

// answers to a round.
type answers struct {
	now time.Time // the database's clock

	due     []record
	dueFull bool // the page was full

	replay   []record
	replayed int64 // all rows up to here were looked at

	forward    []record
	forwardEnd bool // the table has no rows after these

	lookup  []record
	lookCut bool // there may be more after the last of lookup

	below  []int64
	passed []record // first new row of each closed key, for belowAsk.last

	locksFirst *lockView // before all the others
	locks      *lockView // after them
}
