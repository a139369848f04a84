package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// TestRun_RealGoTest feeds the report what the go command really writes for a module with every
// outcome, and compares it with what the go command prints by itself.
func TestRun_RealGoTest(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-json", "./...")
	cmd.Dir = "testdata/outcomes"
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=")
	events, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("go test: got %v, want a non-zero exit", err)
	}
	var out, summary strings.Builder
	r := newRun(&out, []string{"example.com/outcomes"})
	if err := r.read(strings.NewReader(string(events))); err != nil {
		t.Fatal(err)
	}
	r.summarise(&summary)
	if !r.failed() {
		t.Error("a run with failures counts as passed")
	}
	wantAll(t, "output", out.String(),
		"ok  \texample.com/outcomes/good\t",
		"FAIL\texample.com/outcomes/bad\t",
		"FAIL\texample.com/outcomes/broken [build failed]",
		"undefined: nothing",
		"--- FAIL: TestFails",
		"the reason why it failed",
		"panic: gone wrong",
		"?   \texample.com/outcomes/untested\t[no test files]")
	wantNone(t, "output", out.String(), "said by a test that passed", "=== RUN", "TestSkipped")
	wantAll(t, "summary", summary.String(),
		"FAIL  example.com/outcomes: 5 packages (3 failed)",
		"failed:\n    example.com/outcomes/bad.TestFails\n    example.com/outcomes/panics.TestPanics\n",
		"skipped: set SOME_SERVER to run this\n    example.com/outcomes/good.TestSkipped\n",
		"skipped: no reason given\n    example.com/outcomes/good.TestSkippedSilently\n")
}

func TestRun_FailedWithoutPackages(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := newRun(&out, nil)
	if err := r.read(strings.NewReader("go: cannot find main module\n")); err != nil {
		t.Fatal(err)
	}
	if !r.failed() {
		t.Error("a run without one package counts as passed")
	}
	wantAll(t, "output", out.String(), "go: cannot find main module")
}

func TestRun_FailedWhenCutOff(t *testing.T) {
	t.Parallel()
	r := newRun(&strings.Builder{}, nil)
	events := `{"Action":"pass","Package":"a"}` + "\n" + `{"Action":"start","Package":"b"}`
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if !r.failed() {
		t.Error("a run whose last package never ended counts as passed")
	}
}

func TestRun_Module(t *testing.T) {
	t.Parallel()
	r := newRun(&strings.Builder{}, []string{"a.b/c", "a.b/c/d"})
	for path, want := range map[string]string{
		"a.b/c": "a.b/c", "a.b/c/x": "a.b/c", "a.b/c/d/x": "a.b/c/d", "a.b/cd": "a.b/cd",
	} {
		if got := r.module(path); got != want {
			t.Errorf("module of %s: got %s, want %s", path, got, want)
		}
	}
}

func wantAll(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", what, part, text)
		}
	}
}

func wantNone(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%s has %q:\n%s", what, part, text)
		}
	}
}
