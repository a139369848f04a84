package relay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Lanes tells a relay which slices of the keys are its own. A lane is a hash slice, see LaneOf: one relay
// at a time works on it, so that one relay at a time works on a key. It is implemented over a Kafka
// consumer group, whose broker fences a relay that has lost its lanes.
type Lanes interface {
	// Run takes part until ctx ends, then gives up its lanes so that others have them at once, closes what it
	// holds, and returns nil; it is called once, with a context that has ended if it is not to begin at all. An
	// error is one that makes going on senseless. Calls to k follow one another; they are made from Run's
	// goroutines and never after it has returned.
	Run(ctx context.Context, k LaneKeeper) error
}

// LaneKeeper is the relay as its Lanes see it.
type LaneKeeper interface {
	// Take tells of lanes that have become this relay's. Whatever earlier owners had open has ended: what
	// they had committed and perhaps not marked stands in Sent. Take returns when that is marked and the
	// lanes are being read; the caller then notes the new owner. With an error the lanes are not taken, and
	// Take may be called again. ctx ends when the lanes are lost meanwhile.
	Take(ctx context.Context, lanes []TakenLane) error
	// Give tells of lanes that another relay is to have. It returns when nothing of them is in flight or
	// about to be marked, or when ctx ends: the broker, not this relay, is what keeps the order then.
	Give(ctx context.Context, lanes []int32)
	// Low is a position below which every event of a lane is settled, to be noted for later owners; ok is
	// false when none is known, or when the lane is not read any more: what was noted before holds then.
	Low(lane int32) (low string, ok bool)
	// Lose tells of lanes that another relay may have already. Nothing is waited for: no verdict about
	// their events is written any more. That an event was sent stays true and is still marked.
	Lose(lanes []int32)
}

// TakenLane is a lane and what its earlier owners left.
type TakenLane struct {
	Lane int32
	// Low is Store.Low of the last owner, as far as it was noted; "" when nobody had the lane before.
	Low string
	// Sent are records that are committed in Kafka and of which it is not known that they are marked.
	Sent []SentRow
}

// SentRow is what a progress record says of one event.
type SentRow struct {
	Row     RowID
	Event   uint64 // HashEvent of its id: row ids may be used again, event ids may not
	Receipt Receipt
}

// OwnLane is a lane that a Store is to read.
type OwnLane struct {
	Lane int32
	Low  string // Store.Low of the last owner; "" for the beginning of the table
}

// OwnedLanes checks what Own was called with on a Store that was opened with these options, and returns the lanes in
// order.
func (o *StoreOptions) OwnedLanes(lanes []OwnLane) ([]int32, error) {
	if o.Claim != ClaimLanes {
		return nil, fmt.Errorf("own lanes: the store was opened with claim: %s", o.Claim)
	}
	numbers := make([]int32, len(lanes))
	for i, l := range lanes {
		if l.Lane < 0 || l.Lane >= o.Lanes || slices.Contains(numbers[:i], l.Lane) {
			return nil, fmt.Errorf("own lanes: %d is not one of %d lanes, or named twice", l.Lane, o.Lanes)
		}
		numbers[i] = l.Lane
	}
	slices.Sort(numbers)
	return numbers, nil
}

// LaneOf is the lane of a key, of n: the first four bytes of the SHA-256 of its UTF-8 bytes, big endian, modulo
// n. It must be computable by every database: PostgreSQL, MySQL and MariaDB have SHA-256 built in (MD5 is gone
// from MySQL since 9.6), and the relay's own connections to SQLite bring it along. A row without a key has the
// lane of its id in decimal digits or whatever text its RowID is.
func LaneOf(key string, n int32) int32 {
	sum := sha256.Sum256([]byte(key))
	return int32(binary.BigEndian.Uint32(sum[:4]) % uint32(n))
}

// HashEvent is the 64-bit FNV-1a hash of an event id.
func HashEvent(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h
}
