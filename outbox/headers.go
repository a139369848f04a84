package outbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxHeaderBytes bounds the encoded headers of one event; it is what a TEXT column of MySQL holds.
const maxHeaderBytes = 65535

// reserved are the headers that the relay makes from the row's columns.
var reserved = map[string]bool{"event_id": true, "event_type": true, "aggregate_type": true, "aggregate_id": true}

const (
	traceparentHeader = "traceparent"
	tracestateHeader  = "tracestate"
)

// headers checks the event's headers, adds the trace context unless the event has its own, and
// returns a JSON object with the names in ascending order; nil when there are none.
func (t *table) headers(own map[string]string, traceparent, tracestate string) ([]byte, *ValidationError) {
	if _, traced := own[traceparentHeader]; traced {
		traceparent = ""
	}
	if traceparent == "" {
		done, fault := t.absent(headersField, len(own) > 0, t.Required.Headers)
		if done {
			return nil, fault
		}
	}
	size := len(traceparent) + len(tracestate) + 64
	for name, value := range own {
		if fault := t.header(name, value); fault != nil {
			return nil, fault
		}
		size += len(name) + len(value) + 6
	}
	if traceparent != "" {
		own = withTrace(own, traceparent, tracestate)
	}
	text := encodeHeaders(own, size)
	if len(text) > maxHeaderBytes {
		return nil, t.fault(headersField, -1, fmt.Sprintf("have %d bytes and the limit is %d", len(text), maxHeaderBytes),
			"carry less, or move it to the payload")
	}
	return text, nil
}

// traceText keeps a part of the trace context only when it is what W3C allows, visible ASCII of at
// most 512 characters: a broken tracer must not cost the business transaction.
func traceText(s string) string {
	if len(s) > 512 {
		return ""
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return ""
		}
	}
	return s
}

// withTrace returns a copy, since the map is the caller's.
func withTrace(own map[string]string, traceparent, tracestate string) map[string]string {
	all := make(map[string]string, len(own)+2)
	for name, value := range own {
		all[name] = value
	}
	all[traceparentHeader] = traceparent
	delete(all, tracestateHeader) // it belongs to another traceparent
	if tracestate != "" {
		all[tracestateHeader] = tracestate
	}
	return all
}

// header checks one header. The value itself never enters the error.
func (t *table) header(name, value string) *ValidationError {
	fault := func(offset int, reason, fix string) *ValidationError {
		f := t.fault(headersField, offset, reason, fix)
		f.Field = fmt.Sprintf("Headers[%q]", name)
		return f
	}
	switch {
	case name == "":
		return fault(-1, "the name is empty", "name it, or leave it out")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fault(-1, "the name is not printable UTF-8 text", "rename it")
	case reserved[name]:
		return fault(-1, "the name is the relay's, which fills it from the row", "rename it, or set the event's field")
	}
	if i := invalidUTF8([]byte(value)); i >= 0 {
		return fault(i, "the value is not valid UTF-8", "encode binary values, for example in base64")
	}
	if i := strings.IndexByte(value, 0); i >= 0 && t.HeadersType == JSONB {
		return fault(i, "U+0000 cannot be stored in jsonb", "use json/text")
	}
	return nil
}

// encodeHeaders writes the object as compactly as JSON allows. Unlike encoding/json it leaves <, >
// and & as they are, so that a header reads the same in the table.
func encodeHeaders(headers map[string]string, size int) []byte {
	if len(headers) == 0 {
		return nil
	}
	text := make([]byte, 0, size)
	for i, name := range sortedKeys(headers) {
		text = append(text, "{,"[min(i, 1)])
		text = appendString(text, name)
		text = append(text, ':')
		text = appendString(text, headers[name])
	}
	return append(text, '}')
}

func appendString(text []byte, s string) []byte {
	const digits = "0123456789abcdef"
	text = append(text, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if plain[c] || c >= 0x80 {
			continue
		}
		text = append(text, s[start:i]...)
		start = i + 1
		if c == '"' || c == '\\' {
			text = append(text, '\\', c)
			continue
		}
		text = append(text, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
	}
	return append(append(text, s[start:]...), '"')
}
