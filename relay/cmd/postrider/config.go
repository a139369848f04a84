package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
)

func configCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print, validate and begin a configuration",
		Long: "A configuration comes from a YAML file (-c), from POSTRIDER_ variables and from flags.\n" +
			"Flags win over variables, variables over the file. Secrets can also be in files of their\n" +
			"own, named by POSTRIDER_DATABASE_URL_FILE and the like.",
		Example: "  postrider config init postrider.yaml\n  postrider config validate -c postrider.yaml\n  postrider config print -c postrider.yaml --origin",
	}
	cmd.AddCommand(configPrint(c), configValidate(c), configInit(c))
	return cmd
}

func configPrint(c *cli) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:     "print",
		Short:   "Print the configuration in effect, secrets masked",
		Long:    "Prints every key with the value in effect: presets and defaults are filled in. The forms of\n-o are yaml (default), json and table.",
		Example: "  postrider config print -c postrider.yaml\n  POSTRIDER_RELAY_BATCH=500 postrider config print --origin -o table",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			format, err := c.outputFormat("yaml", "json", "table")
			if err != nil {
				return err
			}
			loaded, err := c.load()
			if err != nil {
				return err
			}
			return printConfig(c.out, loaded, format, origin)
		},
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "say where each value came from")
	return cmd
}

func printConfig(w io.Writer, loaded *config.Loaded, format string, origin bool) error {
	switch format {
	case "json":
		if !origin {
			return printJSON(w, loaded.JSON())
		}
		origins := map[string]string{}
		for _, e := range loaded.Entries() {
			origins[e.Key] = e.Origin.String()
		}
		return printJSON(w, map[string]any{"config": loaded.JSON(), "origins": origins})
	case "table":
		t := newTable(w)
		header := []string{"KEY", "VALUE"}
		if origin {
			header = append(header, "ORIGIN")
		}
		t.header(header...)
		for _, e := range loaded.Entries() {
			cells := []any{e.Key, e.Value}
			if origin {
				cells = append(cells, e.Origin)
			}
			t.row(cells...)
		}
		return t.flush()
	default:
		_, err := io.WriteString(w, loaded.YAML(origin))
		return err
	}
}

// finding is one problem as `config validate -o json` shows it.
type finding struct {
	Where  string `json:"where,omitempty"`
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
	Next   string `json:"next,omitempty"`
}

func configValidate(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration that `run` would use",
		Long: "Checks file, variables and flags without connecting to anything and reports every problem\n" +
			"with its place. Exit code 3 when there is one.",
		Example: "  postrider config validate -c postrider.yaml\n  postrider config validate -c postrider.yaml -o json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			loaded, err := c.load(needDatabase, needKafka)
			var problems config.Problems
			if err != nil && !errors.As(err, &problems) {
				return err
			}
			if loaded != nil {
				for _, notice := range kafkaNotices(loaded) {
					c.talk("postrider: %s", notice)
				}
			}
			return c.printFindings(problems)
		},
	}
}

func (c *cli) printFindings(problems config.Problems) error {
	findings := make([]finding, len(problems))
	for i, p := range problems {
		findings[i] = finding{Where: p.Where.String(), Key: p.Key, Reason: p.Reason, Next: p.Next}
	}
	result := map[string]any{"valid": len(findings) == 0, "problems": findings}
	err := c.print(result, func(t *table) {
		for _, p := range problems {
			t.row(p.Error())
		}
	})
	switch {
	case err != nil:
		return err
	case len(findings) == 0:
		c.talk("the configuration is valid")
		return nil
	default:
		return withCode(exitFindings, nil)
	}
}

func configInit(c *cli) *cobra.Command {
	var preset string
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration to begin with",
		Long: "Writes a file with what must be set and every other key as a comment with its default.\n" +
			"Without FILE it goes to stdout. A file that exists is never overwritten.",
		Example: "  postrider config init postrider.yaml\n  postrider config init --preset article-mysql > postrider.yaml",
		Args:    args(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, files []string) error {
			text, err := config.Template(preset)
			if err != nil {
				return &usageError{thing: "--preset", reason: err.Error()}
			}
			if len(files) == 0 {
				_, err = io.WriteString(c.out, text)
				return err
			}
			if err := writeNew(files[0], text); err != nil {
				return err
			}
			c.talk("wrote %s; next: set database.url and kafka in it, then postrider config validate -c %s", files[0], shellWord(files[0]))
			return nil
		},
	}
	cmd.Flags().StringVar(&preset, "preset", config.DefaultPreset, "the table to start from")
	_ = cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(config.Presets(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeNew writes a file that does not exist yet. It may come to hold secrets, so it is the owner's.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, os.ErrExist):
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: name, Reason: "exists already", Fix: "name another file, or remove it"}
	case errors.Is(err, os.ErrPermission):
		return &relay.SetupError{Kind: relay.SetupPermission, Thing: name, Reason: "this user may not write here", Fix: "name a file elsewhere"}
	case errors.Is(err, os.ErrNotExist):
		return &relay.SetupError{Kind: relay.SetupNotFound, Thing: name, Reason: "its directory does not exist", Fix: "make it, or name a file elsewhere"}
	case err != nil:
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// shellWord writes a name so that a shell takes it as one word.
func shellWord(name string) string {
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) && r < utf8.RuneSelf }) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=+,:@%"
