package mysql

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// plan is how rows are found: conditions and the indexes that serve them.
type plan struct {
	fresh, retry string // WHERE of new rows, and of rows whose next attempt is due ("" when fresh has all)
	freshIndex   string // FORCE INDEX (…), or ""
	retryIndex   string
	statusIndex  string // for any other question about states
	sorted       bool   // freshIndex gives the rows of a state but not in order
}

// choosePlan looks for indexes. An InnoDB index ends with the primary key even where it does not say so.
func (l *layout) choosePlan() {
	p := &l.plan
	if l.cols.Status == "" {
		p.fresh, p.freshIndex = "TRUE", l.force(l.uniqueIndex())
		if l.cols.NextRetryAt != "" {
			p.fresh = l.dueOrNone()
		}
		return
	}
	isNew, next := l.status(l.states.New), col(l.cols.NextRetryAt)
	byStatus := l.find(l.cols.Status, l.cols.ID)
	if byStatus == "" {
		byStatus = l.exactly(l.cols.Status)
	}
	byTime := l.find(l.cols.Status, l.cols.NextRetryAt)
	p.statusIndex = l.force(first(byStatus, byTime, l.find(l.cols.Status)))
	p.retryIndex = l.force(first(byTime, l.find(l.cols.NextRetryAt), byStatus, l.find(l.cols.Status)))
	due := next + " <= NOW(6)"
	switch {
	case l.nullNRA && byTime != "" && l.inOrder(byTime) && (byStatus == "" || l.sameWord()):
		// New rows have no time and stand in order at the head of the index; those with one come beside.
		p.fresh, p.freshIndex = isNew+" AND "+next+" IS NULL", l.force(byTime)
		p.retry = isNew + " AND " + due
		if !l.sameWord() {
			p.retry = fmt.Sprintf("%s IN (%s, %s) AND %s", col(l.cols.Status), quote(l.states.New),
				quote(l.states.Failed), due)
		}
		l.note(byTime)
	case byStatus != "":
		p.fresh, p.freshIndex = isNew+" AND "+l.dueOrNone(), l.force(byStatus)
		if !l.sameWord() {
			p.retry = l.status(l.states.Failed) + " AND " + due
		}
		l.note(byStatus)
	default:
		p.sorted = true
		p.fresh, p.freshIndex = isNew+" AND "+l.dueOrNone(), l.force(first(byTime, l.find(l.cols.Status)))
		if !l.sameWord() {
			p.retry = l.status(l.states.Failed) + " AND " + due
		}
		l.notices = append(l.notices, fmt.Sprintf("no index gives new rows in order, so each read sorts the backlog: CREATE INDEX outbox_new ON %s (%s, %s)",
			l.table, col(l.cols.Status), col(l.cols.ID)))
	}
}

func (l *layout) note(index string) {
	l.notices = append(l.notices, fmt.Sprintf("new rows are read in order by index %q", index))
}

func first(names ...string) string {
	for _, name := range names {
		if name != "" {
			return name
		}
	}
	return ""
}

// find returns an index that begins with these columns.
func (l *layout) find(columns ...string) string {
	for _, ix := range l.catalog.indexes {
		if ix.starts(columns...) {
			return ix.name
		}
	}
	return ""
}

// exactly returns an index over these columns and no more: the primary key follows.
func (l *layout) exactly(columns ...string) string {
	for _, ix := range l.catalog.indexes {
		if len(ix.columns) == len(columns) && ix.starts(columns...) && l.idIsPrimary() {
			return ix.name
		}
	}
	return ""
}

// inOrder says whether rows of one status and one time stand in the order of id.
func (l *layout) inOrder(name string) bool {
	for _, ix := range l.catalog.indexes {
		if ix.name == name {
			return ix.starts(l.cols.Status, l.cols.NextRetryAt, l.cols.ID) || len(ix.columns) == 2 && l.idIsPrimary()
		}
	}
	return false
}

func (l *layout) idIsPrimary() bool {
	for _, ix := range l.catalog.indexes {
		if ix.name == "PRIMARY" {
			return len(ix.columns) == 1 && strings.EqualFold(ix.columns[0], l.cols.ID)
		}
	}
	return false
}

// uniqueIndex is the one by which rows are found by id.
func (l *layout) uniqueIndex() string {
	for _, ix := range l.catalog.indexes {
		if ix.unique && len(ix.columns) == 1 && strings.EqualFold(ix.columns[0], l.cols.ID) {
			return ix.name
		}
	}
	return ""
}

func (l *layout) force(index string) string {
	if index == "" {
		return ""
	}
	return " FORCE INDEX (" + ident(index) + ")"
}

// status compares the status column with a word.
func (l *layout) status(word string) string {
	if l.cols.Status == "" {
		return "TRUE"
	}
	return col(l.cols.Status) + " = " + quote(word)
}

// tried tells of a row with the word of new ones that it failed before.
func (l *layout) tried() string {
	switch {
	case l.nullNRA:
		return col(l.cols.NextRetryAt) + " IS NOT NULL"
	case l.sameWord() && l.cols.RetryCount != "":
		return col(l.cols.RetryCount) + " > 0"
	default:
		return "FALSE"
	}
}

// dueOrNone: the row has no time, or it has come.
func (l *layout) dueOrNone() string {
	next := col(l.cols.NextRetryAt)
	if !l.nullNRA {
		return next + " <= NOW(6)"
	}
	return "(" + next + " IS NULL OR " + next + " <= NOW(6))"
}

// failedWhere are the rows that count as FAILED, due or not.
func (l *layout) failedWhere() string {
	switch {
	case l.cols.Status != "" && !l.sameWord():
		return l.status(l.states.Failed)
	case l.cols.NextRetryAt == "":
		return "FALSE"
	case l.nullNRA:
		return l.status(l.states.New) + " AND " + col(l.cols.NextRetryAt) + " IS NOT NULL"
	default:
		return fmt.Sprintf("%s AND (%s > 0 OR %s > NOW(6))", l.status(l.states.New), col(l.cols.RetryCount),
			col(l.cols.NextRetryAt))
	}
}

// deadWhere are the DEAD rows that nobody has discarded.
func (l *layout) deadWhere() string {
	if l.cols.Status == "" {
		return "FALSE"
	}
	if l.cols.LastError == "" {
		return l.status(l.states.Dead)
	}
	return fmt.Sprintf("%s AND COALESCE(%s, '') NOT LIKE 'discarded:%%'", l.status(l.states.Dead), col(l.cols.LastError))
}

// discardedWhere are the other DEAD rows.
func (l *layout) discardedWhere() string {
	if l.cols.Status == "" || l.cols.LastError == "" {
		return "FALSE"
	}
	return fmt.Sprintf("%s AND %s LIKE 'discarded:%%'", l.status(l.states.Dead), col(l.cols.LastError))
}

// blockingWhere are the rows that hold their key.
func (l *layout) blockingWhere() string {
	if l.onDead == relay.OnDeadSkip {
		return l.failedWhere()
	}
	return "(" + l.failedWhere() + ") OR (" + l.deadWhere() + ")"
}

// abandonedWhere are claimed rows whose claim is older than the timeout. In a zone with summer time the
// local clock jumps: a claim is old when both the local times and the instants say so. What the
// column's precision cut from the claim's time is given to it.
func (l *layout) abandonedWhere(timeoutMicros int64) string {
	claim := col(l.claimColumn())
	micros := timeoutMicros + l.roundUp(l.claimColumn())
	return fmt.Sprintf("%[1]s AND %[2]s <= NOW(6) - INTERVAL %[3]d MICROSECOND AND UNIX_TIMESTAMP(%[2]s) <= UNIX_TIMESTAMP(NOW(6)) - %[4]d.%06[5]d",
		l.status(l.states.Sending), claim, micros, micros/1e6, micros%1e6)
}
