package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version string

// build is what `postrider version` says.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // the commit, "-dirty" behind it when there were changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildInfo reads what the Go tool stamped into the binary.
func buildInfo() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if b.Version == "" {
		b.Version = "devel"
		if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
	}
	if !ok {
		return b
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if b.Revision != "" {
		b.Revision += dirty
	}
	return b
}

func versionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  postrider version\n  postrider version -o json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			b := buildInfo()
			return c.print(b, func(t *table) {
				t.row("version", b.Version)
				if b.Revision != "" {
					t.row("revision", b.Revision)
				}
				t.row("go", b.Go)
				t.row("platform", b.Platform)
			})
		},
	}
}
