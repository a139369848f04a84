package outbox

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	pgJSON      = jsonLimitsOf(Postgres, JSON)
	pgJSONB     = jsonLimitsOf(Postgres, JSONB)
	mysqlJSON   = jsonLimitsOf(MySQL, JSON)
	mariadbJSON = jsonLimitsOf(MariaDB, JSON)
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		name   string
		limits *jsonLimits
		text   string
		offset int // -1: taken
		reason string
	}{
		{"escaped NUL in json", pgJSON, `{"n":"a\u0000b"}`, -1, ""},
		{"escaped NUL in jsonb", pgJSONB, `{"n":"a\u0000b"}`, 7, "U+0000 cannot be stored in jsonb"},
		{"escaped NUL in MySQL", mysqlJSON, `{"n":"a\u0000b"}`, -1, ""},
		{"escaped backslash before u0000", pgJSONB, `"\\u0000"`, -1, ""},
		{"high surrogate in json", pgJSON, `"\ud83d"`, -1, ""},
		{"high surrogate in jsonb", pgJSONB, `{"n":"\ud83d"}`, 6, "unpaired surrogate cannot be stored in jsonb"},
		{"low surrogate in jsonb", pgJSONB, `"\uDE00"`, 1, "unpaired surrogate"},
		{"two high surrogates", pgJSONB, `"\ud83d\ud83d"`, 1, "unpaired surrogate"},
		{"high surrogate and text", pgJSONB, `"\ud83dx"`, 1, "unpaired surrogate"},
		{"high surrogate at the end", pgJSONB, `"\ud83d\u`, 1, "unpaired surrogate"},
		{"surrogate pair", pgJSONB, `"\ud83d\uDE00"`, -1, ""},
		{"surrogate in MySQL", mysqlJSON, `"\ud83d"`, 1, "unpaired surrogate cannot be stored in JSON"},
		{"surrogate in MariaDB", mariadbJSON, `"\ud83d"`, 1, "unpaired surrogate cannot be stored in JSON"},
		{"depth of MySQL", mysqlJSON, nested(100), -1, ""},
		{"beyond the depth of MySQL", mysqlJSON, nested(101), 100, "nested deeper than the 100 levels"},
		{"depth of MariaDB", mariadbJSON, nested(31), -1, ""},
		{"beyond the depth of MariaDB", mariadbJSON, nested(32), 31, "nested deeper than the 31 levels"},
		{"big integer in jsonb", pgJSONB, `19876543210987654321`, -1, ""},
		{"big integer in MySQL", mysqlJSON, `{"wei":19876543210987654321}`, 7, "rounds this number"},
		{"price in MySQL", mysqlJSON, `{"p":1.10,"q":[0.1,1e22,-0.0]}`, -1, ""},
		{"numeric overflow in jsonb", pgJSONB, `[1,1e131072]`, 3, "out of the range that jsonb takes"},
		{"raw newline in a string", pgJSON, "\"a\nb\"", 2, "control character"},
		{"raw NUL in a string", pgJSON, "\"a\x00b\"", 2, "control character"},
		{"broken UTF-8", pgJSON, "\"a\xffb\"", 2, "not valid UTF-8"},
		{"encoded surrogate", pgJSON, "\"\xed\xa0\xbd\"", 1, "not valid UTF-8"},
		{"empty", pgJSON, ``, 0, "ends too early"},
		{"spaces", pgJSON, "  ", 2, "ends too early"},
		{"second value", pgJSON, `{} {}`, 3, "text after the JSON value"},
		{"open string", pgJSON, `"abc`, 4, "ends too early"},
		{"open object", pgJSON, `{"a":1`, 6, "ends too early"},
		{"trailing comma", pgJSON, `[1,]`, 3, "a value must begin here"},
		{"bare name", pgJSON, `{a:1}`, 1, "a name in double quotes"},
		{"no colon", pgJSON, `{"a" 1}`, 5, "a colon is missing"},
		{"leading zero", pgJSON, `01`, 1, "text after"},
		{"no fraction", pgJSON, `1.`, 2, "ends too early"},
		{"bad escape", pgJSON, `"\x"`, 2, "unknown escape"},
		{"bad hex", pgJSON, `"\u12g4"`, 3, "four hexadecimal digits"},
		{"half a word", pgJSON, `nul1`, 3, "a value must begin here"},
		{"byte order mark", pgJSON, "\ufeff{}", 0, "a value must begin here"},
	} {
		fault := checkJSON([]byte(c.text), c.limits)
		switch {
		case c.offset < 0 && fault != nil:
			t.Errorf("%s: refused at %d: %s", c.name, fault.offset, fault.reason)
		case c.offset < 0:
		case fault == nil:
			t.Errorf("%s: not refused", c.name)
		case fault.offset != c.offset || !strings.Contains(fault.reason, c.reason):
			t.Errorf("%s: at %d: %s, want at %d: %s", c.name, fault.offset, fault.reason, c.offset, c.reason)
		}
	}
}

func TestCheckDouble(t *testing.T) {
	t.Parallel()
	for literal, kept := range map[string]bool{
		"0": true, "-0": true, "1.10": true, "-1.50e+3": true, "1E5": true, "1e22": true, "0.1": true,
		"9223372036854775807": true, "18446744073709551615": true, "-9223372036854775808": true,
		"18446744073709551616": false, "-9223372036854775809": false, "1" + strings.Repeat("0", 400): false,
		"0.30000000000000004": true, "0.1234567890123456789": false, "12345678901234567.89": false,
		"123456789012345678e2": false, "1e308": true, "1e400": false, "1e-400": false, "0e999": false, "0e308": true,
		"100000000000000.10": true, "0.000": true, "1e-16383": false, "1e99999999999999999999": false,
	} {
		if reason := checkDouble([]byte(literal)); (reason == "") != kept {
			t.Errorf("%s: kept %v, want %v", literal, reason == "", kept)
		}
	}
}

func TestCheckNumeric(t *testing.T) {
	t.Parallel()
	for literal, taken := range map[string]bool{
		"1e131071": true, "1e131072": false, "1e-16383": true, "1e-16384": false, "10e131071": false,
		"0.1e131072": true, "0e999999": true, "0e-999999": false,
		"0e99999999999999999999": false, "100e-16384": false, "1.0e131071": true, "1e99999999999999999999": false, "1e-99999999999999999999": false,
		"0." + strings.Repeat("1", 16383): true, "0." + strings.Repeat("1", 16384): false,
		strings.Repeat("9", 131072): true, strings.Repeat("9", 131073): false,
	} {
		if reason := checkNumeric([]byte(literal)); (reason == "") != taken {
			t.Errorf("%.20s (%d characters): taken %v, want %v", literal, len(literal), reason == "", taken)
		}
	}
}

// FuzzCheckJSON holds the scanner against the standard library's.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,2.5e-3,true,null,"x\n\u00e9"]}`, `"\ud83d\ude00"`, `[[],{}]`, ` 1 `, `{"a":1,}`, "\"\xff\"", `-`, `1.e3`,
		`19876543210987654321`, "\"\x00\"", `"\u000`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := json.Valid(text) && utf8.Valid(text)
		fault := checkJSON(text, pgJSON)
		if deep := fault != nil && strings.Contains(fault.reason, "nested"); deep {
			return
		}
		if valid != (fault == nil) {
			t.Fatalf("encoding/json says %v, fault %+v", valid, fault)
		}
		for _, limits := range []*jsonLimits{pgJSON, pgJSONB, mysqlJSON, mariadbJSON} {
			if fault := checkJSON(text, limits); fault != nil && (fault.offset < 0 || fault.offset > len(text)) {
				t.Fatalf("offset %d of %d", fault.offset, len(text))
			} else if fault == nil && !valid {
				t.Fatalf("%s takes what is no JSON", limits.column)
			}
		}
	})
}

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"orderNo":"ORD-10001","userId":1001,"amount":"99.90","items":[{"sku":"A-1","quantity":2},` +
		`{"sku":"B-22","quantity":1}],"note":"` + strings.Repeat("a note of some length ", 8) + `"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if checkJSON(text, pgJSONB) != nil {
			b.Fatal("refused")
		}
	}
}
