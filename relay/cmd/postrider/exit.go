package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = int(relay.SetupUsage)
	exitFindings    = 3
	exitNotFound    = int(relay.SetupNotFound)
	exitConflict    = int(relay.SetupConflict)
	exitUnreachable = int(relay.SetupUnreachable)
	exitPermission  = int(relay.SetupPermission)
)

// codeError is an error with an exit code of its own.
type codeError struct {
	code int
	err  error // nil: the command has said everything already
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// withCode gives err an exit code; a nil err ends with the code silently.
func withCode(code int, err error) error { return &codeError{code: code, err: err} }

// usageError is a command line that cannot be carried out.
type usageError struct{ thing, reason, next string }

func (e *usageError) Error() string {
	s := e.thing + ": " + e.reason
	if e.next != "" {
		s += "; " + e.next
	}
	return s
}

// timeoutError is the cause of a context that --timeout ended.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("--timeout: not done within %s; give it longer or look at what it waits for", e.limit)
}

// report prints err, one line a problem, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	var coded *codeError
	if errors.As(err, &coded) && coded.err == nil {
		return code
	}
	for _, line := range strings.Split(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintln(w, "postrider: "+line)
	}
	return code
}

// exitCode finds the code of the innermost error that states one.
func exitCode(err error) int {
	var coded *codeError
	var usage *usageError
	var problems config.Problems
	setup := relay.AsSetup(err)
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage), errors.As(err, &problems):
		return exitUsage
	case setup != nil && setup.Kind > 0:
		return int(setup.Kind)
	default:
		return exitFailed
	}
}

// because replaces the bare end of a context by what ended it (--timeout, a signal).
func because(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || relay.AsSetup(err) != nil {
		return err
	}
	var limit *timeoutError
	if errors.As(context.Cause(ctx), &limit) {
		return limit
	}
	return err
}

var flagName = regexp.MustCompile(`--?[a-zA-Z][a-zA-Z-]*`)

// flagError turns pflag's errors into usage errors, names the nearest flag, and never repeats a
// value: --database-url holds a secret.
func flagError(cmd *cobra.Command, err error) error {
	next := "see " + cmd.CommandPath() + " --help"
	var missing *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var needs *pflag.ValueRequiredError
	switch {
	case errors.As(err, &missing):
		name := missing.GetSpecifiedName()
		if near := nearestFlag(cmd, name); near != "" {
			next = "did you mean --" + near + "?"
		}
		return &usageError{thing: dashed(name), reason: "unknown flag", next: next}
	case errors.As(err, &invalid):
		return &usageError{thing: "--" + invalid.GetFlag().Name, reason: "not a " + kindOf(invalid.GetFlag()), next: next}
	case errors.As(err, &needs):
		return &usageError{thing: "--" + needs.GetFlag().Name, reason: "needs a value", next: next}
	default:
		thing := flagName.FindString(err.Error())
		if thing == "" {
			thing = "flags"
		}
		return &usageError{thing: thing, reason: "cannot be read", next: next}
	}
}

// kindOf says for people what a flag takes.
func kindOf(f *pflag.Flag) string {
	switch kind := f.Value.Type(); kind {
	case "float64":
		return "number"
	case "int":
		return "whole number"
	case "duration":
		return "duration such as 10s or 5m"
	default:
		return kind
	}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return config.Nearest(name, names)
}

// args wraps one of cobra's argument checks so that its error is a usage error. It does not repeat
// the arguments: a URL with its password may have been put there.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		err := &usageError{thing: cmd.CommandPath(), reason: "does not take these arguments", next: "usage: " + cmd.UseLine()}
		switch {
		case len(args) == 0:
			err.reason = "needs an argument"
		case !strings.ContainsAny(cmd.Use, " "):
			err.reason = "takes no arguments"
		}
		return err
	}
}
