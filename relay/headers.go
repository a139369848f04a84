package relay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// DecodeHeaders reads a row's headers: a JSON object, in the order it is written, strings as they are,
// other values as the JSON they were written as, digit by digit. No text and JSON's null are no
// headers. Its errors name the position, counted from 1, and never what stands there. The headers do
// not keep text in memory.
func DecodeHeaders(text []byte) ([]Header, error) {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || string(trimmed) == "null" {
		return nil, nil
	}
	if headers, plain := plainHeaders(trimmed); plain {
		return headers, nil
	}
	if err := checkHeaders(text); err != nil {
		return nil, err
	}
	if trimmed[0] != '{' {
		return nil, errors.New("headers: not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	_, _ = dec.Token() // the text is valid JSON: from here on nothing fails
	var headers []Header
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, errors.New("headers: invalid JSON")
		}
		h := Header{Name: fmt.Sprint(name), Value: value}
		if value[0] == '"' {
			var s string
			_ = json.Unmarshal(value, &s)
			h.Value = []byte(s)
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// checkHeaders finds where text stops being JSON.
func checkHeaders(text []byte) error {
	err := json.Unmarshal(text, new(json.RawMessage))
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		at := syntax.Offset
		if strings.Contains(err.Error(), "unexpected end") {
			at = int64(len(text)) + 1
		}
		return fmt.Errorf("headers: invalid JSON at %d", at)
	}
	return errors.New("headers: invalid JSON")
}

// plainHeaders reads what nearly every row has: an object of strings without escapes. It answers false
// for anything else, which then takes the long way.
func plainHeaders(text []byte) (headers []Header, plain bool) {
	if text[0] != '{' || text[len(text)-1] != '}' || bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		return nil, false
	}
	rest := skipSpace(text[1:])
	if len(rest) == 1 && rest[0] == '}' {
		return nil, true
	}
	headers = make([]Header, 0, 4)
	for {
		name, after, ok := plainString(rest)
		if !ok {
			return nil, false
		}
		after = skipSpace(after)
		if len(after) == 0 || after[0] != ':' {
			return nil, false
		}
		value, after, ok := plainString(skipSpace(after[1:]))
		if !ok {
			return nil, false
		}
		headers = append(headers, Header{Name: string(name), Value: bytes.Clone(value)})
		after = skipSpace(after)
		switch {
		case len(after) == 1 && after[0] == '}':
			return headers, true
		case len(after) > 1 && after[0] == ',':
			rest = skipSpace(after[1:])
		default:
			return nil, false
		}
	}
}

// plainString reads a quoted string that holds neither escapes nor control characters.
func plainString(text []byte) (inner, after []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return text[1:i:i], text[i+1:], true
		case c < 0x20:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

func skipSpace(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t' || text[0] == '\n' || text[0] == '\r') {
		text = text[1:]
	}
	return text
}
