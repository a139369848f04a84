package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a YAML text. The parser's time grows with the square of the nesting, so that is bounded
// before it sees the text.
const (
	maxYAML  = 256 << 10
	maxDepth = 20
)

// reader turns YAML into nodes and collects what is wrong on the way.
type reader struct {
	source   string
	rank     int
	places   bool // whether the source has lines: false for variables and flags
	problems Problems
	anchors  map[string]*node
}

func (r *reader) at(line, column int) Origin {
	if !r.places {
		return Origin{Source: r.source, rank: r.rank}
	}
	return Origin{Source: r.source, Line: line, Column: max(1, column), rank: r.rank}
}

func (r *reader) origin(t *token.Token) Origin {
	if t == nil || t.Position == nil {
		return r.at(1, 1)
	}
	return r.at(t.Position.Line, t.Position.Column)
}

func (r *reader) add(where Origin, key, reason, next string) {
	r.problems = append(r.problems, Problem{Where: where, Key: key, Reason: reason, Next: next})
}

// read returns the text's value; a null node when it is empty or cannot be read.
func (r *reader) read(text []byte) *node {
	nothing := &node{origin: r.at(1, 1)}
	if len(text) > maxYAML {
		r.add(nothing.origin, "", fmt.Sprintf("is larger than %d KiB", maxYAML>>10), "is it the right file?")
		return nothing
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if !r.plain(text) {
		return nothing
	}
	tokens := lexer.Tokenize(string(text))
	if !r.shallow(tokens) {
		return nothing
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nothing
	}
	var docs []*ast.DocumentNode
	for _, d := range file.Docs {
		if d.Body != nil {
			docs = append(docs, d)
		}
	}
	switch len(docs) {
	case 0:
		return nothing
	case 1:
		r.anchors = map[string]*node{}
		return r.convert(docs[0].Body, "", 0)
	default:
		r.add(r.origin(docs[1].Body.GetToken()), "", "a second document begins here", "keep one document a file")
		return nothing
	}
}

// plain refuses bytes that no configuration holds and parsers disagree on.
func (r *reader) plain(text []byte) bool {
	line, column := 1, 1
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if c == utf8.RuneError && size == 1 {
			r.add(r.at(line, column), "", "is not UTF-8 text", "save the file as UTF-8")
			return false
		}
		if (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f {
			r.add(r.at(line, column), "", fmt.Sprintf("holds the control character U+%04X", c), `write it as an escape in double quotes, e.g. "\x07"`)
			return false
		}
		i += size
		column++
		if c == '\n' {
			line, column = line+1, 1
		}
	}
	return true
}

// shallow refuses nesting that no configuration has.
func (r *reader) shallow(tokens token.Tokens) bool {
	flow, line, opened := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			if t.Position.Line != line {
				line, opened = t.Position.Line, 0
			}
			opened++
		}
		if flow > maxDepth || opened > maxDepth {
			r.add(r.origin(t), "", "is nested too deeply", "")
			return false
		}
	}
	return true
}

// syntax reports the parser's error with its message alone: the excerpt of the text that it would
// print may hold secrets, and so may messages that quote.
func (r *reader) syntax(err error) {
	where, reason := r.at(1, 1), "is not valid YAML"
	var detail yaml.Error
	if errors.As(err, &detail) {
		where = r.origin(detail.GetToken())
		if m := detail.GetMessage(); m != "" && len(m) < 100 && !strings.ContainsAny(m, "\"`\n") {
			reason += ": " + m
		}
	}
	next := "quote a value that begins with a special character or holds \": \" or \" #\""
	if strings.Contains(reason, "\t") || strings.Contains(reason, "tab character") {
		reason, next = "is not valid YAML: found a tab where none may be", "indent with spaces"
	}
	r.add(where, "", reason, next)
}

// convert turns a parsed value into a node. path is for problems.
func (r *reader) convert(n ast.Node, path string, depth int) *node {
	if n == nil {
		return &node{origin: r.at(1, 1)}
	}
	out := &node{origin: r.origin(n.GetToken())}
	if depth > maxDepth {
		r.add(out.origin, path, "is nested too deeply", "")
		return out
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		out.kind, out.text = kindScalar, n.Value
		t := n.GetToken().Type
		out.quoted = t == token.SingleQuoteType || t == token.DoubleQuoteType
	case *ast.LiteralNode:
		out.kind, out.text, out.quoted = kindScalar, n.Value.Value, true
	case *ast.SequenceNode:
		out.kind = kindList
		for i, item := range n.Values {
			out.items = append(out.items, r.convert(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.MappingNode:
		out.kind = kindMapping
		if !n.IsFlowStyle && len(n.Values) > 0 {
			out.origin = r.origin(n.Values[0].Key.GetToken()) // not the first colon, which is the node's token
		}
		r.mapping(out, n.Values, path, depth)
	case *ast.MappingValueNode:
		out.kind, out.origin = kindMapping, r.origin(n.Key.GetToken())
		r.mapping(out, []*ast.MappingValueNode{n}, path, depth)
	case *ast.AnchorNode:
		value := r.convert(n.Value, path, depth+1)
		r.anchors[tokenText(n.Name)] = value
		return value
	case *ast.AliasNode:
		// The node is shared, not copied, so that aliases of aliases cost nothing.
		if known := r.anchors[tokenText(n.Value)]; known != nil {
			return known
		}
		r.add(out.origin, path, "refers to an anchor that is not defined above", "")
	case *ast.TagNode:
		r.add(out.origin, path, "has a YAML tag", "write the plain value")
	case ast.ScalarNode: // numbers and booleans: their text decides, in the type of the key
		out.kind, out.text = kindScalar, n.GetToken().Value
	default:
		r.add(out.origin, path, "is written in a form of YAML that is not used here", "write a plain value, list or mapping")
	}
	return out
}

// mapping fills out with the fields, reports keys that stand twice, and merges "<<".
func (r *reader) mapping(out *node, values []*ast.MappingValueNode, path string, depth int) {
	var merged []*node
	for _, v := range values {
		where := r.origin(v.Key.GetToken())
		if v.Key.IsMergeKey() {
			merged = append(merged, r.merged(v.Value, path, depth)...)
			continue
		}
		name, ok := v.Key.(ast.ScalarNode)
		if !ok {
			r.add(where, path, "has a key that is not a plain name", "")
			continue
		}
		key := tokenText(name)
		if old := out.get(key); old != nil {
			r.add(where, join(path, showKey(key)), "stands twice in this mapping", "keep one")
			continue
		}
		value := r.convert(v.Value, join(path, showKey(key)), depth+1)
		if value.kind == kindNull {
			value.origin = where
		}
		out.fields = append(out.fields, field{key: key, origin: where, value: value})
	}
	for _, m := range merged {
		for _, f := range m.fields {
			if out.get(f.key) == nil {
				out.fields = append(out.fields, f)
			}
		}
	}
}

// merged returns the mappings that "<<" names, one or a list of them.
func (r *reader) merged(value ast.Node, path string, depth int) []*node {
	n := r.convert(value, path, depth+1)
	from := []*node{n}
	if n.kind == kindList {
		from = n.items
	}
	for _, m := range from {
		if m.kind != kindMapping {
			r.add(n.origin, path, "merges something that is not a mapping", "")
			return nil
		}
	}
	return from
}

func tokenText(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// showKey returns a key for a problem: names as they are, anything else, which may be a value in the
// wrong place and so a secret, as "?".
func showKey(key string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	if key == "" || len(key) > 64 || strings.Trim(key, letters) != "" {
		return "?"
	}
	return key
}
