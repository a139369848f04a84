package main

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/relay/config"
)

// configFlags are the flags that say what the configuration is.
type configFlags struct {
	file             string
	set              []string
	databaseURL      string
	bootstrapServers string
}

func (f *configFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.file, "config", "c", "", "configuration file; - is stdin (POSTRIDER_CONFIG)")
	flags.StringArrayVar(&f.set, "set", nil, "set one key: --set relay.batch=500; may be repeated")
	flags.StringVar(&f.databaseURL, "database-url", "", "database.url; a password in it wins over the variables, but keep passwords in POSTRIDER_DATABASE_PASSWORD or a file named by POSTRIDER_DATABASE_PASSWORD_FILE, since others see command lines")
	flags.StringVar(&f.bootstrapServers, "bootstrap-servers", "", "kafka.bootstrap.servers")
}

// keys that a verb may need.
const (
	needDatabase = "database.url"
	needKafka    = "kafka.bootstrap.servers"
)

// load reads the configuration of a verb that needs the given keys. Notices go to stderr.
func (c *cli) load(need ...string) (*config.Loaded, error) {
	options, err := c.configOptions()
	if err != nil {
		return nil, err
	}
	options.Require = need
	loaded, err := config.Load(options)
	if err != nil {
		return nil, err
	}
	for _, notice := range loaded.Notices {
		c.talk("postrider: %s", notice)
	}
	return loaded, nil
}

// loadConfig reads the configuration of a verb that works on the outbox table; need adds keys to
// needDatabase.
func (c *cli) loadConfig(need ...string) (*config.Config, error) {
	loaded, err := c.load(append(need, needDatabase)...)
	if err != nil {
		return nil, err
	}
	return &loaded.Config, nil
}

func (c *cli) configOptions() (config.Options, error) {
	f := &c.config
	o := config.Options{File: f.file, Stdin: c.in, Environ: c.environ, CheckKafka: checkKafka}
	if o.File == "" {
		o.File = c.getenv("POSTRIDER_CONFIG")
	}
	o.Hostname, _ = os.Hostname()
	for _, entry := range f.set {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return o, &usageError{thing: "--set", reason: "has no key and value", next: "write --set KEY=VALUE, for example --set relay.batch=500"}
		}
		o.Flags = append(o.Flags, config.Flag{Name: "--set " + key, Key: key, Value: value})
	}
	if f.databaseURL != "" {
		o.Flags = append(o.Flags, config.Flag{Name: "--database-url", Key: needDatabase, Value: f.databaseURL})
	}
	if f.bootstrapServers != "" {
		o.Flags = append(o.Flags, config.Flag{Name: "--bootstrap-servers", Key: needKafka, Value: f.bootstrapServers})
	}
	return o, nil
}

// getenv returns a variable of the process, as the last of its name has it.
func (c *cli) getenv(name string) string {
	value := ""
	for _, entry := range c.environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}
