package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/relay"
)

// Fetch returns due events in the order of their ids. Without claims it is one statement, so one
// snapshot; with ClaimRows it locks, claims and commits in one short transaction.
func (s *Store) Fetch(ctx context.Context, f relay.Fetch) (relay.Fetched, error) {
	if s.laneless() {
		return relay.Fetched{}, nil
	}
	if o := s.owned(); o != nil && o.away.Load() {
		return relay.Fetched{}, fmt.Errorf("read events: %w", errAway)
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r, err := s.newRead(f)
	if err != nil {
		return relay.Fetched{}, fmt.Errorf("read events: %w", err)
	}
	var got relay.Fetched
	if s.layout().claim == relay.ClaimRows {
		err = s.inTx(ctx, func(tx *sql.Tx) error {
			r.rows, r.horizon = nil, math.MaxUint64
			got, err = s.claimRows(ctx, tx, r)
			return err
		})
	} else {
		got, err = s.readRows(ctx, r)
	}
	if number(err) == errNoIndex { // the index was dropped, perhaps for a better one
		if err := s.look(ctx); err != nil {
			return relay.Fetched{}, fmt.Errorf("read events: %w", err)
		}
		return relay.Fetched{More: true}, nil
	}
	if err != nil {
		s.suspect()
		return relay.Fetched{}, fmt.Errorf("read events: %w", err)
	}
	return got, nil
}

// read is one Fetch at work.
type read struct {
	fetch  relay.Fetch
	limit  int
	page   int      // rows asked for at once: as many as are likely to fit
	fresh  string   // filter of new rows
	tried  string   // filter of rows that were tried before
	busy   []uint64 // ascending
	parked map[uint64]parked
	start  uint64
	began  time.Time

	rows    []found
	horizon uint64 // rows up to here are known in all parts
}

func (s *Store) newRead(f relay.Fetch) (*read, error) {
	r := &read{fetch: f, limit: max(f.Limit, 1), parked: s.parkedRows(), began: time.Now(), horizon: math.MaxUint64}
	r.busy = make([]uint64, 0, len(f.Busy)+len(r.parked))
	for _, id := range f.Busy {
		n, err := s.layout().rowNumber(id)
		if err != nil {
			return nil, err
		}
		r.busy = append(r.busy, n)
	}
	for n, p := range r.parked {
		if p.dead || r.began.Before(p.due) {
			r.busy = append(r.busy, n)
		}
	}
	slices.Sort(r.busy)
	r.busy = slices.Compact(r.busy)
	r.page = r.limit
	if f.MaxBytes > 0 && s.bytes > 0 {
		r.page = min(r.limit, max(4, int(1.25*float64(f.MaxBytes)/s.bytes)))
	} else if f.MaxBytes > 0 {
		r.page = min(r.limit, 100) // nothing is known yet about the size of events
	}
	if s.cut.missed {
		r.page = max(r.page, s.cut.page)
	}
	if err := s.filter(f, r); err != nil {
		return nil, err
	}
	r.start = s.floor.start(len(f.Reopened) > 0, r.began)
	return r, nil
}

// filter leaves out what is busy, what belongs to a blocked key and what is of other relays' lanes.
func (s *Store) filter(f relay.Fetch, r *read) error {
	l := s.layout()
	var b strings.Builder
	if len(r.busy) > 0 {
		b.WriteString(" AND ")
		b.WriteString(l.notIn(r.busy))
	}
	b.WriteString(s.inLanes())
	filter := b.String()
	if len(f.Blocked) == 0 {
		if f.HeadsOnly {
			filter = " AND FALSE"
		}
		r.fresh, r.tried = filter, filter
		return nil
	}
	if err := s.keys.set(l, f.Blocked); err != nil {
		return err
	}
	// The head of a blocked key comes only as a failed row whose time has come.
	head := fmt.Sprintf("%s IN (%s)", col(l.cols.ID), s.keys.heads)
	fresh := "FALSE"
	switch {
	case l.plan.retry != "": // they come from there
	case l.cols.Status == "" && l.cols.NextRetryAt == "":
		fresh = s.parkedHeads(f.Blocked, r)
	default:
		fresh = head + " AND " + l.tried()
	}
	if f.HeadsOnly {
		r.fresh, r.tried = filter+" AND "+fresh, filter+" AND "+head
		return nil
	}
	open := fmt.Sprintf(" AND (%[1]s IS NULL OR %[1]s NOT IN (%[2]s) OR ", l.gate, s.keys.keys)
	r.fresh, r.tried = filter+open+fresh+")", filter+open+head+")"
	return nil
}

// parkedHeads are the heads that failed, of a table whose rows cannot say so.
func (s *Store) parkedHeads(blocked []relay.Blocked, r *read) string {
	var heads []uint64
	for _, b := range blocked {
		n, _ := s.layout().rowNumber(b.Head) // was read a moment ago
		if r.parked[n].attempts > 0 {
			heads = append(heads, n)
		}
	}
	if len(heads) == 0 {
		return "FALSE"
	}
	return fmt.Sprintf("%s IN (%s)", col(s.layout().cols.ID), s.layout().list(heads))
}

// maxRanges is how many ranges of busy rows the optimizer is asked to step over.
const maxRanges = 100

// notIn leaves rows out: as ranges, which the index scan steps over, or as a list if they are many.
func (l *layout) notIn(numbers []uint64) string {
	var ranges []string
	id := col(l.cols.ID)
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		ranges = append(ranges, fmt.Sprintf("%s NOT BETWEEN %s AND %s", id, l.digits(numbers[i]), l.digits(numbers[j])))
		i = j + 1
	}
	if len(ranges) <= maxRanges {
		return strings.Join(ranges, " AND ")
	}
	return id + " NOT IN (" + l.list(numbers) + ")"
}

func (l *layout) list(numbers []uint64) string {
	var b strings.Builder
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.digits(n))
	}
	return b.String()
}

// maxGateKey is the longest key that stands in a statement as it is; of longer ones a digest does. So
// the statement fits the smallest packet that servers take, however many keys are blocked.
const maxGateKey = 64

// keyList remembers the text of the blocked keys, which stay the same over many reads.
type keyList struct {
	blocked     []relay.Blocked
	keys, heads string
}

func (k *keyList) set(l *layout, blocked []relay.Blocked) error {
	if len(k.blocked) == len(blocked) && &k.blocked[0] == &blocked[0] {
		return nil
	}
	var keys, heads strings.Builder
	for i, b := range blocked {
		n, err := l.rowNumber(b.Head)
		if err != nil {
			return err
		}
		if i > 0 {
			keys.WriteByte(',')
			heads.WriteByte(',')
		}
		if len(b.Key) > maxGateKey {
			fmt.Fprintf(&keys, "x'%x'", sha256.Sum224([]byte(b.Key)))
		} else {
			fmt.Fprintf(&keys, "x'%x'", b.Key)
		}
		heads.WriteString(l.digits(n))
	}
	k.blocked, k.keys, k.heads = blocked, keys.String(), heads.String()
	return nil
}
