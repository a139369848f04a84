package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Size is a number of bytes, written 1048576, 512KB, 1MB (powers of ten) or 8MiB (powers of two).
type Size int64

// Binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var sizeUnits = []struct {
	name string
	size Size
}{
	{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// String gives the largest unit that divides the size.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 && u.size > 1 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseSize reads a size. Units compare without case; a fraction (1.5MB) must come to whole bytes.
func ParseSize(text string) (Size, error) {
	number, unit := strings.TrimSpace(text), Size(1)
	for _, u := range sizeUnits {
		if cut := len(number) - len(u.name); cut > 0 && strings.EqualFold(number[cut:], u.name) {
			number, unit = strings.TrimSpace(number[:cut]), u.size
			break
		}
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		if whole < 0 || whole > math.MaxInt64/int64(unit) {
			return 0, fmt.Errorf("is out of range")
		}
		return Size(whole) * unit, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	b := f * float64(unit)
	if err != nil || strings.ContainsAny(number, "eExX_") || !(b >= 0 && b < 1<<53) || b != math.Trunc(b) {
		return 0, fmt.Errorf("is not a size")
	}
	return Size(b), nil
}

// formatDuration writes a duration as people do: 5m, not 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// show quotes a value for a problem's text. Long or odd ones, which may be something else that was
// pasted into the wrong place, are not repeated.
func show(value string) string {
	odd := strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
	if odd || len(value) > 40 || strings.ContainsAny(value, "@=") || strings.Contains(value, "://") {
		return "the value"
	}
	return strconv.Quote(value)
}

// snake turns a field's name into its key: PollInterval is poll_interval, EventID is event_id.
func snake(name string) string {
	var b strings.Builder
	rs := []rune(name)
	for i, r := range rs {
		starts := unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(rs[i-1]) || (i+1 < len(rs) && unicode.IsLower(rs[i+1])))
		if starts {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
