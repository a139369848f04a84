package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// child is the product as users run it: its own process.
type child struct {
	cmd    *exec.Cmd
	dir    string
	exited chan error
}

func startChild(ctx context.Context, b *bed, s settings, env []string, args ...string) (*child, error) {
	dir, err := os.MkdirTemp("", "postrider-bench")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, "postrider")
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/postrider/postrider/relay/cmd/postrider")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, bin, append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "POSTRIDER_DATABASE_URL="+b.url, "POSTRIDER_KAFKA_BOOTSTRAP_SERVERS="+s.kafka,
		"POSTRIDER_HTTP_LISTEN=127.0.0.1:0", "POSTRIDER_LOG_LEVEL=warn")
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, dir: dir, exited: make(chan error, 1)}
	go func() { c.exited <- cmd.Wait() }()
	return c, nil
}

func (c *child) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt)
	if err := <-c.exited; err != nil {
		fmt.Fprintln(os.Stderr, "bench: the relay ended with", err)
	}
	_ = os.RemoveAll(c.dir)
}

// peak is the largest resident memory so far, in MiB (VmHWM of /proc).
func (c *child) peak() float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(f[1], 64)
			return kib / 1024
		}
	}
	return 0
}

// cpu is user and system time so far; /proc counts in hundredths of a second.
func (c *child) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory drains a backlog of a million small events, then 2,000 of 2 MB, and shows the peaks.
func memory(ctx context.Context, s settings) error {
	for _, c := range []struct {
		what      string
		n, size   int
		env       []string
		topicSize string
	}{
		{"1,000,000 events of 300 B", 1_000_000, 300, nil, ""},
		{"2,000 events of 2 MB, GOMEMLIMIT=200MiB", 2_000, 2_000_000, []string{"GOMEMLIMIT=200MiB"}, "3000000"},
	} {
		peak, err := peakOf(ctx, s, c.n, c.size, c.env, c.topicSize)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		fmt.Printf("%-42s peak resident memory %.0f MiB\n", c.what, peak)
	}
	return nil
}

func peakOf(ctx context.Context, s settings, n, size int, env []string, topicSize string) (float64, error) {
	b, err := newBed(ctx, s.database)
	if err != nil {
		return 0, err
	}
	defer b.close()
	topic, remove, err := newTopic(ctx, s.kafka, "memory")
	if err != nil {
		return 0, err
	}
	defer remove()
	if topicSize != "" {
		if err := setTopic(ctx, s.kafka, topic, "max.message.bytes", topicSize); err != nil {
			return 0, err
		}
	}
	if err := b.fillIn(ctx, n, size, s.keys, topic); err != nil {
		return 0, err
	}
	c, err := startChild(ctx, b, s, env, "--until-drained")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(c.dir) }()
	var peak float64
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case <-tick.C:
			peak = max(peak, c.peak())
		case err := <-c.exited:
			if err != nil {
				return 0, err
			}
			got, err := b.sent(ctx)
			if err == nil && got != n {
				err = fmt.Errorf("%d of %d marked", got, n)
			}
			if err != nil {
				return 0, err
			}
			return peak, nil
		}
	}
}

// fillIn fills in chunks whose bytes stay within what the server takes in one statement.
func (b *bed) fillIn(ctx context.Context, n, size, keys int, topic string) error {
	step := max(1, min(n, 64<<20/size))
	for done := 0; done < n; done += step {
		if err := b.fill(ctx, min(step, n-done), size, keys, topic); err != nil {
			return err
		}
	}
	return nil
}

// idle shows the processor time of a relay with nothing to do.
func idle(ctx context.Context, s settings) error {
	b, err := newBed(ctx, s.database)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := startChild(ctx, b, s, nil)
	if err != nil {
		return err
	}
	defer c.stop()
	time.Sleep(5 * time.Second) // start-up is not idling
	before := c.cpu()
	const span = 20 * time.Second
	select {
	case <-time.After(span):
	case err := <-c.exited:
		return fmt.Errorf("the relay ended: %w", err)
	}
	used := c.cpu() - before
	fmt.Printf("idle for %s: %s of processor time, %.2f %% of a core\n", span, used, 100*used.Seconds()/span.Seconds())
	return nil
}
