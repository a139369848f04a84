package main

import (
	"github.com/spf13/cobra"
)

func completionCommand(c *cli) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print the script that completes commands and flags in your shell",
		Example: "  source <(postrider completion bash)\n" +
			"  postrider completion zsh > \"${fpath[1]}/_postrider\"\n" +
			"  postrider completion fish > ~/.config/fish/completions/postrider.fish",
		ValidArgs: shells,
		Args:      args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		RunE: func(cmd *cobra.Command, shell []string) error {
			root := cmd.Root()
			switch shell[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			default:
				return root.GenPowerShellCompletionWithDesc(c.out)
			}
		},
	}
}
