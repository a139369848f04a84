//go:build unix

package crashtest

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/outbox"
)

// server is one kind of database.
type server struct {
	name     string // dev/servers' name for it
	dialect  outbox.Dialect
	variable string // where its URL is
}

var (
	postgres       = server{"postgres", outbox.Postgres, "POSTRIDER_TEST_POSTGRES"}
	postgresNewest = server{"postgres-newest", outbox.Postgres, "POSTRIDER_TEST_POSTGRES_NEWEST"}
	mysqlServer    = server{"mysql", outbox.MySQL, "POSTRIDER_TEST_MYSQL"}
	mariadb        = server{"mariadb", outbox.MariaDB, "POSTRIDER_TEST_MARIADB"}
)

const kafkaVariable = "POSTRIDER_TEST_KAFKA"

// shared gives a server that other tests use too, and that must not be harmed.
func shared(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		lacks(t, fmt.Sprintf("set %s (dev/servers up; eval \"$(dev/servers env)\")", variable))
	}
	return value
}

// lacks skips the test, or fails it where everything must be there.
func lacks(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and the test cannot run: " + why)
	}
	t.Skip(why)
}

// servers are a set of their own, made to be killed.
type servers struct {
	instance string
	addr     map[string]string // by variable
}

// root is the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// private starts servers of this checkout's own, and removes them with their data at the end. Runs of
// one checkout take turns.
func private(t *testing.T, names ...string) *servers {
	t.Helper()
	switch {
	case os.Geteuid() != 0:
		lacks(t, "killing servers needs servers of its own, which dev/servers starts as root only")
	case !exists("/etc/debian_version"):
		lacks(t, "killing servers needs servers of its own, which dev/servers starts on Debian only")
	}
	s := &servers{instance: fmt.Sprintf("crash-%x", sha256.Sum256([]byte(root())))[:14]}
	s.takeTurn(t)
	_, err := s.run(10*time.Minute, "up", names...)
	t.Cleanup(func() { s.remove(t) })
	require.NoError(t, err)
	out, err := s.run(time.Minute, "env", names...)
	require.NoError(t, err)
	s.addr = map[string]string{}
	for _, m := range regexp.MustCompile(`export (\w+)='([^']*)'`).FindAllStringSubmatch(out, -1) {
		s.addr[m[1]] = m[2]
	}
	return s
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *servers) takeTurn(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(os.TempDir(), "postrider-"+s.instance+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
}

func (s *servers) remove(t *testing.T) {
	out, err := s.run(5*time.Minute, "status")
	if err == nil {
		_, err = s.run(5*time.Minute, "wipe")
	}
	if dir := regexp.MustCompile(`(?m)^instance \S+ in (\S+)$`).FindStringSubmatch(out); err == nil && dir != nil {
		err = os.RemoveAll(dir[1]) // gives the ports back
	}
	if err != nil {
		t.Logf("remove the servers of instance %s: %v", s.instance, err)
	}
}

// run is dev/servers COMMAND NAME….
func (s *servers) run(limit time.Duration, command string, names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root(), "dev", "servers"), append([]string{command}, names...)...)
	cmd.Env = append(os.Environ(), "POSTRIDER_DEV_INSTANCE="+s.instance)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("dev/servers %s %s: %w\n%s", command, strings.Join(names, " "), err, out)
	}
	return string(out), nil
}

// relayBinary is the relay under test, built once.
var relayBinary = sync.OnceValues(func() (string, error) {
	if file := os.Getenv("POSTRIDER_CRASH_BINARY"); file != "" {
		return file, nil
	}
	dir, err := os.MkdirTemp("", "postrider-crash-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	file := filepath.Join(dir, "postrider")
	if raceDetector {
		return file, buildRelay(file, "-race")
	}
	return file, buildRelay(file)
})

func buildRelay(file string, flags ...string) error {
	args := append([]string{"build", "-o", file}, flags...)
	cmd := exec.Command("go", append(args, "github.com/postrider/postrider/relay/cmd/postrider")...)
	cmd.Dir = filepath.Join(root(), "relay")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build postrider: %w\n%s", err, out)
	}
	return nil
}

// builtIn is the directory that the binary was built into.
var builtIn string

// sideBySide is how many tests run at once unless told: they wait for servers and timeouts nearly all
// of the time.
const sideBySide = 8

func TestMain(m *testing.M) {
	flag.Parse()
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })
	if !told {
		_ = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	}
	code := m.Run()
	if long() {
		if err := account.write(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// databaseURL is the server's URL with another database and, if given, another address.
func databaseURL(t testing.TB, server, database, addr string) string {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Path = "/" + database
	if addr != "" {
		u.Host = addr
	}
	return u.String()
}

// databaseAddr is the host and port of a URL.
func databaseAddr(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u.Host
}
