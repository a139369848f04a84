package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	library = "github.com/postrider/postrider"
	daemon  = library + "/relay"
)

// mayImport holds, for each package, the packages of the project it may import: those to its right in
// ARCHITECTURE.md. A package that is missing here fails the test: it needs a place in the drawing.
var mayImport = map[string][]string{
	library + "/outbox":            {},
	library + "/outbox/outboxpgx":  {library + "/outbox"},
	library + "/outbox/outboxtest": {library + "/outbox"},
	library + "/inbox":             {library + "/outbox"},
	library + "/inbox/inboxpgx":    {library + "/outbox", library + "/outbox/outboxpgx", library + "/inbox"},
	library + "/schema":            {library + "/outbox"},

	daemon:                {library + "/outbox"},
	daemon + "/sim":       {},
	daemon + "/relaytest": {daemon, library + "/outbox", library + "/schema"},
	daemon + "/postgres":  {daemon, library + "/outbox", library + "/schema"},
	daemon + "/mysql":     {daemon, library + "/outbox", library + "/schema"},
	daemon + "/sqlite":    {daemon, library + "/outbox", library + "/schema"},
	daemon + "/kafka":     {daemon, library + "/outbox", library + "/schema"},
	daemon + "/config":    {daemon, library + "/outbox", library + "/schema"},
	daemon + "/api":       {daemon},
	daemon + "/app": {daemon, daemon + "/postgres", daemon + "/mysql", daemon + "/sqlite", daemon + "/kafka",
		daemon + "/config", daemon + "/api", library + "/outbox", library + "/schema"},
	daemon + "/demo": {daemon, daemon + "/sqlite", daemon + "/kafka", daemon + "/api",
		library + "/outbox", library + "/inbox", library + "/schema"},
	daemon + "/cmd/postrider": {daemon, daemon + "/app", daemon + "/config", daemon + "/demo", daemon + "/kafka",
		library + "/outbox", library + "/schema"},
}

// thirdParty holds the modules that a package of the library may use. The library's users have their
// own versions of drivers: what it does not need it does not name.
var thirdParty = map[string][]string{
	library + "/outbox/outboxpgx": {"github.com/jackc/pgx/v5"},
	library + "/inbox/inboxpgx":   {"github.com/jackc/pgx/v5"},
}

// outside are trees that nothing ships from.
var outside = []string{library + "/bench", library + "/examples", library + "/dev", daemon + "/librarytest", daemon + "/crashtest"}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T, pattern string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", pattern)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", pattern, err, stderr.String())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestImports_OnlyToTheRight holds the import directions of ARCHITECTURE.md.
func TestImports_OnlyToTheRight(t *testing.T) {
	t.Parallel()
	for _, p := range append(list(t, library+"/..."), list(t, daemon+"/...")...) {
		if slices.ContainsFunc(outside, func(dir string) bool { return strings.HasPrefix(p.ImportPath, dir) }) {
			continue
		}
		allowed, known := mayImport[p.ImportPath]
		if !known {
			t.Errorf("%s has no place in the import rules", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case strings.HasPrefix(imp, library):
				if !slices.Contains(allowed, imp) {
					t.Errorf("%s imports %s: not to its right", p.ImportPath, imp)
				}
			case strings.HasPrefix(p.ImportPath, daemon):
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				if !slices.ContainsFunc(thirdParty[p.ImportPath], func(m string) bool { return strings.HasPrefix(imp, m) }) {
					t.Errorf("%s imports %s: the library stays near the standard library", p.ImportPath, imp)
				}
			}
		}
	}
}

// TestImports_RelayKnowsNoTechnology holds that the flow knows no database, no Kafka client, no
// configuration and no HTTP.
func TestImports_RelayKnowsNoTechnology(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, daemon) {
		for _, imp := range p.Imports {
			for _, banned := range []string{"database/sql", "net/http", "github.com/", "modernc.org/"} {
				if strings.HasPrefix(imp, banned) && !strings.HasPrefix(imp, library) {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
	}
}
