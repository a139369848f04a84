package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// decoder moves the merged sources into the Config, whose types decide how text is read. What cannot
// be read is reported and keeps its default.
type decoder struct {
	problems Problems
	origins  map[string]Origin
}

func (d *decoder) add(n *node, path, reason, next string) {
	d.problems = append(d.problems, Problem{Where: n.origin, Key: path, Reason: reason, Next: next})
}

// decode reads n into v, the value at path.
func (d *decoder) decode(path string, n *node, v reflect.Value) {
	if n.kind == kindNull {
		if optional(path) {
			v.SetString("")
			d.origins[path] = n.origin
		}
		return // a key without value keeps its default
	}
	switch p := v.Addr().Interface().(type) {
	case *Secret:
		d.text(path, n, func(s string) error { *p = NewSecret(s); return nil })
		return
	case *Properties:
		d.properties(path, n, p)
		return
	case *Size:
		d.text(path, n, parseInto(p, "a size", "8MiB or 1MB", ParseSize))
		return
	case *time.Duration:
		d.text(path, n, func(s string) error { return readDuration(s, p) })
		return
	case **int32:
		d.text(path, n, func(s string) error {
			i, err := strconv.ParseInt(s, 10, 32)
			if err != nil {
				return fmt.Errorf("%s is not a whole number", show(s))
			}
			number := int32(i)
			*p = &number
			return nil
		})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(path, n, v)
	case reflect.Slice:
		d.list(path, n, v)
	case reflect.String:
		d.text(path, n, func(s string) error {
			if optional(path) && s == "-" {
				s = ""
			}
			v.SetString(s)
			return nil
		})
	case reflect.Int:
		d.text(path, n, parseInto(v.Addr().Interface().(*int), "a whole number", "2000", strconv.Atoi))
	case reflect.Float64:
		d.text(path, n, parseInto(v.Addr().Interface().(*float64), "a number", "0.2", readFloat))
	default:
		panic("config: no reader for " + v.Type().String()) // a mistake in Config; every test sees it
	}
}

// optional says whether the key names something that a table may lack: "-" or nothing takes it away.
func optional(path string) bool {
	return strings.HasPrefix(path, "outbox.columns.") || strings.HasPrefix(path, "outbox.states.")
}

// text reads a single value.
func (d *decoder) text(path string, n *node, set func(string) error) {
	if n.kind != kindScalar {
		d.add(n, path, "must be a single value, not "+n.kind.String(), "")
		return
	}
	if err := set(n.text); err != nil {
		d.add(n, path, err.Error(), "")
		return
	}
	d.origins[path] = n.origin
}

func parseInto[T any](to *T, what, example string, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		value, err := parse(s)
		if err != nil {
			return fmt.Errorf("%s is not %s; write for example %s", show(s), what, example)
		}
		*to = value
		return nil
	}
}

func readDuration(s string, to *time.Duration) error {
	value, err := time.ParseDuration(s)
	if err == nil {
		*to = value
		return nil
	}
	if _, bare := strconv.ParseFloat(s, 64); bare == nil {
		return fmt.Errorf("%s has no unit; write for example %sms, %ss or %sm", show(s), s, s, s)
	}
	return fmt.Errorf("%s is not a duration; write for example 500ms, 30s or 1h30m", show(s))
}

func readFloat(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && f-f != 0 {
		return 0, strconv.ErrRange // infinite, or not a number
	}
	return f, err
}

// fields reads a mapping whose keys are a struct's fields.
func (d *decoder) fields(path string, n *node, v reflect.Value) {
	if n.kind != kindMapping {
		d.add(n, path, "must be a mapping of keys, not "+n.kind.String(), "")
		return
	}
	if path != "" {
		d.origins[path] = n.origin
	}
	known := keysOf(v.Type())
	for _, f := range n.fields {
		i := slices.Index(known, f.key)
		if i < 0 {
			d.unknown(path, f, known)
			continue
		}
		d.decode(join(path, f.key), f.value, v.Field(i))
	}
}

// unknown reports a key that the mapping at path does not have.
func (d *decoder) unknown(path string, f field, known []string) {
	full := join(path, showKey(f.key))
	p := Problem{Where: f.origin, Key: full, Reason: "unknown key"}
	if reason, next := laterKey(full); reason != "" {
		p.Reason, p.Next = reason, next
	} else if near := nearestKey(path, f.key, known); near != "" {
		p.Next = "did you mean " + near + "?"
	} else {
		p.Next = "known here: " + strings.Join(known, ", ")
	}
	d.problems = append(d.problems, p)
}

// nearestKey looks for a key like this one beside it, then for one of the same name elsewhere.
func nearestKey(path, key string, known []string) string {
	if near := Nearest(key, known); near != "" {
		return join(path, near)
	}
	for _, k := range allKeys {
		if last := k.path[len(k.path)-1]; last == key && len(k.path) > 1 {
			return k.String()
		}
	}
	return ""
}

// list reads a list. A single value stands for its comma-separated parts, which is how lists of plain
// values look in variables and flags.
func (d *decoder) list(path string, n *node, v reflect.Value) {
	items := n.items
	switch {
	case n.kind == kindScalar && v.Type().Elem().Kind() != reflect.Struct:
		items = nil
		for part := range strings.SplitSeq(n.text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, &node{kind: kindScalar, origin: n.origin, text: part})
			}
		}
	case n.kind != kindList:
		d.add(n, path, "must be a list, not "+n.kind.String(), "")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if item.kind == kindNull {
			d.add(item, at, "is empty", "")
			continue
		}
		d.decode(at, item, out.Index(i))
	}
	v.Set(out)
	d.origins[path] = n.origin
}

// properties reads the kafka section: names are taken as they are, values as text.
func (d *decoder) properties(path string, n *node, to *Properties) {
	if n.kind != kindMapping {
		d.add(n, path, "must be a mapping of Java property names, not "+n.kind.String(), "")
		return
	}
	d.origins[path] = n.origin
	*to = Properties{}
	for _, f := range n.fields {
		at := join(path, showKey(f.key))
		value := f.value
		if value.kind == kindMapping {
			d.add(value, at, "must be a single value, not a mapping", "write property names whole, with dots: bootstrap.servers: …")
			continue
		}
		if value.kind == kindList {
			parts := make([]string, len(value.items))
			for i, item := range value.items {
				parts[i] = item.text
			}
			value = &node{kind: kindScalar, origin: value.origin, text: strings.Join(parts, ",")}
		}
		if value.kind == kindScalar {
			(*to)[f.key] = NewSecret(value.text)
		}
		d.origins[at] = value.origin
	}
}
