package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

const masked = "********"

// Secret is text that cannot be printed: every way of formatting, encoding or logging it gives
// asterisks. Reveal is the only way to its value. The zero Secret is empty.
type Secret struct {
	// A pointer, because fmt does not call methods on unexported fields of others' structs: there it
	// would print a string, and prints an address.
	value *string
}

// NewSecret wraps a value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the value, for the one place that hands it to a driver.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Empty says whether there is no value.
func (s Secret) Empty() bool { return s.value == nil }

// String hides the value.
func (s Secret) String() string {
	if s.Empty() {
		return ""
	}
	return masked
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format hides the value from every verb, %x and %d included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalJSON hides the value.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalText hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML hides the value.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue hides the value from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Properties are client properties by name. Any of them may hold a secret, so all are Secrets.
type Properties map[string]Secret

// Reveal returns the properties in clear, for the client that takes them. Never nil.
func (p Properties) Reveal() map[string]string {
	m := make(map[string]string, len(p))
	for name, value := range p {
		m[name] = value.Reveal()
	}
	return m
}
