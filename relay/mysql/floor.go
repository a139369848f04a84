package mysql

import "time"

// floor keeps reads short while the oldest new rows all belong to blocked keys: a hot key that waits
// for a person may have a million rows in front of everyone else's. It remembers a row below which the
// last whole scan saw nothing but blocked rows, and lets scans begin there for a while. It decides
// nothing for good: whole scans go on, at a pace that their cost allows, and find what committed late.
type floor struct {
	row   uint64 // scans begin above; 0 for the beginning
	last  uint64 // the last new row when a slow scan had found nothing
	until time.Time
}

const (
	// floorCost is what a scan must take to make it worthwhile.
	floorCost = 200 * time.Millisecond
	// floorShare of the time may go to whole scans, floorPause at least lies between them.
	floorShare = 20
	floorPause = time.Second
)

// start says where a scan begins. Reopened keys have rows below, so the floor goes.
func (f *floor) start(reopened bool, now time.Time) uint64 {
	if reopened || !now.Before(f.until) {
		f.row = 0
	}
	return f.row
}

// scanned notes a scan from start that found no row of an open key up to clear.
func (f *floor) scanned(start, clear uint64, began, ended time.Time) {
	if ended.Sub(began) < floorCost || clear <= start {
		return
	}
	f.row = clear
	if start == 0 {
		f.until = ended.Add(max(floorPause, floorShare*ended.Sub(began)))
	}
}
