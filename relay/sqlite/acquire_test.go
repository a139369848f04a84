package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestMain lets the tests run this binary as another relay, or as another user.
func TestMain(m *testing.M) {
	if path := os.Getenv("POSTRIDER_TEST_HOLD"); path != "" {
		hold(path)
		return
	}
	if path := os.Getenv("POSTRIDER_TEST_OPEN"); path != "" {
		_, err := Open(context.Background(), relay.StoreOptions{URL: "sqlite:" + path, Table: ownTable()})
		fmt.Println(err)
		return
	}
	os.Exit(m.Run())
}

// hold owns the table until the process is killed.
func hold(path string) {
	s, err := Open(context.Background(), relay.StoreOptions{URL: "sqlite:" + path, Name: "test", Relay: "relay-9",
		Table: ownTable()})
	if err == nil {
		_, err = s.Acquire(context.Background(), nil)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("owner")
	select {}
}

func other(t *testing.T, env string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), env)
	return cmd
}

// The lock of a relay that was killed is free at once, and the one that waits knows whom for.
func TestStore_Acquire_after_a_kill(t *testing.T) {
	t.Parallel()
	path, _ := newFile(t, "")
	cmd := other(t, "POSTRIDER_TEST_HOLD="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "owner\n", line)

	s := open(t, path, ownTable())
	holder, in := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.Background(), func(h string) { holder <- h })
		in <- err
	}()
	require.Equal(t, fmt.Sprintf("relay-9 (process %d), claim: single", cmd.Process.Pid), <-holder)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	select {
	case err := <-in:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.Fail(t, "the lock of a dead relay was not given up")
	}
}

// A file that this user cannot write is refused at start.
func TestOpen_without_rights(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "postrider-rights-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path, db := newFile(t, "")
	_, err = db.ExecContext(t.Context(), "VACUUM INTO ?", dir+"/app.db")
	require.NoError(t, err)
	require.NotEqual(t, path, dir+"/app.db")
	require.NoError(t, os.Chmod(dir, 0o755))           //nolint:gosec // another user must get in
	require.NoError(t, os.Chmod(dir+"/app.db", 0o444)) //nolint:gosec // and read
	exe, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(exe)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(dir+"/test", binary, 0o755)) //nolint:gosec // and run the test
	cmd := exec.CommandContext(t.Context(), dir+"/test", "-test.run=^$")
	cmd.Env = append(os.Environ(), "POSTRIDER_TEST_OPEN="+dir+"/app.db")
	cmd.Dir = dir
	if os.Geteuid() == 0 { // rights do not bind root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "cannot be written")
	require.Contains(t, string(out), "give the relay's user the right")
}

func TestOpen_locked(t *testing.T) {
	t.Parallel()
	path, db := newFile(t, "")
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(t.Context(), nil) // IMMEDIATE
	require.NoError(t, err)
	_, err = Open(t.Context(), relay.StoreOptions{URL: "sqlite:" + path + "?busy_timeout=50ms", Table: ownTable()})
	e := relay.AsSetup(err)
	require.NotNil(t, e, "%v", err)
	require.Equal(t, relay.SetupConflict, e.Kind)
	require.ErrorContains(t, err, "locked by another process")
	require.NoError(t, tx.Rollback())
	open(t, path, ownTable())
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"sqlite:/var/lib/app/a.db":          "/var/lib/app/a.db",
		"sqlite:///var/lib/app/a.db":        "/var/lib/app/a.db",
		"sqlite:/var/lib/a%20%23%3Fb%25.db": "/var/lib/a #?b%.db",
		"sqlite:/x.db?busy_timeout=1s":      "/x.db",
		"sqlite:/x.db?synchronous=full":     "/x.db",
	} {
		loc, err := parseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, loc.path)
	}
	loc, err := parseURL("sqlite:rel.db")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(loc.path, "/"))
	for _, raw := range []string{"", "sqlite:", "postgres://x", "sqlite:a%zz", "sqlite::memory:",
		"sqlite:a.db?busy_timeout=no", "sqlite:a.db?synchronous=off"} {
		_, err := parseURL(raw)
		require.NotNil(t, relay.AsSetup(err), raw)
	}
	// A name that URL and driver would both read otherwise is opened as it is.
	dir := t.TempDir()
	odd := dir + "/a #?%b.db"
	path, _ := newFile(t, "")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(odd, data, 0o600))
	open(t, strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F").Replace(odd), ownTable())
}
