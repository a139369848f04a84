package config

import (
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/postrider/postrider/relay"
)

// Flag is one key set on the command line.
type Flag struct {
	Name  string // as in problems: "--database-url"
	Key   string // "database.url"
	Value string
}

// Options say what Load reads. The zero value loads the defaults.
type Options struct {
	// File is the YAML file's name; empty: none. "-" reads Stdin.
	File  string
	Stdin io.Reader
	// Environ is the environment as os.Environ gives it.
	Environ []string
	// Flags win over everything; of two for one key the later wins.
	Flags []Flag
	// Hostname is the default of relay.name; empty leaves that empty.
	Hostname string
	// Require lists keys that must be set ("database.url", "kafka.bootstrap.servers").
	Require []string
	// CheckKafka judges the kafka section, when there is one. Of the errors it joins, those that are
	// *relay.SetupError with a Thing "kafka.NAME" are shown at the place of that property.
	CheckKafka func(properties map[string]string) error
}

// Loaded is a configuration without problems.
type Loaded struct {
	Config
	// Origins says for each key, by its path, where its value came from; a key that is missing here
	// has its default.
	Origins map[string]Origin
	// Notices are lines for people about what was passed over.
	Notices []string
}

// Load reads the sources, the file below the environment below the flags. Its error is Problems with
// everything that is wrong, or a *relay.SetupError when there is no file to read.
func Load(o Options) (*Loaded, error) {
	root := &node{kind: kindMapping}
	var problems Problems
	if o.File != "" {
		text, err := readFile(o)
		if err != nil {
			return nil, err
		}
		if problems = loadFile(root, o.File, text); root.fields == nil && len(problems) > 0 {
			o.Require = nil // what the file sets is not known
		}
	}
	env := readEnviron(o.Environ)
	flags, flagProblems := readFlags(o.Flags)
	problems = append(append(problems, env.problems...), flagProblems...)
	for _, a := range append(env.assignments, flags...) {
		problems = append(problems, assign(root, a)...)
	}

	l := &Loaded{Config: Default(), Origins: map[string]Origin{}, Notices: env.notices}
	applyPreset(l, root)
	d := decoder{origins: l.Origins}
	d.decode("", root, reflect.ValueOf(&l.Config).Elem())
	if l.Relay.Name == "" {
		l.Relay.Name = o.Hostname
	}
	if l.Relay.Claim != relay.ClaimLanes && !l.Origin("relay.delivery").given() {
		l.Relay.Delivery = AtLeastOnce // Kafka has nothing to fence these relays by
	}
	l.preferURL()
	problems = append(problems, d.problems...)
	problems = append(problems, check(l, o, problems)...)
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	return l, nil
}

// preferURL drops user and password of a weaker source than that of a URL with a password in it: a flag
// wins over a variable here too.
func (l *Loaded) preferURL() {
	u, reason := parseDatabaseURL(l.Database.URL.Reveal())
	if reason != "" || u.User == nil {
		return
	}
	if _, has := u.User.Password(); !has {
		return
	}
	from := l.Origin("database.url")
	if old := l.Origin("database.password"); !l.Database.Password.Empty() && old.rank < from.rank {
		l.Database.Password = Secret{}
		l.Notices = append(l.Notices, old.Source+": passed over, since "+from.Source+" holds a password")
	}
	if l.Database.User != "" && l.Origin("database.user").rank < from.rank {
		l.Database.User = ""
	}
}

// Origin returns where the key's value came from.
func (l *Loaded) Origin(path string) Origin {
	if origin, ok := l.Origins[path]; ok {
		return origin
	}
	return Origin{Source: "default"}
}

func stdin(o Options) io.Reader {
	if o.Stdin == nil {
		return strings.NewReader("")
	}
	return o.Stdin
}

func readFile(o Options) ([]byte, error) {
	f := io.NopCloser(stdin(o))
	if o.File != "-" {
		opened, err := os.Open(o.File)
		if err != nil {
			return nil, fileError(o.File, err)
		}
		f = opened
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxYAML+1))
	if err != nil {
		return nil, fileError(o.File, err)
	}
	return text, nil
}

func fileError(name string, err error) error {
	e := &relay.SetupError{Kind: relay.SetupUsage, Thing: "configuration file " + name, Reason: fileTrouble(err)}
	switch {
	case errors.Is(err, os.ErrNotExist):
		e.Kind, e.Fix = relay.SetupNotFound, "make one with: postrider config init "+name
	case errors.Is(err, os.ErrPermission):
		e.Kind, e.Fix = relay.SetupPermission, "let this user read it"
	}
	return e
}

func loadFile(root *node, name string, text []byte) Problems {
	if name == "-" {
		name = "stdin"
	}
	r := &reader{source: name, rank: rankFile, places: true}
	n := r.read(text)
	switch n.kind {
	case kindMapping:
		*root = *n
	case kindNull: // an empty file, or one that was reported
	default:
		r.add(n.origin, "", "must hold a mapping of keys, not "+n.kind.String(), "see postrider config init")
	}
	return r.problems
}

func readFlags(flags []Flag) (out []assignment, problems Problems) {
	for _, f := range flags {
		origin := Origin{Source: f.Name, rank: rankFlag}
		k, ok := findKey(f.Key)
		if !ok {
			shown := showKey(f.Key)
			p := Problem{Where: origin, Key: shown, Reason: "unknown key"}
			if reason, next := laterKey(f.Key); reason != "" {
				p.Reason, p.Next = reason, next
			} else if near := nearestPath(f.Key); near != "" {
				p.Next = "did you mean " + near + "?"
			} else {
				p.Next = "`postrider config init` lists the keys"
			}
			problems = append(problems, p)
			continue
		}
		out = append(out, assignment{key: k, value: f.Value, origin: origin})
	}
	return out, problems
}

// nearestPath looks among all whole paths, then for a key of the same name in another section.
func nearestPath(path string) string {
	paths := make([]string, len(allKeys))
	for i, k := range allKeys {
		paths[i] = k.String()
	}
	if near := Nearest(path, paths); near != "" {
		return near
	}
	return nearestKey("", path[strings.LastIndex(path, ".")+1:], nil)
}

// assign puts a variable's or flag's value into the tree: single values as they are, mappings and
// lists read as YAML.
func assign(root *node, a assignment) (problems Problems) {
	value := &node{kind: kindScalar, origin: a.origin, text: a.value, quoted: true}
	if !a.key.single() {
		r := &reader{source: a.origin.Source, rank: a.origin.rank}
		if value = r.read([]byte(a.value)); len(r.problems) > 0 {
			for _, p := range r.problems {
				p.Key = strings.TrimSuffix(join(a.key.String(), p.Key), ".")
				problems = append(problems, p)
			}
			return problems
		}
		if value.kind == kindNull {
			return nil
		}
	}
	for _, old := range root.set(a.key.path, value) {
		problems = append(problems, Problem{Where: old.origin, Key: a.key.path[0], Reason: "must be a mapping of keys, not " + old.kind.String()})
	}
	return problems
}

// applyPreset starts the outbox section from the preset that the sources name; an unknown name is
// left to check.
func applyPreset(l *Loaded, root *node) {
	outbox := root.get("outbox")
	if outbox == nil {
		return
	}
	named := outbox.get("preset")
	if named == nil || named.kind != kindScalar {
		return
	}
	p, ok := presets[named.text]
	if !ok {
		return
	}
	p.apply(&l.Outbox)
	origins := map[string]Origin{}
	for _, k := range allKeys {
		if path := k.String(); path == "outbox.table" || optional(path) {
			origins[path] = Origin{Source: "preset " + named.text, rank: rankPreset}
		}
	}
	maps.Copy(l.Origins, origins)
}
