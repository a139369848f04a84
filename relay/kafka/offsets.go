package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// laneLog is where a lane's progress records stand in its partition of the control topic.
type laneLog struct {
	pending []int64   // acknowledged and not known to be marked, ascending
	next    int64     // behind the last that is known
	carried []carried // likewise, of transactions without a record
	plain   bool      // a commit outside of transactions is under way
	at      time.Time // of the last transaction's progress
}

// committed is what the group has noted of a lane.
type committed struct {
	offset int64
	note   string
}

// noteFormat is the newest that is understood. Fields that older relays may leave aside do not make a new one.
const noteFormat = 1

// note is the metadata of a committed offset: the lane's owner, where reading may begin, and what is sent and
// stands in no progress record.
type note struct {
	Format int    `json:"format"`
	Relay  string `json:"relay"`
	Run    string `json:"run"`
	Member string `json:"member,omitempty"` // of a relay with a group.instance.id, see present.has
	Flows  int    `json:"flows,omitempty"`
	Table  string `json:"table"`
	Low    string `json:"low,omitempty"`
	At     int64  `json:"at,omitempty"` // of the last transaction, Unix milliseconds by the relay's clock, for people only

	Sent    []carried `json:"sent,omitempty"`
	damaged error
}

func parseNote(s *string) (n note) {
	if s != nil && *s != "" {
		if err := json.Unmarshal([]byte(*s), &n); err != nil {
			n.damaged = err
		}
	}
	return n
}

func (g *Group) metadata(lane int32) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.noteOf(lane)
}

// noteOf is called with g.mu held.
func (g *Group) noteOf(lane int32) string {
	n := note{Format: noteFormat, Relay: g.o.Relay, Run: g.runID, Flows: g.o.Flows, Table: g.o.Table, Low: g.lows[lane]}
	if g.lend.cfg.InstanceID != "" {
		n.Member = g.id
	}
	if l := g.logs[lane]; l != nil {
		n.Sent = l.carried
		if !l.at.IsZero() {
			n.At = l.at.UnixMilli()
		}
	}
	b, _ := json.Marshal(n)
	return string(b)
}

// keepLows asks where reading of the lanes may begin.
func (g *Group) keepLows(lanes []int32) {
	for _, lane := range lanes {
		if low, ok := g.keeper.Low(lane); ok {
			g.mu.Lock()
			g.lows[lane] = low
			g.mu.Unlock()
		}
	}
}

func (g *Group) atLog(lane int32, change func(*laneLog)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.logs[lane]; l != nil {
		change(l)
	}
}

// noted tells that a progress record was acknowledged.
func (g *Group) noted(lane int32, offset int64) {
	g.atLog(lane, func(l *laneLog) {
		if i, there := slices.BinarySearch(l.pending, offset); !there {
			l.pending = slices.Insert(l.pending, i, offset)
		}
		l.next, l.at = max(l.next, offset+1), time.Now()
	})
}

// dropped tells that a progress record was aborted.
func (g *Group) dropped(lane int32, offset int64) { g.marked(lane, offset) }

// marked tells that the table shows all that a progress record lists.
func (g *Group) marked(lane int32, offset int64) {
	g.atLog(lane, func(l *laneLog) {
		if i, there := slices.BinarySearch(l.pending, offset); there {
			l.pending = slices.Delete(l.pending, i, i+1)
		}
	})
}

// from is where a later owner must begin to read the lane's progress.
func (g *Group) from(lane int32) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fromOf(lane)
}

// fromOf is called with g.mu held; -1 without knowledge.
func (g *Group) fromOf(lane int32) int64 {
	l := g.logs[lane]
	switch {
	case l == nil:
		return -1
	case len(l.pending) > 0:
		return l.pending[0]
	}
	return l.next
}

// commitOffsets notes positions of lanes that have changed, outside of transactions. Values are never above
// what an open transaction commits for the lane: the lowest record that is not marked decides for both.
func (g *Group) commitOffsets(ctx context.Context, lanes []int32) {
	g.mu.Lock()
	m := g.membership()
	todo := map[int32]committed{}
	for _, lane := range lanes {
		c, l := committed{g.fromOf(lane), g.noteOf(lane)}, g.logs[lane]
		if g.own[lane] && c.offset >= 0 && g.wrote[lane] != c && !l.openList() {
			todo[lane] = c
			l.plain = true
		}
	}
	g.mu.Unlock()
	if len(todo) == 0 || m.id == "" {
		return
	}
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := g.offsetCommit(within, m, todo)
	g.settledPlain(todo, err)
	if err != nil {
		g.doubt(err)
		g.log.Debug("the lanes' positions were not noted", "error", err.Error())
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for lane, c := range todo {
		g.wrote[lane] = c
	}
}

// noteOwner notes this relay as the owner of lanes that it has taken.
func (g *Group) noteOwner(ctx context.Context, lanes []int32, m member) error {
	g.mu.Lock()
	todo := map[int32]committed{}
	for _, lane := range lanes {
		todo[lane] = committed{g.fromOf(lane), g.noteOf(lane)}
	}
	g.mu.Unlock()
	err := g.offsetCommit(ctx, m, todo)
	g.settledPlain(todo, err)
	return err
}

// with implements lanes.
func (g *Group) with(ctx context.Context, lanes []int32, f func(m member) error) error {
	const (
		longest = 5 * time.Second
		again   = 20 * time.Millisecond // an epoch moves without a word
	)
	within, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for {
		g.mu.Lock()
		m := g.membership()
		wait, mine := m.generation == g.refused, true
		for _, lane := range lanes {
			wait = wait || g.late[lane]
			mine = mine && (g.own[lane] || g.late[lane])
		}
		changed := g.changed
		g.mu.Unlock()
		switch {
		case !mine || m.id == "" || m.generation < 0: // a member without a name is let through by brokers unseen
			return errNotOwner
		case !wait:
			return f(m)
		}
		select {
		case <-changed:
		case <-time.After(again):
		case <-within.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			g.forgive(m)
			return errors.New("the group does not come to rest")
		}
	}
}

func (g *Group) owns(lane int32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.own[lane] || g.late[lane]
}

func (g *Group) stale(m member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.id == g.id {
		g.refused = m.generation
	}
}

// forgive lets a generation be tried again that was refused, and after which no other came: whatever the coordinator
// meant, waiting for the next one could last for ever.
func (g *Group) forgive(m member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.id == g.id && m.generation == g.refused {
		g.refused = -1
	}
}

func (g *Group) control() (topic string, id [16]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.topic, g.topicID
}

func (g *Group) run() string { return g.runID }
