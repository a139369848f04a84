package relaytest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Change is a part of a planted bug: a text that stands exactly once in a file of the product, and what takes its place.
// File is relative to a root that is told beside it. Tests that must see such bugs compile them by an overlay, so that
// the tree itself stays as it is.
type Change interface {
	~struct{ File, Old, New string }
}

// Overlay writes the changed sources into a directory of the test's and returns the file for go build -overlay. root is
// absolute. A text that does not stand exactly once fails the test.
func Overlay[C Change](t *testing.T, root string, changes []C) string {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed(t, root, changes) {
		to := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(file, root), string(filepath.Separator), "_"))
		require.NoError(t, os.WriteFile(to, []byte(text), 0o600))
		overlay.Replace[file] = to
	}
	list, err := json.Marshal(overlay)
	require.NoError(t, err)
	name := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(name, list, 0o600))
	return name
}

// FitsTheSource holds that each text that a bug replaces stands exactly once: a bug that no longer fits proves nothing.
func FitsTheSource[C Change](t *testing.T, root string, changes []C) {
	t.Helper()
	changed(t, root, changes)
}

// changed makes the changes, one after the other, and returns the files' new texts.
func changed[C Change](t *testing.T, root string, changes []C) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, change := range changes {
		c := struct{ File, Old, New string }(change)
		file := filepath.Join(root, c.File)
		if _, seen := texts[file]; !seen {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[file] = string(text)
		}
		require.Equal(t, 1, strings.Count(texts[file], c.Old), "%s: %q must stand once", c.File, c.Old)
		texts[file] = strings.Replace(texts[file], c.Old, c.New, 1)
	}
	return texts
}
