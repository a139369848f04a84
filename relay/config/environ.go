package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

const environPrefix = "POSTRIDER_"

// assignment is one key set by a variable or a flag.
type assignment struct {
	key    key
	value  string
	origin Origin
}

// environment sorts the process's variables into assignments, problems and notices.
type environment struct {
	values      map[string]string
	assignments []assignment
	problems    Problems
	notices     []string
}

func readEnviron(environ []string) *environment {
	e := &environment{values: map[string]string{}}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		// An empty variable is as good as none: that is what ${X:-} in a compose file gives.
		if strings.HasPrefix(name, environPrefix) && value != "" {
			e.values[name] = value
		}
	}
	known := map[string]key{}
	for _, k := range allKeys {
		known[k.variable()] = k
	}
	names := make([]string, 0, len(e.values))
	for name := range e.values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		e.sort(name, known)
	}
	// Whole sections first, so that a variable for one key within wins.
	slices.SortStableFunc(e.assignments, func(a, b assignment) int {
		return cmp.Compare(len(a.key.path), len(b.key.path))
	})
	return e
}

func (e *environment) origin(name string) Origin { return Origin{Source: name, rank: rankEnviron} }

func (e *environment) bad(name, key, reason, next string) {
	e.problems = append(e.problems, Problem{Where: e.origin(name), Key: key, Reason: reason, Next: next})
}

// sort decides what one variable is.
func (e *environment) sort(name string, known map[string]key) {
	k, isKey := known[name]
	prop, isProp := strings.CutPrefix(name, environPrefix+"KAFKA_")
	base, isFile := strings.CutSuffix(name, "_FILE")
	switch {
	case isKey:
		e.assign(name, k)
	case foreign(name, e.values[name]):
	case isFile && known[base].secret():
		e.fromFile(name, base, known[base])
	case isProp && isFile:
		e.fromFile(name, base, property(propertyName(strings.TrimSuffix(prop, "_FILE"))))
	case isProp:
		e.assign(name, property(propertyName(prop)))
	case isFile && known[base].path != nil:
		e.bad(name, known[base].String(), "only secrets are read from files", "set "+base)
	default:
		e.unknown(name, known)
	}
}

func (e *environment) assign(name string, k key) {
	if _, both := e.values[name+"_FILE"]; both && k.secret() {
		e.bad(name+"_FILE", k.String(), "stands beside "+name, "set one of them")
		return
	}
	e.assignments = append(e.assignments, assignment{key: k, value: e.values[name], origin: e.origin(name)})
}

// fromFile reads a secret from the file that a variable names.
func (e *environment) fromFile(name, base string, k key) {
	if _, both := e.values[base]; both {
		return // reported by assign
	}
	value, reason := readSecret(e.values[name])
	if reason != "" {
		// The variable's value is not repeated: it may be the secret itself, put into the wrong one.
		e.bad(name, k.String(), "the file that it names "+reason, "")
		return
	}
	e.assignments = append(e.assignments, assignment{key: k, value: value, origin: e.origin(name)})
}

const maxSecret = 256 << 10

// readSecret returns a file's content without one line end behind it.
func readSecret(path string) (value, reason string) {
	f, err := os.Open(path)
	if err != nil {
		return "", fileTrouble(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch {
	case err != nil:
		return "", fileTrouble(err)
	case len(data) > maxSecret:
		return "", "is larger than 256 KiB"
	}
	value = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", "is empty"
	}
	return value, ""
}

// fileTrouble says why a file cannot be read, without its name.
func fileTrouble(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this user"
	default:
		return "cannot be read"
	}
}

func propertyName(variable string) string {
	return strings.ReplaceAll(strings.ToLower(variable), "_", ".")
}

// Kubernetes describes every Service of the namespace in variables named after it: a Service called
// postrider, or postrider-relay, gives names that look like ours.
var (
	serviceName  = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?$`)
	serviceValue = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// foreign says whether a variable has our prefix but another purpose.
func foreign(name, value string) bool {
	rest := strings.TrimPrefix(name, environPrefix)
	return rest == "CONFIG" || // names the file; the command line reads it
		strings.HasPrefix(rest, "TEST_") || strings.HasPrefix(rest, "DEV_") ||
		serviceName.MatchString(name) ||
		(strings.HasSuffix(name, "_PORT") && serviceValue.MatchString(value))
}

// unknown reports a variable that looks like a key. One of a section that nobody knows is noticed
// and left alone: it may belong to something else.
func (e *environment) unknown(name string, known map[string]key) {
	section, _, _ := strings.Cut(strings.TrimPrefix(name, environPrefix), "_")
	for path := range later {
		variable := key{path: strings.Split(path, ".")}.variable()
		if name == variable || strings.HasPrefix(name, variable+"_") {
			e.bad(name, path, notYet, "unset it: "+later[path])
			return
		}
	}
	var names, sections []string
	for variable, k := range known {
		names = append(names, variable)
		if len(k.path) == 1 {
			sections = append(sections, strings.ToUpper(k.path[0]))
		}
	}
	slices.Sort(names)
	slices.Sort(sections)
	near := Nearest(name, names)
	switch {
	case near != "":
		e.bad(name, "", "unknown variable", "did you mean "+near+"?")
	case slices.Contains(sections, section) || Nearest(section, sections) != "":
		e.bad(name, "", "unknown variable", "`postrider config init` lists the keys; a key's variable is "+environPrefix+" and its path in capitals with underscores")
	default:
		e.notices = append(e.notices, name+": not a setting, ignored")
	}
}
