package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/postrider/postrider/relay"
)

// decodeHeaders reads a JSON object in the order it is written: strings as they are, other values as the
// JSON they were written as, digit by digit. No text and JSON's null are no headers. Its errors name the
// position, counted from 1, and never what stands there.
func decodeHeaders(text []byte) ([]relay.Header, error) {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || string(trimmed) == "null" || string(trimmed) == "{}" {
		return nil, nil
	}
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	if trimmed[0] != '{' {
		return nil, errors.New("headers: not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(trimmed))
	_, _ = dec.Token()
	var headers []relay.Header
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("headers: invalid JSON at %d", dec.InputOffset())
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("headers: invalid JSON at %d", dec.InputOffset())
		}
		h := relay.Header{Name: name.(string), Value: value}
		if value[0] == '"' {
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, fmt.Errorf("headers: invalid JSON at %d", dec.InputOffset())
			}
			h.Value = []byte(s)
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// checkJSON finds where text stops being JSON.
func checkJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var value json.RawMessage
	err := dec.Decode(&value)
	if err == nil {
		if rest := bytes.TrimLeft(text[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
			return fmt.Errorf("headers: invalid JSON at %d", len(text)-len(rest)+1)
		}
		return nil
	}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("headers: invalid JSON at %d", len(text)+1)
	case errors.As(err, &syntax):
		return fmt.Errorf("headers: invalid JSON at %d", syntax.Offset)
	}
	return errors.New("headers: invalid JSON")
}
