//go:build unix

package crashtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is one relay: a name, its ways to the servers, and a process that comes and goes.
type process struct {
	name      string
	db, kafka *proxy
	env       []string
	log       string // file; every run appends
	binary    string // "": relayBinary

	run atomic.Pointer[life] // nil before the first start; several faults may look at it at once
}

// life is one run of a relay's process.
type life struct {
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
	started int64         // where the log of this run begins
}

// lifetime ends a relay whose test is gone.
const lifetime = "20m"

// newProcess prepares a relay that is not started yet.
func newProcess(t testing.TB, name string, db, kafka *proxy, env ...string) *process {
	t.Helper()
	dir := os.Getenv("POSTRIDER_CRASH_KEEP")
	if dir == "" {
		dir = t.TempDir()
	}
	file := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()) + "." + name + ".log"
	p := &process{name: name, db: db, kafka: kafka, log: filepath.Join(dir, file)}
	_ = os.Remove(p.log) // of an earlier run
	p.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=exitcode=66",
		"POSTRIDER_RELAY_NAME=" + name, "POSTRIDER_HTTP_LISTEN=127.0.0.1:0",
		"POSTRIDER_KAFKA_BOOTSTRAP_SERVERS=" + kafka.addr,
	}, env...)
	t.Cleanup(func() {
		if run := p.run.Load(); run != nil {
			_ = run.cmd.Process.Kill()
			<-run.done
		}
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", p.name, p.tail(25))
		}
	})
	return p
}

// start runs the relay. It must not be running.
func (p *process) start(t testing.TB) {
	t.Helper()
	file := p.binary
	if file == "" {
		var err error
		file, err = relayBinary()
		require.NoError(t, err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer log.Close()
	run := &life{cmd: exec.Command(file, "run", "--timeout", lifetime), done: make(chan struct{})}
	run.started, _ = log.Seek(0, io.SeekEnd)
	run.cmd.Env, run.cmd.Dir = p.env, filepath.Dir(p.log)
	run.cmd.Stdout, run.cmd.Stderr = log, log
	require.NoError(t, run.cmd.Start())
	p.run.Store(run)
	go func() {
		_ = run.cmd.Wait()
		close(run.done)
	}()
}

// command is another verb of the binary with the relay's configuration.
func (p *process) command(args ...string) *exec.Cmd {
	file, _ := relayBinary()
	cmd := exec.Command(file, args...)
	cmd.Env, cmd.Dir = p.env, filepath.Dir(p.log)
	return cmd
}

// alive says whether the process runs.
func (p *process) alive() bool {
	run := p.run.Load()
	if run == nil {
		return false
	}
	select {
	case <-run.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.run.Load().cmd.Process.Signal(s) }

// kill is kill -9.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.run.Load().done
}

// term asks for an orderly end and returns the exit code and how long it took.
func (p *process) term(t testing.TB, limit time.Duration) (code int, took time.Duration) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	return p.ended(t, limit)
}

// ended waits for the end.
func (p *process) ended(t testing.TB, limit time.Duration) (code int, took time.Duration) {
	t.Helper()
	began := time.Now()
	select {
	case <-p.run.Load().done:
	case <-time.After(limit):
		p.signal(syscall.SIGQUIT) // prints where it hangs
		<-p.run.Load().done
		t.Fatalf("%s did not end within %s of SIGTERM; it says:\n%s", p.name, limit, p.tail(200))
	}
	return p.run.Load().cmd.ProcessState.ExitCode(), time.Since(began)
}

// lines are the log's lines of the present run, or of all.
func (p *process) lines(all bool) []map[string]any {
	file, err := os.Open(p.log)
	if err != nil {
		return nil
	}
	defer file.Close()
	if !all {
		_, _ = file.Seek(p.run.Load().started, io.SeekStart)
	}
	var lines []map[string]any
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := map[string]any{}
		if json.Unmarshal(scanner.Bytes(), &line) != nil {
			line = map[string]any{"msg": scanner.Text(), "level": "TEXT"}
		}
		lines = append(lines, line)
	}
	return lines
}

// said counts the log's lines of all runs with this message.
func (p *process) said(msg string) int {
	n := 0
	for _, line := range p.lines(true) {
		if text, _ := line["msg"].(string); strings.Contains(text, msg) {
			n++
		}
	}
	return n
}

func (p *process) tail(n int) string {
	data, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// address is where the running relay's HTTP listens, which it says when it starts; empty before that.
func (p *process) address() (addr string) {
	for _, line := range p.lines(false) {
		if text, ok := line["http"].(string); ok {
			addr = text
		}
	}
	return addr
}

// url waits for the address.
func (p *process) url(t testing.TB) string {
	t.Helper()
	eventually(t, 30*time.Second, func() bool { return p.address() != "" },
		func() string { return p.name + " does not say where it listens:\n" + p.tail(10) })
	return "http://" + p.address()
}

// work is what a relay says it has in hand.
type work struct {
	State    string `json:"state"`
	InFlight int    `json:"in_flight_events"`
	Late     int    `json:"late_records"`
}

// working asks the relay what it has in hand; false when it does not say at once.
func (p *process) working() (w work, ok bool) {
	client := http.Client{Timeout: 300 * time.Millisecond}
	resp, err := client.Get("http://" + p.address() + "/api/v1/status")
	if err != nil {
		return work{}, false
	}
	defer resp.Body.Close()
	return w, json.NewDecoder(resp.Body).Decode(&w) == nil
}

// get asks the running relay.
func (p *process) get(t testing.TB, path string) (status int, body string, err error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(p.url(t) + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// metric is the sum of a metric over its labels.
func (p *process) metric(t testing.TB, name string) (float64, error) {
	t.Helper()
	_, body, err := p.get(t, "/metrics")
	if err != nil {
		return 0, err
	}
	sum, known := 0.0, false
	for line := range strings.Lines(body) {
		metric, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if metric != name && !strings.HasPrefix(metric, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		sum, known = sum+n, true
	}
	if !known {
		return 0, errors.New("no metric " + name)
	}
	return sum, nil
}

// counts waits until a metric has a value.
func (p *process) counts(t testing.TB, name string, want float64) {
	t.Helper()
	var got float64
	var err error
	eventually(t, 30*time.Second, func() bool { got, err = p.metric(t, name); return err == nil && got == want },
		func() string { return fmt.Sprintf("%s of %s is %g, want %g (%v)", name, p.name, got, want, err) })
}

// ready waits until the relay works or stands by.
func (p *process) ready(t testing.TB) {
	t.Helper()
	var body string
	eventually(t, 60*time.Second, func() bool {
		status, text, err := p.get(t, "/readyz")
		body = text
		return err == nil && status == http.StatusOK
	}, func() string { return p.name + " is not ready: " + body + "\n" + p.tail(10) })
}
