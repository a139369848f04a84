package kafka

import (
	"encoding/json"
	"io"

	"fmt"
	"log/slog"
)

// redacted stands for every secret in text, whatever its length.
const redacted = "********"

// Secret is a password, key or token. No formatting verb, marshaller or logger shows its value: they
// give eight asterisks, or nothing for an empty one. The zero Secret is empty.
type Secret struct {
	// A pointer, because fmt calls no methods on unexported fields of a struct that is printed: there
	// a string would be shown, and an address is.
	value *string
}

// NewSecret wraps value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the value, for the one place that hands it on.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == nil }

// String hides the value.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return redacted
}

// Format hides the value from every verb; without it %d or %x would reach the field.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON hides the value.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }
