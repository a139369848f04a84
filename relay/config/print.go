package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Entry is one value for people, secrets masked.
type Entry struct {
	Key    string
	Value  string
	Origin Origin
}

// Entries lists every value in the order of the keys. A database URL is shown without its password.
func (l *Loaded) Entries() []Entry {
	var out []Entry
	flat(tree(reflect.ValueOf(l.Config), ""), "", func(path, value string) {
		out = append(out, Entry{Key: path, Value: value, Origin: l.Origin(path)})
	})
	return out
}

// YAML returns the configuration as a file, secrets masked; with origins each value's origin stands
// behind it.
func (l *Loaded) YAML(origins bool) string {
	w := yamlWriter{}
	if origins {
		w.comment = func(path string) string { return l.Origin(path).String() }
	}
	w.mapping(tree(reflect.ValueOf(l.Config), ""), "", 0)
	return w.text()
}

// JSON returns the configuration as nested maps for encoding/json, secrets masked.
func (l *Loaded) JSON() map[string]any {
	return tree(reflect.ValueOf(l.Config), "").json().(map[string]any)
}

// pairs is a mapping in order. Its values are pairs, []any, or raw and text scalars.
type (
	pairs []pair
	pair  struct {
		key   string
		value any
	}
	raw string // a number, duration or size: never quoted in YAML
)

func (p pairs) json() any {
	m := make(map[string]any, len(p))
	for _, f := range p {
		m[f.key] = plain(f.value)
	}
	return m
}

func plain(value any) any {
	switch v := value.(type) {
	case pairs:
		return v.json()
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plain(item)
		}
		return list
	case raw:
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			return f
		}
		return string(v)
	default:
		return v
	}
}

// tree turns a part of the Config into ordered values that can be shown.
func tree(v reflect.Value, path string) pairs {
	out := pairs{}
	retry, isRetry := v.Interface().(Retry)
	for i, name := range keysOf(v.Type()) {
		at := join(path, name)
		if isRetry && name == "backoff" && len(retry.Schedule) > 0 {
			continue // not in effect
		}
		if strings.HasPrefix(at, "routes[") && v.Field(i).IsZero() {
			continue // a route says only what it says
		}
		out = append(out, pair{name, shown(v.Field(i), at)})
	}
	return out
}

func shown(v reflect.Value, path string) any {
	switch x := v.Interface().(type) {
	case Secret:
		if path == "database.url" && !x.Empty() {
			return showDatabaseURL(x.Reveal())
		}
		return x.String()
	case Properties:
		out := pairs{}
		for _, name := range sortedKeys(x) {
			out = append(out, pair{name, showProperty(name, x[name])})
		}
		return out
	case time.Duration:
		return raw(formatDuration(x))
	case Size:
		return raw(x.String())
	case *int32:
		return raw(strconv.Itoa(int(*x)))
	}
	switch v.Kind() {
	case reflect.Struct:
		return tree(v, path)
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = shown(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		return list
	case reflect.String:
		if v.String() == "" && optional(path) {
			return "-"
		}
		return v.String()
	default:
		return raw(fmt.Sprint(v.Interface()))
	}
}

func sortedKeys(p Properties) []string {
	names := make([]string, 0, len(p))
	for name := range p {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// showProperty masks what may be a secret by its name, or by content that looks like a login.
func showProperty(name string, value Secret) string {
	clear := value.Reveal()
	if soundsSecret(name) || strings.Contains(strings.ToLower(clear), "password") || strings.ContainsAny(clear, "\n@") {
		return value.String()
	}
	return clear
}

// flat visits the single values and whole lists of a tree.
func flat(p pairs, path string, visit func(path, value string)) {
	for _, f := range p {
		at := join(path, f.key)
		if below, ok := f.value.(pairs); ok {
			flat(below, at, visit)
			continue
		}
		visit(at, flowText(f.value))
	}
}

// flowText writes a value on one line, single values without quotes.
func flowText(value any) string {
	switch v := value.(type) {
	case []any:
		return flow(v)
	case raw:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// flow writes a value as YAML on one line.
func flow(value any) string {
	switch v := value.(type) {
	case pairs:
		parts := make([]string, len(v))
		for i, f := range v {
			parts[i] = quote(f.key) + ": " + flow(f.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = flow(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case raw:
		return string(v)
	default:
		return quote(fmt.Sprint(v))
	}
}

var (
	bare     = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./:@+|-]*[A-Za-z0-9_/]$|^[A-Za-z_]$`)
	reserved = regexp.MustCompile(`^(?i:null|true|false|yes|no|on|off|y|n)$`)
)

// quote writes text as a YAML scalar that reads back as that text.
func quote(s string) string {
	if bare.MatchString(s) && !reserved.MatchString(s) {
		return s
	}
	return strconv.QuoteToGraphic(s)
}
