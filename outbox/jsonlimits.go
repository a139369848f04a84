package outbox

import (
	"bytes"
	"math"
	"strconv"
)

// jsonLimits is what a JSON column refuses, or silently alters, beyond broken syntax. The figures
// were tried on PostgreSQL 15 and 18, MySQL 9.7 and MariaDB 10.11.
type jsonLimits struct {
	column       string // the column type's name, for messages
	instead      string // what to do about a text that the type does not take
	notJSON      string // what to do about a text that is not JSON
	depth        int
	noNUL        bool                        // refuses the escape \u0000
	noSurrogates bool                        // refuses the escape of half a surrogate pair
	number       func(literal []byte) string // the reason why the number is not kept, or ""
}

func jsonLimitsOf(d Dialect, ct ColumnType) *jsonLimits {
	switch {
	case d == Postgres && ct == JSONB:
		return &jsonLimits{
			column: "jsonb", instead: "use bytea or json/text", notJSON: "use bytea or text for other formats",
			depth: 5000, noNUL: true, noSurrogates: true, number: checkNumeric,
		}
	case d == MySQL:
		return &jsonLimits{
			column: "JSON", instead: "use LONGBLOB or LONGTEXT", notJSON: "use LONGBLOB for other formats",
			depth: 100, noSurrogates: true, number: checkDouble,
		}
	case d == MariaDB: // LONGTEXT with CHECK (JSON_VALID(...))
		return &jsonLimits{
			column: "JSON", instead: "use LONGBLOB or LONGTEXT", notJSON: "use LONGBLOB for other formats",
			depth: 31, noSurrogates: true,
		}
	case d == SQLite: // text; json_valid takes a thousand levels
		return &jsonLimits{
			column: "JSON", instead: "use BLOB or TEXT", notJSON: "use BLOB for other formats", depth: 1000,
		}
	}
	// PostgreSQL's json keeps the text; its parser's depth is bounded by max_stack_depth.
	return &jsonLimits{
		column: "json", instead: "use bytea or text", notJSON: "use bytea or text for other formats", depth: 5000,
	}
}

// decimal is a JSON number as digits without leading or trailing zeros and the power of ten of the
// first digit: 0.0120 is 12 and -2. Zero has no digits. scale counts the digits after the point as
// written, exponent included: 4 for 0.0120 and for 1.20e-2.
type decimal struct {
	digits []byte
	power  int
	scale  int
}

// readDecimal reads a literal that the scanner has accepted. Digits are appended to buf.
func readDecimal(literal, buf []byte) decimal {
	literal = bytes.TrimPrefix(literal, []byte("-"))
	exponent := 0
	if e := bytes.IndexAny(literal, "eE"); e >= 0 {
		var err error
		exponent, err = strconv.Atoi(string(literal[e+1:]))
		if err != nil { // out of range: any value beyond every limit does
			exponent = math.MaxInt32
			if literal[e+1] == '-' {
				exponent = -exponent
			}
		}
		literal = literal[:e]
	}
	whole, fraction, _ := bytes.Cut(literal, []byte("."))
	digits := append(append(buf[:0], whole...), fraction...)
	significant := bytes.TrimLeft(digits, "0")
	return decimal{
		digits: bytes.TrimRight(significant, "0"),
		power:  len(whole) - 1 - (len(digits) - len(significant)) + exponent,
		scale:  len(fraction) - exponent,
	}
}

// checkNumeric refuses what overflows PostgreSQL's numeric, which jsonb turns numbers into.
func checkNumeric(literal []byte) string {
	const maxPower, maxScale, maxExponent = 131071, 16383, math.MaxInt32 / 2
	if !bytes.ContainsAny(literal, "eE") && len(literal) < maxScale {
		return ""
	}
	d := readDecimal(literal, nil)
	if len(d.digits) > 0 && d.power > maxPower || d.scale > maxScale || d.power >= maxExponent {
		return "number out of the range that jsonb takes"
	}
	return ""
}

// checkDouble refuses a number that MySQL's JSON would alter: it keeps integers of 64 bits and turns
// all others into a double.
func checkDouble(literal []byte) string {
	const altered = "MySQL's JSON type rounds this number to a double"
	if !bytes.ContainsAny(literal, ".eE") {
		if len(literal) < 19 { // every integer of 18 digits fits
			return ""
		}
		if _, err := strconv.ParseInt(string(literal), 10, 64); err == nil {
			return ""
		}
		if _, err := strconv.ParseUint(string(literal), 10, 64); err == nil {
			return ""
		}
		return altered
	}
	var kept, keptDigits, digits [32]byte
	a := readDecimal(literal, digits[:0])
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || a.scale < -308 { // its parser refuses the exponent even of a zero
		return "number out of the range that MySQL's JSON type takes"
	}
	b := readDecimal(strconv.AppendFloat(kept[:0], f, 'e', -1, 64), keptDigits[:0])
	if !bytes.Equal(a.digits, b.digits) || len(a.digits) > 0 && a.power != b.power {
		return altered
	}
	return ""
}
