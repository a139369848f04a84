package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// TestCommands holds what every command has: a short text, an example that begins with the program's
// name and, for verbs, the checks of arguments that give usage errors.
func TestCommands(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		require.NotEmpty(t, cmd.Short, name)
		require.NotEqual(t, ".", cmd.Short[len(cmd.Short)-1:], name)
		require.Contains(t, cmd.Example, "postrider", name)
		require.True(t, strings.HasPrefix(cmd.Example, "  "), name)
		if cmd.Name() != "help" {
			require.True(t, cmd.Runnable(), name)
			require.True(t, cmd.Args != nil || strings.Contains(cmd.Use, "…"), "%s checks its arguments with args(), or takes any number", name)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&cli{out: &bytes.Buffer{}, errOut: &bytes.Buffer{}}))
}

// TestConfigPrint_MasksKafkaSecrets holds that each property that the Kafka client calls a secret is
// masked when the configuration is printed, and that no property's name is mistaken for a variable
// that names a file.
func TestConfigPrint_MasksKafkaSecrets(t *testing.T) {
	t.Parallel()
	for _, p := range kafka.Properties() {
		require.False(t, p.Kind == kafka.Applied && strings.HasSuffix(p.Name, ".file"), p.Name)
		require.Equal(t, strings.ToLower(p.Name), p.Name)
		require.NotContains(t, p.Name, "_")
		if !p.Secret {
			continue
		}
		l, err := config.Load(config.Options{Environ: []string{"POSTRIDER_KAFKA_" + strings.ToUpper(strings.ReplaceAll(p.Name, ".", "_")) + "=hunter2"}})
		require.NoError(t, err)
		require.Equal(t, "hunter2", l.Kafka[p.Name].Reveal())
		for _, form := range []string{"yaml", "json", "table"} {
			var out bytes.Buffer
			require.NoError(t, printConfig(&out, l, form, true))
			require.NotContains(t, out.String(), "hunter2", "%s as %s", p.Name, form)
			require.Contains(t, out.String(), p.Name)
		}
	}
}
