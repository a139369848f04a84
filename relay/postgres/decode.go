package postgres

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/postrider/postrider/relay"
)

// positions in recordColumns.
const (
	atID = iota
	atKind
	atState
	atWait
	atKey
	atEventID
	atAggregateType
	atAggregateID
	atType
	atTopic
	atAttempts
	atCreated
	atHeaders
	atPayload
	atToken
	atSize
)

// kindMarker is the last row of a replay.
const kindMarker = 9

// decoder turns result rows into records. Values are read as the server sent them, binary or text, without
// reflection: this is the hot path.
type decoder struct {
	claimed bool  // the rows were just claimed
	scans   bool  // rows are claimed later: they come without content, with the size that was estimated
	most    int   // rows that may come, for the allocation
	budget  int64 // bytes of content that are kept; what comes beyond counts as over the limits
	types   *pgtype.Map
}

// records reads all rows. Content beyond the budget is dropped as it comes, so that a column that the
// server could not weigh exactly (a compressed one) costs no memory.
func (d *decoder) records(rows pgx.Rows) (recs []record, marker int64, err error) {
	fields := rows.FieldDescriptions()
	if len(fields) != len(recordColumns) {
		return nil, 0, fmt.Errorf("the server sent %d columns, not %d", len(fields), len(recordColumns))
	}
	var used int64
	for rows.Next() {
		if recs == nil {
			recs = make([]record, 0, d.most)
		}
		raw := rows.RawValues()
		r := record{id: number(raw[atID], fields[atID].Format)}
		k := number(raw[atKind], fields[atKind].Format)
		if k == kindMarker {
			marker = r.id
			continue
		}
		r.kind = kind(k)
		if raw[atKey] != nil && r.kind != kindOther {
			r.key = ptr(string(raw[atKey]))
		}
		r.state = [...]relay.State{relay.StateNew, relay.StateFailed, relay.StateSending}[number(raw[atState], fields[atState].Format)]
		switch r.kind {
		case kindLater:
			r.wait = time.Duration(number(raw[atWait], fields[atWait].Format)) * time.Microsecond
		case kindDue:
			if err := d.event(&r, raw, fields); err != nil {
				return nil, 0, err
			}
			if used > 0 && used+r.size > d.budget {
				r.kind, r.event = kindOver, relay.Event{}
				break
			}
			used += r.size
		}
		recs = append(recs, r)
	}
	return recs, marker, rows.Err()
}

func (d *decoder) event(r *record, raw [][]byte, fields []pgconn.FieldDescription) (err error) {
	e := &r.event
	e.Row, e.State, e.Key = rowID(r.id), r.state, r.key
	e.RetryCount = int(number(raw[atAttempts], fields[atAttempts].Format))
	texts(raw, &e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Topic)
	if e.CreatedAt, err = d.instant(raw[atCreated], fields[atCreated]); err != nil {
		return fmt.Errorf("read created_at: %w", err)
	}
	if d.claimed || r.state == relay.StateSending {
		token, err := d.instant(raw[atToken], fields[atToken])
		if err != nil {
			return fmt.Errorf("read the claim: %w", err)
		}
		e.State, e.Claim = relay.StateSending, formatClaim(token)
	}
	if raw[atPayload] != nil {
		if e.Payload, err = content(raw[atPayload], fields[atPayload]); err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
	}
	if raw[atHeaders] != nil {
		e.Headers, e.Malformed = relay.DecodeHeaders(raw[atHeaders])
	}
	if r.size = e.Size(); d.scans {
		r.size = number(raw[atSize], fields[atSize].Format)
	}
	return nil
}

// texts copies neighbouring columns with one allocation.
func texts(raw [][]byte, into ...*string) {
	n := 0
	for i := range into {
		n += len(raw[atEventID+i])
	}
	buf := make([]byte, 0, n)
	for i := range into {
		buf = append(buf, raw[atEventID+i]...)
	}
	all := string(buf)
	for i, s := range into {
		n := len(raw[atEventID+i])
		*s, all = all[:n], all[n:]
	}
}

// number reads an integer of any width; NULL is 0.
func number(raw []byte, format int16) int64 {
	if format == pgtype.TextFormatCode {
		n, _ := strconv.ParseInt(string(raw), 10, 64)
		return n
	}
	switch len(raw) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(raw)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(raw)))
	case 8:
		return int64(binary.BigEndian.Uint64(raw))
	}
	return 0
}

// content copies bytes; a bytea in text form is decoded.
func content(raw []byte, f pgconn.FieldDescription) ([]byte, error) {
	if f.DataTypeOID == pgtype.ByteaOID && f.Format == pgtype.TextFormatCode {
		if len(raw) < 2 || raw[0] != '\\' || raw[1] != 'x' {
			return nil, fmt.Errorf("bytea_output is not hex")
		}
		out := make([]byte, hex.DecodedLen(len(raw)-2))
		_, err := hex.Decode(out, raw[2:])
		return out, err
	}
	return append(make([]byte, 0, len(raw)), raw...), nil
}

// postgresEpoch is where binary times count from.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// instant reads a time with or without zone, the latter as it stands. NULL and the infinities are the zero
// time.
func (d *decoder) instant(raw []byte, f pgconn.FieldDescription) (time.Time, error) {
	if raw == nil {
		return time.Time{}, nil
	}
	if f.Format == pgtype.BinaryFormatCode && len(raw) == 8 {
		us := int64(binary.BigEndian.Uint64(raw))
		if us == -1<<63 || us == 1<<63-1 {
			return time.Time{}, nil
		}
		return postgresEpoch.Add(time.Duration(us) * time.Microsecond), nil
	}
	if f.DataTypeOID == pgtype.TimestampOID {
		var t pgtype.Timestamp
		if err := d.types.Scan(f.DataTypeOID, f.Format, raw, &t); err != nil || t.InfinityModifier != pgtype.Finite {
			return time.Time{}, err
		}
		return t.Time.UTC(), nil
	}
	var t pgtype.Timestamptz
	if err := d.types.Scan(f.DataTypeOID, f.Format, raw, &t); err != nil || t.InfinityModifier != pgtype.Finite {
		return time.Time{}, err
	}
	return t.Time.UTC(), nil
}

// A claim's token is the exact time that the claim wrote, without zone where the column has none.
const claimLayout = "2006-01-02T15:04:05.000000"

func formatClaim(t time.Time) string { return t.Format(claimLayout) }

func parseClaim(token string) (time.Time, error) {
	return time.ParseInLocation(claimLayout, token, time.UTC)
}

func ptr[T any](v T) *T { return &v }
