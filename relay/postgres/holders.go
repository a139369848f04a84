package postgres

import (
	"slices"
	"strconv"
	"strings"
)

// holder is a transaction that holds the table's ROW EXCLUSIVE lock, so that it may have drawn ids.
type holder struct {
	name string   // virtual transaction and process, unique while the server runs
	xids []uint32 // its transaction and subtransactions; none before it has written anything
}

// isPrepared tells the names that transactions have after PREPARE TRANSACTION.
func isPrepared(name string) bool { return strings.HasPrefix(name, "-1/") }

// lockView is what pg_locks said, with a snapshot that was taken after the read forward and before
// pg_locks was looked at.
type lockView struct {
	holders  []holder
	snapshot snapshot
	byName   map[string]holder // made by find
}

// snapshot is pg_current_snapshot(): xids below xmin have ended, from xmax on they have not begun.
type snapshot struct {
	xmax    uint64
	running []uint64 // in progress below xmax, top level only
}

// parseSnapshot reads xmin:xmax:xip,xip,… . A text it does not understand gives the empty snapshot, for
// which every transaction has ended: then gaps are looked at more often, never less.
func parseSnapshot(text string) snapshot {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}
	}
	xmax, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return snapshot{}
	}
	s := snapshot{xmax: xmax}
	for x := range strings.SplitSeq(parts[2], ",") {
		if n, err := strconv.ParseUint(x, 10, 64); err == nil {
			s.running = append(s.running, n)
		}
	}
	return s
}

// unfinished says that nothing the holder wrote is visible in the snapshot.
func (s snapshot) unfinished(h holder) bool {
	if len(h.xids) == 0 {
		return true // it had written nothing when the locks were read, which was later
	}
	if s.xmax == 0 {
		return false
	}
	return slices.ContainsFunc(h.xids, func(x uint32) bool {
		// pg_locks shows the low half of an xid; it lies within 2^31 of the snapshot's.
		full := uint64(int64(s.xmax) + int64(int32(x-uint32(s.xmax))))
		return full >= s.xmax || slices.Contains(s.running, full)
	})
}

func (v *lockView) find(name string) (holder, bool) {
	if v.byName == nil {
		v.byName = make(map[string]holder, len(v.holders))
		for _, h := range v.holders {
			v.byName[h.name] = h
		}
	}
	h, ok := v.byName[name]
	return h, ok
}

func (v *lockView) names() []string {
	names := make([]string, len(v.holders))
	for i, h := range v.holders {
		names[i] = h.name
	}
	slices.Sort(names)
	return names
}

// gapGroup is missing ids with the transactions that may still fill them.
type gapGroup struct {
	holders []string // ascending
	ids     spans
}

// check takes the holders that have ended out of the group and says whether one of the ids may have
// appeared since the last look.
//
// A transaction becomes visible a moment before its locks are released, so a holder that is still
// listed counts as ended too when the snapshot says that its xid is not in progress any more. A name
// that is gone may live on as a prepared transaction under a new one: then all prepared ones are
// suspects.
func (g *gapGroup) check(v *lockView) (changed bool) {
	var left []string
	vanished := false
	for _, name := range g.holders {
		h, listed := v.find(name)
		if !listed {
			changed = true
			vanished = vanished || !isPrepared(name)
			continue
		}
		if !v.snapshot.unfinished(h) {
			changed = true
		}
		left = append(left, name)
	}
	if vanished {
		for _, h := range v.holders {
			if isPrepared(h.name) && !slices.Contains(left, h.name) {
				left = append(left, h.name)
			}
		}
		slices.Sort(left)
	}
	g.holders = left
	return changed
}

// changed is check without consequences.
func (g *gapGroup) changed(v *lockView) bool {
	again := gapGroup{holders: g.holders}
	return again.check(v)
}
