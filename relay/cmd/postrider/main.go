// Command postrider brings committed outbox events to Kafka and shows what it does. This package
// owns the command line: one file a verb, flags, output, exit codes. It knows nothing of how the
// relay works.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // outbox.time_zone works on images without a zone database.
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	// SIGHUP is what a terminal sends when it is closed.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		// The first signal asks for an orderly end. From then on signals act as usual, so that a second one cuts:
		// also when it comes as soon as anybody can see the first one's effect.
		<-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		stop()
	}()
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns the exit code. It is main without the process: ctx ends
// with the first signal.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &cli{in: in, out: out, errOut: errOut, environ: os.Environ()}
	root := newRoot(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	c.stopTimer()
	return report(errOut, err)
}
