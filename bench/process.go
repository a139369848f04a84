package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// program is the built command line, shared by all children.
var program struct {
	sync.Mutex
	dir string
}

// buildProgram builds the command line once and returns where it is.
func buildProgram(ctx context.Context) (string, error) {
	program.Lock()
	defer program.Unlock()
	if program.dir == "" {
		dir, err := os.MkdirTemp("", "postrider-bench")
		if err != nil {
			return "", err
		}
		program.dir = dir
		build := exec.CommandContext(ctx, "go", "build", "-o", dir, "github.com/postrider/postrider/relay/cmd/postrider")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	return filepath.Join(program.dir, "postrider"), nil
}

// removeProgram removes what buildProgram made.
func removeProgram() {
	program.Lock()
	defer program.Unlock()
	if program.dir != "" {
		_ = os.RemoveAll(program.dir)
		program.dir = ""
	}
}

// child is the product as users run it: its own process.
type child struct {
	name   string // relay.name
	cmd    *exec.Cmd
	exited chan error
}

// startChild starts a relay on the bed, with the delivery of the settings and further variables of the environment.
func startChild(ctx context.Context, b *bed, s settings, name string, env []string, args ...string) (*child, error) {
	bin, err := buildProgram(ctx)
	if err != nil {
		return nil, err
	}
	c := productConfig(b, s)
	cmd := exec.CommandContext(ctx, bin, append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "POSTRIDER_DATABASE_URL="+b.url, "POSTRIDER_KAFKA_BOOTSTRAP_SERVERS="+s.kafka,
		"POSTRIDER_HTTP_LISTEN=127.0.0.1:0", "POSTRIDER_LOG_LEVEL=warn", "POSTRIDER_RELAY_NAME="+name,
		"POSTRIDER_OUTBOX_NAME="+c.Outbox.Name, "POSTRIDER_RELAY_CLAIM="+string(c.Relay.Claim), "POSTRIDER_RELAY_DELIVERY="+c.Relay.Delivery)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ch := &child{name: name, cmd: cmd, exited: make(chan error, 1)}
	go func() { ch.exited <- cmd.Wait() }()
	return ch, nil
}

// stop ends a relay as a deploy does, and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	if err := c.wait(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: the relay ended with", err)
	}
}

// kill ends a relay as a crash does, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.wait()
}

// wait may be called again.
func (c *child) wait() error {
	err := <-c.exited
	c.exited <- err
	return err
}

// proc is a file of the process in /proc; empty when there is none.
func (c *child) proc(file string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, file))
	return string(data)
}

// peak is the largest resident memory so far, in MiB.
func (c *child) peak() float64 {
	for line := range strings.Lines(c.proc("status")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// cpu is user and system time so far; /proc counts in hundredths of a second.
func (c *child) cpu() time.Duration {
	_, rest, _ := strings.Cut(c.proc("stat"), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
