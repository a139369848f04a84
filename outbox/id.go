package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"
)

// ids hands out UUIDs of one process in ascending order. The 12 bits after the version count within
// a millisecond (RFC 9562, section 6.2, method 1), and a clock that steps back does not step ids back.
var ids struct {
	sync.Mutex
	tick uint64 // milliseconds since 1970 << 12 | counter
}

// NewID returns a new UUIDv7 in its usual text form. Later ids of one process sort after earlier
// ones. Choose an event's id with it before the transaction begins, and keep it for every attempt,
// when the transaction may be repeated after a COMMIT whose outcome is unknown.
func NewID() string {
	var u [16]byte
	_, _ = rand.Read(u[8:]) // never fails: the program ends when the system has no randomness
	now := uint64(time.Now().UnixMilli()) << 12
	ids.Lock()
	ids.tick = max(ids.tick+1, now)
	tick := ids.tick
	ids.Unlock()
	binary.BigEndian.PutUint64(u[:8], tick>>12<<16|0x7000|tick&0xfff)
	u[8] = u[8]&0x3f | 0x80

	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	text[8] = '-'
	hex.Encode(text[9:13], u[4:6])
	text[13] = '-'
	hex.Encode(text[14:18], u[6:8])
	text[18] = '-'
	hex.Encode(text[19:23], u[8:10])
	text[23] = '-'
	hex.Encode(text[24:36], u[10:16])
	return string(text[:])
}
