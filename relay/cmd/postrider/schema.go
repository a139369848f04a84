package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/app"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/schema"
)

func schemaCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print or apply the tables, or compare them with the database",
		Example: "  postrider schema print --dialect postgres | psql shop\n  postrider schema apply -c postrider.yaml\n" +
			"  postrider schema status --database-url postgres://app@localhost:5432/shop",
	}
	cmd.AddCommand(schemaPrint(c), schemaApply(c), schemaStatus(c))
	return cmd
}

const dialects = "postgres, mysql, mariadb or sqlite"

func schemaPrint(c *cli) *cobra.Command {
	var dialect string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL of the tables",
		Long:  "Prints the SQL for the database's own client or a migration tool. The dialect is that of\n--dialect, or of database.url.",
		Example: "  postrider schema print --dialect mysql > V7__postrider.sql\n" +
			"  postrider schema print -c postrider.yaml",
		Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			format, err := c.outputFormat("sql", "json")
			if err != nil {
				return err
			}
			d, err := c.dialect(dialect)
			if err != nil {
				return err
			}
			text := schema.Print(d)
			if format == "json" {
				return printJSON(c.out, map[string]any{"dialect": d, "version": schema.Latest(d), "sql": text})
			}
			_, err = io.WriteString(c.out, text)
			return err
		},
	}
	dialectFlag(cmd, &dialect)
	return cmd
}

func dialectFlag(cmd *cobra.Command, dialect *string) {
	cmd.Flags().StringVar(dialect, "dialect", "", dialects+"; by default what database.url says")
	_ = cmd.RegisterFlagCompletionFunc("dialect",
		cobra.FixedCompletions([]string{"postgres", "mysql", "mariadb", "sqlite"}, cobra.ShellCompDirectiveNoFileComp))
}

// dialect returns the named dialect, or that of the configured database.
func (c *cli) dialect(name string) (outbox.Dialect, error) {
	if name != "" {
		return parseDialect(name)
	}
	loaded, err := c.load(needDatabase)
	if err != nil {
		return "", err
	}
	return urlDialect(loaded)
}

func parseDialect(name string) (outbox.Dialect, error) {
	d, err := outbox.ParseDialect(name)
	if err != nil {
		return "", &usageError{thing: "--dialect", reason: "no such dialect", next: "use " + dialects}
	}
	return d, nil
}

func urlDialect(cfg *config.Loaded) (outbox.Dialect, error) {
	scheme, _, _ := strings.Cut(cfg.DatabaseURL(), ":")
	return parseDialect(strings.Replace(scheme, "postgresql", "postgres", 1))
}

func schemaApply(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "apply",
		Short: "Create the tables, or bring them up to date",
		Long: "Brings the tables in database.url up to this version's, and makes those again that were dropped. It\n" +
			"may run twice, and from several places at once. Where a right is missing it says which.",
		Example: "  postrider schema apply -c postrider.yaml\n  postrider schema apply --database-url sqlite:shop.db",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, d, err := c.database(cmd.Context(), app.CreateFile)
			if err != nil {
				return err
			}
			defer db.Close()
			applied, err := schema.Apply(cmd.Context(), db, d)
			if err != nil {
				return because(cmd.Context(), schemaError(err))
			}
			if len(applied) == 0 {
				c.talk("the tables are up to date")
			}
			result := map[string]any{"dialect": d, "version": schema.Latest(d), "applied": append([]string{}, applied...)}
			return c.print(result, func(t *table) {
				for _, name := range applied {
					t.row("applied", name)
				}
			})
		},
	}
}

func schemaStatus(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Compare the tables in the database with this version's",
		Long:    "Says which version of the tables is installed and what is missing; it changes nothing.\nExit code 3 when something is missing.",
		Example: "  postrider schema status -c postrider.yaml\n  postrider schema status --database-url mysql://app@localhost:3306/shop -o json",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, d, err := c.database(cmd.Context(), app.ExistingFile)
			if err != nil {
				return err
			}
			defer db.Close()
			state, err := schema.Status(cmd.Context(), db, d)
			if err != nil {
				return because(cmd.Context(), schemaError(err))
			}
			err = c.print(state, func(t *table) {
				t.row("installed", state.Installed)
				t.row("latest", state.Latest)
				for _, name := range state.Missing {
					t.row("missing", name)
				}
			})
			if err != nil || state.Complete() {
				return err
			}
			c.talk("something is missing; next: postrider schema apply")
			return withCode(exitFindings, nil)
		},
	}
}

// database connects to database.url for the verbs that work on tables rather than events.
func (c *cli) database(ctx context.Context, mode app.FileMode) (*sql.DB, outbox.Dialect, error) {
	loaded, err := c.load(needDatabase)
	if err != nil {
		return nil, "", err
	}
	d, err := urlDialect(loaded)
	if err != nil {
		return nil, "", err
	}
	db, err := app.OpenDatabase(ctx, loaded.DatabaseURL(), mode)
	return db, d, because(ctx, err)
}

// schemaError gives the library's errors their exit codes.
func schemaError(err error) error {
	var right *schema.PermissionError
	var conflict *schema.ConflictError
	var incomplete *schema.IncompleteError
	switch {
	case errors.As(err, &right):
		return &relay.SetupError{Kind: relay.SetupPermission, Thing: "schema", Reason: right.Error(), Err: right}
	case errors.As(err, &conflict):
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: "schema", Reason: conflict.Error(), Err: conflict}
	case errors.As(err, &incomplete):
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: "schema", Reason: incomplete.Error(), Err: incomplete}
	default:
		return fmt.Errorf("database: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
}
