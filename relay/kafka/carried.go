package kafka

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/relay"
)

// carried is what one transaction sent of one lane, in the metadata of the lane's committed offset. A small
// transaction needs no progress record then, which saves it a round trip and its reader a wait. The transaction's
// own commit brings it, atomically with the records; every later commit for the lane carries it on until its rows
// are marked.
//
// A commit outside of transactions that comes between such a commit and the transaction's end would win over it
// and hide the list, so the two keep out of each other's way: see laneLog.plain and openList.
type carried struct {
	Number uint64 `json:"n"` // of the transaction, within the run
	Rows   string `json:"l"` // encodeProgress, in base64
	open   bool   // how the transaction ended is not known
}

// carrying is off: a commit outside of transactions that the network delivers late, after a second try of it, can still
// hide a list (seed 30382 of relay/sim), and an event would be sent twice. Progress goes into records until that is closed.
var carrying = false

// Sizes in bytes.
const (
	// maxMetadata stays below the default of the brokers' offset.metadata.max.bytes (4096).
	maxMetadata = 3584
	// maxCarried is what a transaction may have to tell of one lane, before base64.
	maxCarried = 1024
)

// worthCarrying says whether a transaction's rows are few enough, and all are rows: what became of copies for
// the dead-letter topic could not be found out once their lane has gone to another relay.
func (x *transaction) worthCarrying() bool {
	sizes := make(map[int32]int, len(x.lanes))
	for n := range x.data {
		r := &x.b.recs[x.data[n].index]
		if r.Row == "" {
			return false
		}
		if sizes[r.Lane] += rowNumbers/2 + len(r.Row) + len(r.Topic); sizes[r.Lane] > maxCarried {
			return false
		}
	}
	return len(x.lanes) > 0
}

// carry puts the transaction's rows into what the lanes' metadata is to hold. False when it must write progress
// records instead.
func (x *transaction) carry() bool {
	if !x.small {
		return false
	}
	lists := make(map[int32]string, len(x.lanes))
	for lane, rows := range x.rows() {
		lists[lane] = base64.RawStdEncoding.EncodeToString(encodeProgress(rows))
	}
	x.carried = x.b.t.g.carry(lists)
	return x.carried != 0
}

// carry implements lanes.
func (g *Group) carry(lists map[int32]string) (number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane, rows := range lists {
		l := g.logs[lane]
		if g.recordsOnly || l == nil || l.plain || len(g.noteOf(lane))+len(rows)+32 > maxMetadata {
			return 0
		}
	}
	g.lists++
	for lane, rows := range lists {
		l := g.logs[lane]
		l.carried, l.at = append(l.carried, carried{Number: g.lists, Rows: rows, open: true}), time.Now()
	}
	return g.lists
}

// kept implements lanes.
func (g *Group) kept(lanes []int32, number uint64) {
	g.atLists(lanes, number, func(l *laneLog, i int) { l.carried[i].open = false })
}

// uncarry implements lanes.
func (g *Group) uncarry(lanes []int32, number uint64) {
	g.atLists(lanes, number, func(l *laneLog, i int) { l.carried = slices.Delete(l.carried, i, i+1) })
}

func (g *Group) atLists(lanes []int32, number uint64, change func(l *laneLog, i int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, lane := range lanes {
		if l := g.logs[lane]; l != nil {
			if i := l.list(number); i >= 0 {
				change(l, i)
			}
		}
	}
}

func (l *laneLog) list(number uint64) int {
	return slices.IndexFunc(l.carried, func(c carried) bool { return c.Number == number })
}

// openList says that a transaction that carries its progress has not ended yet.
func (l *laneLog) openList() bool {
	return slices.ContainsFunc(l.carried, func(c carried) bool { return c.open })
}

// carryNoMore implements lanes.
func (g *Group) carryNoMore() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.recordsOnly {
		g.recordsOnly = true
		g.log.Info("the brokers take little metadata with an offset (offset.metadata.max.bytes): progress goes into records, which takes small transactions longer", "group", g.topic)
	}
}

// committedList implements lanes. A lane tells when it has been this relay's without a break since the
// transaction: nobody else has committed for it then.
func (g *Group) committedList(ctx context.Context, lanes []int32, number uint64) (there bool, err error) {
	since := g.keepers(lanes, number)
	if len(since) == 0 {
		return false, nil // whoever has the lanes now has read what is committed
	}
	noted, err := g.offsetFetch(ctx, lanes, true)
	if err != nil {
		return false, err
	}
	still := g.keepers(lanes, number)
	for _, l := range noted {
		if since[l.lane] == nil || since[l.lane] != still[l.lane] {
			continue
		}
		return l.note.Run == g.runID && slices.ContainsFunc(l.note.Sent, func(c carried) bool { return c.Number == number }), nil
	}
	return false, nil
}

// keepers are those of the lanes that are this relay's since before the transaction.
func (g *Group) keepers(lanes []int32, number uint64) map[int32]*laneLog {
	g.mu.Lock()
	defer g.mu.Unlock()
	keepers := make(map[int32]*laneLog, len(lanes))
	for _, lane := range lanes {
		if l := g.logs[lane]; l != nil && (g.own[lane] || g.late[lane]) && l.list(number) >= 0 {
			keepers[lane] = l
		}
	}
	return keepers
}

// sent reads what the metadata lists.
func (n note) sent() (rows []relay.SentRow, err error) {
	if n.damaged != nil {
		return nil, fmt.Errorf("%w: %w", errProgress, n.damaged)
	}
	for _, c := range n.Sent {
		b, err := base64.RawStdEncoding.DecodeString(c.Rows)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errProgress, err)
		}
		list, err := decodeProgress(b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, list...)
	}
	return rows, nil
}

// settledPlain notes how a commit outside of transactions ended. When that is not known it may still be applied,
// at any time, also after the lanes were taken anew: all progress goes into records from then on.
func (g *Group) settledPlain(lanes map[int32]committed, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recordsOnly = g.recordsOnly || err != nil && !ofTheMembership(err)
	for lane := range lanes {
		if l := g.logs[lane]; l != nil {
			l.plain = false
		}
	}
}
