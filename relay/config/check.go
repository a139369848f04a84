package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

// checker judges values that could be read: alone, then against each other.
type checker struct {
	*Loaded
	problems Problems
	unread   map[string]bool // keys that were reported already
}

// check returns what is wrong with the values of l; before are the problems of reading them.
func check(l *Loaded, o Options, before Problems) Problems {
	c := &checker{Loaded: l, unread: map[string]bool{}}
	for _, p := range before {
		c.unread[p.Key] = true
	}
	c.database()
	c.kafka(o.CheckKafka)
	c.outbox()
	c.columns()
	c.states()
	c.templates()
	c.record()
	c.relay()
	c.retry()
	c.claims()
	c.output()
	c.required(o.Require)
	return c.problems
}

// bad reports a key at the place its value came from, once.
func (c *checker) bad(path, reason, next string) {
	if c.unread[path] {
		return
	}
	where := c.Origin(path)
	if !where.given() {
		where = Origin{}
	}
	c.problems = append(c.problems, Problem{Where: where, Key: path, Reason: reason, Next: next})
}

// choice reports a value that is not one of those that this version knows. notYet holds, for those
// that the product names and this version lacks, what to do instead.
func (c *checker) choice(path, value string, known []string, missing map[string]string) {
	if slices.Contains(known, value) {
		return
	}
	if advice, ok := missing[value]; ok {
		c.bad(path, "this version does not have "+value, advice)
		return
	}
	last := len(known) - 1
	next := "use " + known[last]
	if last > 0 {
		next = "use " + strings.Join(known[:last], ", ") + " or " + known[last]
	}
	if near := Nearest(value, known); near != "" && near != value {
		next = "did you mean " + near + "?"
	}
	c.bad(path, show(value)+" is not known", next)
}

func within[T int | float64 | Size](c *checker, path string, value, low, high T) {
	if value < low || value > high {
		c.bad(path, fmt.Sprintf("%v is out of range", value), fmt.Sprintf("write %v to %v", low, high))
	}
}

func (c *checker) duration(path string, value, low, high time.Duration) {
	if value < low || value > high {
		c.bad(path, formatDuration(value)+" is out of range", "write "+formatDuration(low)+" to "+formatDuration(high))
	}
}

func (c *checker) database() {
	url := c.Database.URL.Reveal()
	if url == "" {
		return
	}
	u, reason := parseDatabaseURL(url)
	if reason != "" {
		c.bad("database.url", reason, "")
		return
	}
	if u.Scheme == "sqlite" {
		for path, set := range map[string]bool{"database.user": c.Database.User != "", "database.password": !c.Database.Password.Empty()} {
			if set {
				c.bad(path, "SQLite has no users", "leave it out")
			}
		}
	}
	if !c.Database.Password.Empty() && c.Database.User == "" && u.User.Username() == "" && u.Scheme != "sqlite" {
		c.bad("database.password", "has no user", "set database.user, or put the user into database.url")
	}
}

// kafka hands the properties to those who know them and puts their errors in place.
func (c *checker) kafka(judge func(map[string]string) error) {
	if judge == nil || len(c.Kafka) == 0 {
		return
	}
	for _, err := range flatten(judge(c.Kafka.Reveal())) {
		var setup *relay.SetupError
		if errors.As(err, &setup) && strings.HasPrefix(setup.Thing, "kafka.") {
			if setup.Thing == "kafka.bootstrap.servers" && c.Kafka["bootstrap.servers"].Empty() {
				continue // whether it is needed, required decides
			}
			c.bad(setup.Thing, setup.Reason, setup.Fix)
			continue
		}
		c.bad("kafka", err.Error(), "")
	}
}

// flatten opens joined errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

func (c *checker) outbox() {
	c.choice("outbox.preset", c.Outbox.Preset, Presets(), map[string]string{
		"debezium": "its table has no column that tells the order; add one and map the table with outbox.table and outbox.columns",
	})
	if reason := topicTrouble(c.Outbox.Name); reason != "" {
		c.bad("outbox.name", "names a control topic and "+reason, "")
	} else if len(c.Outbox.Name) > 200 {
		c.bad("outbox.name", "is longer than 200 characters", "")
	}
	if _, err := outbox.SplitTable(c.Outbox.Table); err != nil {
		c.bad("outbox.table", err.Error(), "")
	}
	if zone := c.Outbox.TimeZone; zone != "" {
		if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
			c.bad("outbox.time_zone", show(zone)+" is not a zone of the IANA database", "write for example UTC or Asia/Shanghai")
		}
	}
}

// topicTrouble says why a name cannot be a topic, by the rule that the relay goes by, or "".
func topicTrouble(name string) string {
	t, err := relay.ParseTemplate(name)
	if err != nil {
		return err.Error()
	}
	letter := "a" // stands for whatever the event will bring
	sample := &relay.Event{AggregateType: letter, AggregateID: letter, Type: letter, Key: &letter}
	if _, failure := (&relay.Router{Default: t}).Route(sample); failure != nil {
		return failure.Text
	}
	return ""
}

func (c *checker) record() {
	c.choice("record.profile", c.Record.Profile, []string{"postrider"}, map[string]string{
		"debezium":               "write profile: postrider",
		"cloudevents-binary":     "write profile: postrider",
		"cloudevents-structured": "write profile: postrider",
	})
	c.choice("record.envelope", string(c.Record.Envelope), []string{string(relay.EnvelopeNone), string(relay.EnvelopeJSON)}, nil)
	for i, name := range c.Record.Headers.Deny {
		if name == "" {
			c.bad(fmt.Sprintf("record.headers.deny[%d]", i), "is empty", "name a header")
		}
	}
}

func (c *checker) output() {
	c.choice("log.level", c.Log.Level, []string{"debug", "info", "warn", "error"}, nil)
	c.choice("log.format", c.Log.Format, []string{"auto", "json", "text"}, nil)
	if c.HTTP.Listen == Off {
		return
	}
	_, port, err := net.SplitHostPort(c.HTTP.Listen)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil || n < 0 || n > 65535 {
		c.bad("http.listen", show(c.HTTP.Listen)+" is not an address", "write host:port, for example 127.0.0.1:8080 or :8080, or off")
	}
}

// required reports keys that the command at hand cannot do without.
func (c *checker) required(paths []string) {
	for _, path := range paths {
		name, isProperty := strings.CutPrefix(path, "kafka.")
		missing := false
		switch {
		case isProperty:
			missing = c.Kafka[name].Empty()
		case path == "database.url":
			missing = c.Database.URL.Empty()
		}
		if k, ok := findKey(path); missing && ok && !c.unread["kafka"] && !c.unread["database"] {
			c.bad(path, "is not set", "set it in the file, as "+k.variable()+" or with --set "+path+"=…")
		}
	}
}
