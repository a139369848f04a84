package config

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
)

// templates checks routes and the default topic.
func (c *checker) templates() {
	c.template("topic", c.Topic, true)
	catchAll := -1
	seen := map[Match]int{}
	for i, r := range c.Routes {
		path := fmt.Sprintf("routes[%d]", i)
		if r.Topic == "" && !c.unread[path+".topic"] {
			c.bad(path, "has no topic", "write topic: NAME beside match")
		} else {
			c.template(path+".topic", r.Topic, true)
		}
		c.template(path+".key", r.Key, false)
		if r.Partition != nil && *r.Partition < 0 {
			c.bad(path+".partition", "cannot be negative", "leave it out to let the key decide")
		}
		first, again := seen[r.Match]
		switch {
		case catchAll >= 0:
			c.bad(path, fmt.Sprintf("is never reached: routes[%d] matches every event", catchAll), "move it up")
		case again:
			c.bad(path, fmt.Sprintf("is never reached: routes[%d] matches the same events", first), "keep one")
		default:
			seen[r.Match] = i
		}
		if r.Match == (Match{}) && catchAll < 0 {
			catchAll = i
		}
	}
}

// template checks a template's syntax, its variables against the columns, and a topic's letters.
func (c *checker) template(path, text string, topic bool) {
	for _, name := range variables(text) {
		if !c.variable(path, name) {
			return
		}
	}
	if _, err := relay.ParseTemplate(text); err != nil {
		c.bad(path, err.Error(), "")
		return
	}
	if topic {
		if reason := topicTrouble(text); reason != "" {
			c.bad(path, reason, "")
		}
	}
}

// variable checks one name and says whether it is good.
func (c *checker) variable(path, name string) bool {
	t := c.Outbox.Columns
	column, known := map[string]string{
		"aggregate_type": t.AggregateType, "aggregate_id": t.AggregateID,
		"event_type": t.EventType, "message_key": t.MessageKey + t.AggregateID,
	}[name]
	if !known {
		next := "use ${" + strings.Join(relay.TemplateVariables, "}, ${") + "}"
		if near := Nearest(name, relay.TemplateVariables); near != "" {
			next = "did you mean ${" + near + "}?"
		}
		c.bad(path, "unknown variable ${"+showKey(name)+"}", next)
		return false
	}
	if column == "" {
		c.bad(path, "uses ${"+name+"}, but the table has no such column", "name outbox.columns."+name+" or write the topic without it")
		return false
	}
	return true
}

// variables lists the names between "${" and "}".
func variables(text string) []string {
	var names []string
	for {
		_, rest, found := strings.Cut(text, "${")
		name, tail, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return names
		}
		names = append(names, name)
		text = tail
	}
}
