package kafka

import (
	"math/bits"

	"github.com/postrider/postrider/relay"
)

// maxRecord bounds a record where neither the topic nor max.request.size does: brokers refuse requests
// of more than 100 MiB (socket.request.max.bytes), and a request has a frame around its records.
const maxRecord = 100<<20 - 4096

// batchOverhead is the frame of a record batch: from the base offset to the number of records.
const batchOverhead = 61

// sizeOf is the bytes that a record takes in a batch of its own, the frame left out, exactly. With the
// frame this is what brokers compare with max.message.bytes.
func sizeOf(r *relay.Record) int {
	n := recordBody(r)
	return n + varint(n)
}

// inBatch is what a record takes more, at most, behind others: its offset in the batch has up to three
// bytes below a million records, not one, which may lengthen the length. Its timestamp stays at one,
// since the records of a write share it.
const inBatch = 3

func recordBody(r *relay.Record) int {
	n := 1 + 1 + 1 // attributes, timestamp delta, offset delta
	n += nullable(r.Key) + nullable(r.Value) + varint(len(r.Headers))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varint(len(h.Name)) + len(h.Name) + nullable(h.Value)
	}
	return n
}

func nullable(b []byte) int {
	if b == nil {
		return 1 // the length -1
	}
	return varint(len(b)) + len(b)
}

// varint is the length of a zigzag-encoded number that is not negative.
func varint(n int) int {
	return (bits.Len64(uint64(n)<<1|1) + 6) / 7
}
