package sqlite

import "time"

// floor keeps reads short while the oldest new rows all belong to blocked keys: a hot key that waits
// for a person may have a million rows in front of everyone else's. It remembers a row below which the
// last whole scan saw nothing but blocked rows, and lets scans begin there for a while. It decides
// nothing for good: whole scans go on, at a pace that their cost allows, and find what committed late.
type floor struct {
	row   int64 // scans begin above; 0 for the beginning
	until time.Time
}

const (
	// floorRows is how many blocked rows in front make it worthwhile.
	floorRows = 10_000
	// floorShare of the time may go to whole scans, floorPause at least lies between them.
	floorShare = 20
	floorPause = time.Second
)

// start says where a scan begins. Reopened keys have rows below, so the floor goes.
func (f *floor) start(reopened bool, now time.Time) int64 {
	if reopened || !now.Before(f.until) {
		f.row = 0
	}
	return f.row
}

// walked notes a scan from start that passed n blocked rows, the last of them row, before any other.
func (f *floor) walked(start int64, n int, row int64, began, ended time.Time) {
	if n < floorRows {
		return
	}
	f.row = row
	if start == 0 {
		f.until = ended.Add(max(floorPause, floorShare*ended.Sub(began)))
	}
}
