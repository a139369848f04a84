package demo

import (
	"github.com/postrider/postrider/relay"
)

// Entry is one committed event by the ledger, which the order service wrote in its own transaction.
type Entry struct {
	EventID string
	Key     string
	Type    string
	Version int // counts the events of the key, ascending in the order of commits
	Digest  string
}

// Record is one record as it stands in Kafka. Records of a partition are given in the order of offsets.
type Record struct {
	EventID   string // header event_id; empty when there is none
	Key       string
	Version   int
	Digest    string
	Topic     string
	Partition int32
	Offset    int64
}

// Row is an outbox row that is not SENT.
type Row struct {
	State     relay.State
	LastError string
}

// Effects counts for one consumer how often each event changed its tables.
type Effects struct {
	Handles []string // the types of events that change something
	Applied map[string]int
}

// Evidence is everything that a verdict is made of, read when the run has ended.
type Evidence struct {
	Ledger  []Entry
	Records []Record
	Rows    map[string]Row // by event id
	Effects map[string]Effects
}

// Verdict counts how the promises were kept. Zero everywhere but in Committed and Delivered is a run
// that kept them all; Waiting and Dead are events that the table still has, with their reason.
type Verdict struct {
	Committed int // events by the ledger
	Delivered int // of those, found in Kafka

	Missing      int // committed, and neither in Kafka nor waiting nor DEAD with a reason (P1)
	Phantom      int // in Kafka or in a consumer's tables, and not committed (P2)
	OutOfOrder   int // first occurrences behind a later event of their key, or in another partition (P3)
	Doubled      int // further records of an event (P4)
	AppliedTwice int // events that changed a consumer's tables more than once (P5)
	NotApplied   int // delivered events that never changed the tables of a consumer that handles them
	Altered      int // records whose bytes are not what the service wrote (P11)

	Waiting int // NEW, SENDING or FAILED
	Dead    int // DEAD with a reason
}

// Judge compares the ledger with the topics, the outbox and the consumers' tables.
func Judge(e Evidence) Verdict {
	v := Verdict{Committed: len(e.Ledger)}
	ledger := make(map[string]*Entry, len(e.Ledger))
	for i := range e.Ledger {
		ledger[e.Ledger[i].EventID] = &e.Ledger[i]
	}
	t := newTally()
	phantoms := map[string]struct{}{}
	for i := range e.Records {
		r := &e.Records[i]
		entry, committed := ledger[r.EventID]
		if !committed {
			phantoms[r.EventID] = struct{}{}
			continue
		}
		t.add(r)
		if r.Digest != entry.Digest || r.Key != entry.Key || r.Version != entry.Version {
			v.Altered++
		}
	}
	v.Delivered, v.Doubled, v.OutOfOrder = len(t.seen), t.doubled, t.outOfOrder
	for id := range ledger {
		if !t.has(id) {
			v.absent(e.Rows[id])
		}
	}
	for _, effects := range e.Effects {
		v.judgeEffects(effects, ledger, t, phantoms)
	}
	v.Phantom = len(phantoms)
	return v
}

// absent judges a committed event that is not in Kafka by its row; the zero Row is none, or SENT.
func (v *Verdict) absent(row Row) {
	switch {
	case row.State == relay.StateNew || row.State == relay.StateSending || row.State == relay.StateFailed:
		v.Waiting++
	case row.State == relay.StateDead && row.LastError != "":
		v.Dead++
	default:
		v.Missing++
	}
}

func (v *Verdict) judgeEffects(e Effects, ledger map[string]*Entry, t *tally, phantoms map[string]struct{}) {
	for id, times := range e.Applied {
		if _, committed := ledger[id]; !committed {
			phantoms[id] = struct{}{}
		}
		if times > 1 {
			v.AppliedTwice++
		}
	}
	handles := map[string]bool{}
	for _, eventType := range e.Handles {
		handles[eventType] = true
	}
	for id, entry := range ledger {
		if handles[entry.Type] && t.has(id) && e.Applied[id] == 0 {
			v.NotApplied++
		}
	}
}

// tally follows records as they come: repetitions and the order within keys.
type tally struct {
	seen       map[string]struct{}
	keys       map[string]*place
	doubled    int
	outOfOrder int
}

// place is how far the first occurrences of a key have come, and where.
type place struct {
	version   int
	topic     string
	partition int32
}

func newTally() *tally {
	return &tally{seen: map[string]struct{}{}, keys: map[string]*place{}}
}

func (t *tally) has(id string) bool {
	_, seen := t.seen[id]
	return seen
}

// add counts a record and says whether it is the first of its event.
func (t *tally) add(r *Record) (first bool) {
	if t.has(r.EventID) {
		t.doubled++
		return false
	}
	t.seen[r.EventID] = struct{}{}
	p, known := t.keys[r.Key]
	switch {
	case !known:
		t.keys[r.Key] = &place{r.Version, r.Topic, r.Partition}
	case r.Topic != p.topic || r.Partition != p.partition || r.Version < p.version:
		t.outOfOrder++
	default:
		p.version = r.Version
	}
	return true
}
