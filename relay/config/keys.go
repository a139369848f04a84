package config

import (
	"reflect"
	"slices"
	"strings"
)

// key is one path of the configuration: a value, or a mapping or list of values.
type key struct {
	path []string
	typ  reflect.Type
}

// String gives the path as the file would show it.
func (k key) String() string { return strings.Join(k.path, ".") }

// variable is the environment variable of the key.
func (k key) variable() string {
	return environPrefix + strings.ToUpper(separators.Replace(strings.Join(k.path, "_")))
}

func (k key) secret() bool { return k.typ == reflect.TypeFor[Secret]() }

// single says whether the key takes a single value rather than a mapping or list.
func (k key) single() bool {
	switch k.typ.Kind() {
	case reflect.Slice, reflect.Map:
		return false
	case reflect.Struct:
		return k.secret()
	default:
		return true
	}
}

// allKeys are the keys in the order of Config, sections before what they hold. Routes are one key.
var allKeys = walkKeys(nil, reflect.TypeFor[Config]())

func walkKeys(path []string, t reflect.Type) []key {
	var keys []key
	for i, name := range keysOf(t) {
		k := key{path: append(slices.Clone(path), name), typ: t.Field(i).Type}
		keys = append(keys, k)
		if k.typ.Kind() == reflect.Struct && !k.secret() {
			keys = append(keys, walkKeys(k.path, k.typ)...)
		}
	}
	return keys
}

// keysOf lists the keys of a struct, in the order of its fields.
func keysOf(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = snake(t.Field(i).Name)
	}
	return names
}

// findKey splits a path as a person writes it and finds its key. What stands behind "kafka." is one
// property name.
func findKey(path string) (key, bool) {
	if name, ok := strings.CutPrefix(path, "kafka."); ok && name != "" {
		return property(name), true
	}
	i := slices.IndexFunc(allKeys, func(k key) bool { return k.String() == path })
	if i < 0 {
		return key{}, false
	}
	return allKeys[i], true
}

func property(name string) key {
	return key{path: []string{"kafka", name}, typ: reflect.TypeFor[Secret]()}
}

// later names what the product's configuration has and this version has not. It is refused, never
// passed over: who asks for it would rely on it.
var later = map[string]string{
	"retention": "leave it out and delete old rows yourself",
	"tracing":   "leave it out; traceparent headers pass through untouched",
	"http.auth": "leave it out and keep http.listen on 127.0.0.1 or behind a proxy that asks who it is",
}

const notYet = "this version does not have it"

func laterKey(path string) (reason, next string) {
	for name, advice := range later {
		if path == name || strings.HasPrefix(path, name+".") {
			return notYet, advice
		}
	}
	return "", ""
}
