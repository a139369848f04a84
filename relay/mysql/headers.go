package mysql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// decodeHeaders reads a JSON object in the order it is written: strings as they are, other values as
// the JSON they were written as, digit by digit. No text, NULL and JSON's null are no headers.
func decodeHeaders(text []byte) ([]relay.Header, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) { // where, counted from 1, and never what stands there
			at := syntax.Offset
			if at == int64(len(text)) && strings.Contains(err.Error(), "unexpected end") {
				at++
			}
			return nil, fmt.Errorf("headers: invalid JSON at %d", at)
		}
		return nil, errors.New("headers: invalid JSON")
	}
	if text[0] != '{' {
		return nil, errors.New("headers: not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	_, _ = dec.Token() // the text is valid JSON: from here on nothing fails
	var headers []relay.Header
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, errors.New("headers: invalid JSON")
		}
		h := relay.Header{Name: fmt.Sprint(name), Value: value}
		if value[0] == '"' {
			var s string
			_ = json.Unmarshal(value, &s)
			h.Value = []byte(s)
		}
		headers = append(headers, h)
	}
	return headers, nil
}
