package config

import (
	"strings"
)

// yamlWriter writes a tree as a YAML file, with a comment behind each value when there is one.
type yamlWriter struct {
	lines   []yamlLine
	comment func(path string) string // nil: none
}

type yamlLine struct{ text, comment string }

func (w *yamlWriter) add(depth int, path, text string) {
	line := yamlLine{text: strings.Repeat("  ", depth) + text}
	if w.comment != nil && path != "" {
		line.comment = w.comment(path)
	}
	w.lines = append(w.lines, line)
}

func (w *yamlWriter) mapping(p pairs, path string, depth int) {
	for _, f := range p {
		at, name := join(path, f.key), quote(f.key)
		switch v := f.value.(type) {
		case pairs:
			if len(v) == 0 {
				w.add(depth, at, name+": {}")
				continue
			}
			w.add(depth, "", name+":")
			w.mapping(v, at, depth+1)
		case []any:
			if len(v) == 0 || !isMapping(v[0]) {
				w.add(depth, at, name+": "+flow(v))
				continue
			}
			w.add(depth, at, name+":")
			for _, item := range v {
				w.add(depth+1, "", "- "+flow(item))
			}
		default:
			w.add(depth, at, name+": "+flow(v))
		}
	}
}

func isMapping(value any) bool {
	_, ok := value.(pairs)
	return ok
}

// text lines the comments up.
func (w *yamlWriter) text() string {
	const widest = 60
	width := 0
	for _, l := range w.lines {
		if n := len(l.text); l.comment != "" && n <= widest {
			width = max(width, n)
		}
	}
	var b strings.Builder
	for _, l := range w.lines {
		b.WriteString(l.text)
		if l.comment != "" {
			b.WriteString(strings.Repeat(" ", max(0, width-len(l.text))) + "  # " + l.comment)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
