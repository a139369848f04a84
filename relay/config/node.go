package config

// node is a value on its way to the Config, whatever source it came from.
type node struct {
	kind   nodeKind
	origin Origin
	text   string  // scalar
	quoted bool    // scalar: written in quotes, so that "null" and "~" are text
	items  []*node // list
	fields []field // mapping
}

type nodeKind int

const (
	kindNull nodeKind = iota
	kindScalar
	kindList
	kindMapping
)

// String says what a node is to people who wrote it.
func (k nodeKind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

// field is one key of a mapping with the place of the key.
type field struct {
	key    string
	origin Origin
	value  *node
}

func (n *node) get(key string) *node {
	for _, f := range n.fields {
		if f.key == key {
			return f.value
		}
	}
	return nil
}

// set puts a value at a path of keys, making mappings on the way. Mappings merge key by key, anything
// else is replaced. It returns the nodes that had to make way for a mapping: mistakes of their source.
func (n *node) set(path []string, value *node) (replaced []*node) {
	if len(path) == 0 {
		return n.merge(value)
	}
	if n.kind != kindMapping {
		if n.kind != kindNull {
			old := *n
			replaced = append(replaced, &old)
		}
		*n = node{kind: kindMapping, origin: value.origin}
	}
	child := n.get(path[0])
	if child == nil {
		child = &node{origin: value.origin}
		n.fields = append(n.fields, field{key: path[0], origin: value.origin, value: child})
	}
	return append(replaced, child.set(path[1:], value)...)
}

func (n *node) merge(value *node) (replaced []*node) {
	if n.kind != kindMapping || value.kind != kindMapping {
		*n = *value
		return nil
	}
	for _, f := range value.fields {
		replaced = append(replaced, n.set([]string{f.key}, f.value)...)
	}
	return replaced
}
