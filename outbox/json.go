package outbox

import (
	"fmt"
	"unicode/utf8"
)

// jsonFault is the first place in a text that the column would refuse or alter.
type jsonFault struct {
	offset int
	reason string
	fix    string
}

// jsonScan checks a JSON text against the grammar of RFC 8259 and the column's limits in one pass,
// without decoding it and without allocating.
type jsonScan struct {
	text   []byte
	limits *jsonLimits
	fault  *jsonFault
}

// checkJSON returns nil when the column takes the text.
func checkJSON(text []byte, limits *jsonLimits) *jsonFault {
	s := jsonScan{text: text, limits: limits}
	i := s.value(s.space(0), 1)
	if i < 0 {
		return s.fault
	}
	if i = s.space(i); i < len(text) {
		s.invalid(i, "text after the JSON value")
	}
	return s.fault
}

// fail notes what is wrong and returns -1, the position that ends the scan.
func (s *jsonScan) fail(offset int, reason, fix string) int {
	s.fault = &jsonFault{offset, reason, fix}
	return -1
}

func (s *jsonScan) invalid(offset int, what string) int {
	if offset >= len(s.text) {
		what = "it ends too early"
	}
	return s.fail(offset, "not valid JSON: "+what, s.limits.notJSON)
}

func (s *jsonScan) space(i int) int {
	for i < len(s.text) && (s.text[i] == ' ' || s.text[i] == '\n' || s.text[i] == '\t' || s.text[i] == '\r') {
		i++
	}
	return i
}

// at returns the byte at i, 0 beyond the end; a 0 inside the text is invalid wherever at is used.
func (s *jsonScan) at(i int) byte {
	if i < len(s.text) {
		return s.text[i]
	}
	return 0
}

// value scans one value that begins at i and returns the position after it.
func (s *jsonScan) value(i, depth int) int {
	switch c := s.at(i); {
	case c == '"':
		return s.str(i)
	case c == '{' || c == '[':
		if depth > s.limits.depth {
			return s.fail(i, fmt.Sprintf("nested deeper than the %d levels that %s takes", s.limits.depth, s.limits.column), s.limits.instead)
		}
		if c == '{' {
			return s.object(i, depth)
		}
		return s.array(i, depth)
	case c == '-' || '0' <= c && c <= '9':
		return s.number(i)
	case c == 't':
		return s.word(i, "true")
	case c == 'f':
		return s.word(i, "false")
	case c == 'n':
		return s.word(i, "null")
	}
	return s.invalid(i, "a value must begin here")
}

func (s *jsonScan) word(i int, word string) int {
	for k := range len(word) {
		if s.at(i+k) != word[k] {
			return s.invalid(i+k, "a value must begin here")
		}
	}
	return i + len(word)
}

func (s *jsonScan) array(i, depth int) int {
	i = s.space(i + 1)
	if s.at(i) == ']' {
		return i + 1
	}
	for {
		if i = s.value(i, depth+1); i < 0 {
			return i
		}
		i = s.space(i)
		switch s.at(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.invalid(i, "a comma or ] is missing")
		}
	}
}

func (s *jsonScan) object(i, depth int) int {
	i = s.space(i + 1)
	if s.at(i) == '}' {
		return i + 1
	}
	for {
		if s.at(i) != '"' {
			return s.invalid(i, "a name in double quotes is missing")
		}
		if i = s.str(i); i < 0 {
			return i
		}
		if i = s.space(i); s.at(i) != ':' {
			return s.invalid(i, "a colon is missing")
		}
		if i = s.value(s.space(i+1), depth+1); i < 0 {
			return i
		}
		i = s.space(i)
		switch s.at(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1
		default:
			return s.invalid(i, "a comma or } is missing")
		}
	}
}

// plain marks the bytes of a string that need no look: ASCII but for controls, quote and backslash.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func (s *jsonScan) str(i int) int {
	i++
	for i < len(s.text) {
		c := s.text[i]
		switch {
		case plain[c]:
			i++
		case c == '"':
			return i + 1
		case c == '\\':
			if i = s.escape(i); i < 0 {
				return i
			}
		case c < 0x20:
			return s.invalid(i, "a control character stands unescaped in a string")
		default:
			r, size := utf8.DecodeRune(s.text[i:])
			if r == utf8.RuneError && size == 1 {
				return s.fail(i, "not valid UTF-8", s.limits.notJSON)
			}
			i += size
		}
	}
	return s.invalid(i, "")
}

// escape scans the escape sequence whose backslash is at i, both halves of a surrogate pair at once.
func (s *jsonScan) escape(i int) int {
	switch s.at(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
	default:
		return s.invalid(i+1, "unknown escape sequence")
	}
	r := s.hex(i + 2)
	if r < 0 {
		return s.invalid(i+2, "four hexadecimal digits are missing")
	}
	switch {
	case r == 0 && s.limits.noNUL:
		return s.fail(i, "U+0000 cannot be stored in "+s.limits.column, s.limits.instead)
	case r < 0xd800 || r > 0xdfff || !s.limits.noSurrogates:
		return i + 6
	case r < 0xdc00 && s.at(i+6) == '\\' && s.at(i+7) == 'u':
		if low := s.hex(i + 8); low >= 0xdc00 && low <= 0xdfff {
			return i + 12
		}
	}
	return s.fail(i, "unpaired surrogate cannot be stored in "+s.limits.column, s.limits.instead)
}

// hex reads four hexadecimal digits at i, -1 when there are none.
func (s *jsonScan) hex(i int) int {
	n := 0
	for k := i; k < i+4; k++ {
		c := s.at(k)
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		n = n<<4 | int(c)
	}
	return n
}

func (s *jsonScan) number(i int) int {
	start := i
	if s.at(i) == '-' {
		i++
	}
	if s.at(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return i
	}
	if s.at(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return i
		}
	}
	if c := s.at(i); c == 'e' || c == 'E' {
		i++
		if c := s.at(i); c == '+' || c == '-' {
			i++
		}
		if i = s.digits(i); i < 0 {
			return i
		}
	}
	if check := s.limits.number; check != nil {
		if reason := check(s.text[start:i]); reason != "" {
			return s.fail(start, reason, s.limits.instead)
		}
	}
	return i
}

// digits scans one digit or more.
func (s *jsonScan) digits(i int) int {
	start := i
	for c := s.at(i); '0' <= c && c <= '9'; c = s.at(i) {
		i++
	}
	if i == start {
		return s.invalid(i, "a digit is missing")
	}
	return i
}
