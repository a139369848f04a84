package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/postrider/postrider/relay"
)

// A progress record says which events one transaction sent of one lane, and where their records stand. It is
// committed or aborted with them. Numbers are unsigned varints, texts have their length before them:
//
//	version (1), count of topics, topics, count of events,
//	then for each event: row, 8 bytes of the id's hash (big endian), topic's index, partition, offset
//
// Rows of decimal digits, which nearly all are, are written as the difference to the row before, zigzag, behind
// a 0 length.
const progressVersion = 1

// maxProgress bounds what one record may list, so that a damaged count costs no memory.
const maxProgress = 1 << 20

func encodeProgress(sent []relay.SentRow) []byte {
	topics := map[string]uint64{}
	var names []string
	for i := range sent {
		name := sent[i].Receipt.Topic
		if _, known := topics[name]; !known {
			topics[name] = uint64(len(names))
			names = append(names, name)
		}
	}
	b := make([]byte, 0, 16+24*len(sent))
	b = append(b, progressVersion)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendText(b, name)
	}
	b = binary.AppendUvarint(b, uint64(len(sent)))
	last := int64(0)
	for i := range sent {
		s := &sent[i]
		if id, ok := decimal(string(s.Row)); ok {
			b = binary.AppendUvarint(b, 0)
			b = binary.AppendVarint(b, id-last)
			last = id
		} else {
			b = appendText(b, string(s.Row))
		}
		b = binary.BigEndian.AppendUint64(b, s.Event)
		b = binary.AppendUvarint(b, topics[s.Receipt.Topic])
		b = binary.AppendUvarint(b, uint64(s.Receipt.Partition))
		b = binary.AppendUvarint(b, uint64(s.Receipt.Offset))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decimal reads a number that is written the one way that formats back to the same text.
func decimal(s string) (n int64, ok bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

var (
	errProgress = errors.New("the progress record is damaged")
	errNewer    = errors.New("a newer version of the relay wrote it")
)

func decodeProgress(b []byte) (sent []relay.SentRow, err error) {
	switch {
	case len(b) == 0 || b[0] == 0:
		return nil, errProgress
	case b[0] > progressVersion:
		return nil, fmt.Errorf("%w: format %d, and this one reads %d", errNewer, b[0], progressVersion)
	}
	r := reading{b: b[1:]}
	names := make([]string, 0, 4)
	for range r.count() {
		names = append(names, r.text(r.number()))
	}
	last := int64(0)
	for range r.count() {
		var s relay.SentRow
		if n := r.number(); n == 0 {
			last += r.signed()
			s.Row = relay.RowID(fmt.Sprint(last))
		} else {
			s.Row = relay.RowID(r.text(n))
		}
		s.Event = r.hash()
		topic := r.number()
		s.Receipt.Partition, s.Receipt.Offset = int32(r.number()), int64(r.number())
		if r.bad || topic >= uint64(len(names)) {
			return nil, errProgress
		}
		s.Receipt.Topic = names[topic]
		sent = append(sent, s)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errProgress
	}
	return slices.Clip(sent), nil
}

// reading takes values off the front of b; once something is missing everything is zero.
type reading struct {
	b   []byte
	bad bool
}

func (r *reading) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reading) signed() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reading) count() uint64 {
	n := r.number()
	if n > maxProgress {
		r.bad, r.b = true, nil
		return 0
	}
	return n
}

func (r *reading) text(n uint64) string {
	if uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reading) hash() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	h := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return h
}
