//go:build synctests

package sim

import (
	"sync"
	"time"
	"unsafe"

	"modernc.org/libc"
	sqlite "modernc.org/sqlite/lib"
)

// Each world lives in a year of its own, by which the clock of its database knows whose it is: SQLite asks the clock
// without saying for which file.
const firstYear, lastYear = 2100, 2240

var (
	years  = make(chan int, lastYear-firstYear)
	clocks sync.Map // by year: func(time.Time) time.Time
)

// sqliteEpoch is 1970 in the milliseconds since noon in Greenwich on November 24, 4714 B.C. that SQLite counts.
const sqliteEpoch = 24405875 * int64(8640000)

// init puts the virtual time of the calling goroutine in the place of the computer's.
func init() {
	for year := firstYear; year < lastYear; year++ {
		years <- year
	}
	tls := libc.NewTLS()
	defer tls.Close()
	p := sqlite.Xsqlite3_vfs_find(tls, 0)
	vfs := *(**sqlite.Tsqlite3_vfs)(unsafe.Pointer(&p))
	vfs.FxCurrentTimeInt64 = *(*uintptr)(unsafe.Pointer(&struct {
		f func(*libc.TLS, uintptr, uintptr) int32
	}{databaseTime}))
	vfs.FxSleep = *(*uintptr)(unsafe.Pointer(&struct {
		f func(*libc.TLS, uintptr, int32) int32
	}{databaseSleep}))
}

func databaseTime(_ *libc.TLS, _, to uintptr) int32 {
	now := time.Now()
	if shown, ok := clocks.Load(now.UTC().Year()); ok {
		now = shown.(func(time.Time) time.Time)(now)
	}
	**(**int64)(unsafe.Pointer(&to)) = sqliteEpoch + now.UnixMilli()
	return sqlite.SQLITE_OK
}

func databaseSleep(_ *libc.TLS, _ uintptr, microseconds int32) int32 {
	time.Sleep(time.Duration(microseconds) * time.Microsecond)
	return microseconds
}

// moveTo lets the bubble's time pass until a year begins.
func moveTo(year int) {
	time.Sleep(time.Until(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)))
}
