package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// cli is what every verb shares: the streams, the environment and the flags of the root command.
type cli struct {
	in          io.Reader
	out, errOut io.Writer
	environ     []string

	format  string        // -o; checked by outputFormat
	timeout time.Duration // --timeout; 0: no limit
	config  configFlags

	stop context.CancelFunc // releases the timer of --timeout
}

// newRoot builds the command tree. A verb is one function func(*cli) *cobra.Command in a file of its
// own, listed here.
func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "postrider",
		Short: "Bring committed outbox events to Kafka",
		Long: "postrider reads the events that services write into an outbox table in their own\n" +
			"transactions, writes them to Kafka and marks them.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 findings, 4 not found,\n" +
			"5 conflict, 6 a server does not answer, 7 permission.",
		Example:           "  postrider config init postrider.yaml\n  postrider schema apply -c postrider.yaml\n  postrider run -c postrider.yaml",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.startTimer(cmd) },
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.errOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	flags := root.PersistentFlags()
	flags.SortFlags = false
	c.config.register(flags)
	flags.StringVarP(&c.format, "output", "o", "", "form of the data on stdout: table or json, and what the command adds")
	flags.DurationVar(&c.timeout, "timeout", 0, "give up after this long; 0 is no limit")

	root.AddCommand(
		demoCommand(c),
		runCommand(c),
		statusCommand(c),
		eventsCommand(c),
		schemaCommand(c),
		configCommand(c),
		versionCommand(c),
		completionCommand(c),
	)
	group(root)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Example = "  postrider help config init"
		}
	}
	return root
}

var plainWord = regexp.MustCompile(`^[a-zA-Z-]{1,32}$`)

// group makes cmd a command that only holds others: alone it shows its help, an unknown name is an
// error that suggests the nearest. It applies to the groups below cmd too.
func group(cmd *cobra.Command) {
	if !cmd.HasSubCommands() {
		return
	}
	cmd.SuggestionsMinimumDistance = 3
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		err := &usageError{thing: cmd.CommandPath(), reason: "unknown command", next: "see " + cmd.CommandPath() + " --help"}
		if plainWord.MatchString(args[0]) { // anything else may be a URL with its password
			err.thing = args[0]
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err.next = "did you mean " + cmd.CommandPath() + " " + strings.Join(near, " or ") + "?"
		}
		return err
	}
	for _, sub := range cmd.Commands() {
		group(sub)
	}
}

// startTimer puts the limit of --timeout on the command's context.
func (c *cli) startTimer(cmd *cobra.Command) error {
	if c.timeout < 0 {
		return &usageError{thing: "--timeout", reason: "cannot be negative", next: "give a duration such as 30s"}
	}
	if c.timeout == 0 {
		return nil
	}
	ctx, stop := context.WithTimeoutCause(cmd.Context(), c.timeout, &timeoutError{limit: c.timeout})
	c.stop = stop
	cmd.SetContext(ctx)
	return nil
}

func (c *cli) stopTimer() {
	if c.stop != nil {
		c.stop()
	}
}

// talk prints a line for people on stderr.
func (c *cli) talk(format string, args ...any) {
	fmt.Fprintf(c.errOut, format+"\n", args...)
}
