package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/postrider/postrider/relay"
)

// decodeHeaders reads a JSON object in the order it is written: strings as they are, other values as
// the JSON they were written as, digit by digit. No text and NULL are no headers.
func decodeHeaders(text []byte) ([]relay.Header, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	open, err := dec.Token()
	if err != nil {
		return nil, headersFault(dec, err)
	}
	if open != json.Delim('{') {
		return nil, errors.New("headers: not a JSON object")
	}
	var headers []relay.Header
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, headersFault(dec, err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, headersFault(dec, err)
		}
		h := relay.Header{Name: name.(string), Value: value}
		if value[0] == '"' {
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, headersFault(dec, err)
			}
			h.Value = []byte(s)
		}
		headers = append(headers, h)
	}
	if _, err := dec.Token(); err != nil {
		return nil, headersFault(dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("headers: invalid JSON at %d", dec.InputOffset())
	}
	return headers, nil
}

// headersFault names the position and never what stands there.
func headersFault(dec *json.Decoder, err error) error {
	at := dec.InputOffset()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = max(at, syntax.Offset)
	}
	return fmt.Errorf("headers: invalid JSON at %d", at)
}
