package relay

import (
	"fmt"
	"strings"
)

// Route sends the events it matches to a topic. The first route that matches decides.
type Route struct {
	AggregateType string // exact; empty matches any
	EventType     string // exact; empty matches any
	Topic         Template
	// Key is the record's key; the zero Template keeps the row's (message_key, else aggregate_id).
	// Gates and order follow the row's key, so a Key should not join what the rows keep apart.
	Key Template
	// Partition is an explicit partition; nil: by key. It means the route's Topic, and is not applied to
	// an event whose row names another.
	Partition *int32
}

// Router chooses topic, key and partition of an event: the row's own topic, else the first matching
// route, else the default template.
type Router struct {
	Routes  []Route
	Default Template // for events that no route matches; see DefaultTopic
}

// DefaultTopic is the default topic template.
const DefaultTopic = "${aggregate_type}-events"

// Destination is where a record goes.
type Destination struct {
	Topic     string
	Key       *string
	Partition *int32
}

// Route returns the event's destination, or a permanent failure when it has none.
func (r *Router) Route(e *Event) (Destination, *Failure) {
	d := Destination{Topic: e.Topic, Key: e.Key}
	if route := r.match(e); route != nil {
		if d.Topic == "" || route.Topic.Empty() {
			d.Partition = route.Partition
		}
		if d.Topic == "" {
			d.Topic = route.Topic.Expand(e)
		}
		if !route.Key.Empty() {
			k := route.Key.Expand(e)
			d.Key = &k
		}
	}
	if d.Topic == "" {
		d.Topic = r.Default.Expand(e)
	}
	if reason := illegalTopic(d.Topic); reason != "" {
		return d, &Failure{Class: ClassPermanent, Code: "INVALID_TOPIC_EXCEPTION",
			Text: fmt.Sprintf("topic %q %s", clip(d.Topic, 64), reason),
			Hint: "set the row's topic or a route for this event type, then retry the event"}
	}
	return d, nil
}

func (r *Router) match(e *Event) *Route {
	for i := range r.Routes {
		route := &r.Routes[i]
		if (route.AggregateType == "" || route.AggregateType == e.AggregateType) &&
			(route.EventType == "" || route.EventType == e.Type) {
			return route
		}
	}
	return nil
}

// illegalTopic says what is wrong with a topic name by Kafka's rule (letters, digits, '.', '_', '-',
// 1 to 249 of them, not "." or ".."), or "".
func illegalTopic(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > 249:
		return "is longer than 249 characters"
	case name == "." || name == "..":
		return "is reserved"
	}
	for _, c := range name {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return fmt.Sprintf("holds %q, Kafka allows letters, digits, '.', '_' and '-'", c)
		}
	}
	return ""
}

// Template is text with ${name} variables, parsed once. The zero Template expands to "".
type Template struct {
	text  string
	parts []part
}

type part struct {
	text     string
	variable string // empty: text
}

// TemplateVariables are the names a Template may use.
var TemplateVariables = []string{"aggregate_type", "aggregate_id", "event_type", "message_key"}

// ParseTemplate reads a template such as "${aggregate_type}-events". Unknown variables and an
// unclosed "${" are errors that name them.
func ParseTemplate(text string) (Template, error) {
	t := Template{text: text}
	rest := text
	for {
		before, after, found := strings.Cut(rest, "${")
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !found {
			return t, nil
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return Template{}, fmt.Errorf("template %q: \"${\" is not closed by \"}\"", text)
		}
		if !knownVariable(name) {
			return Template{}, fmt.Errorf("template %q: unknown variable ${%s}, use one of ${%s}",
				text, name, strings.Join(TemplateVariables, "}, ${"))
		}
		t.parts = append(t.parts, part{variable: name})
		rest = tail
	}
}

// MustTemplate is ParseTemplate for text that is known to be good; it panics otherwise.
func MustTemplate(text string) Template {
	t, err := ParseTemplate(text)
	if err != nil {
		panic(err)
	}
	return t
}

func knownVariable(name string) bool {
	for _, v := range TemplateVariables {
		if v == name {
			return true
		}
	}
	return false
}

// String returns the template as written.
func (t Template) String() string { return t.text }

// Empty says whether the template is the zero Template.
func (t Template) Empty() bool { return len(t.parts) == 0 }

// Static returns the template's text and true when it has no variables.
func (t Template) Static() (string, bool) {
	for _, p := range t.parts {
		if p.variable != "" {
			return "", false
		}
	}
	return t.text, t.text != ""
}

// Expand fills the variables from the event.
func (t Template) Expand(e *Event) string {
	if len(t.parts) == 1 && t.parts[0].variable == "" {
		return t.parts[0].text
	}
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.text)
		switch p.variable {
		case "aggregate_type":
			b.WriteString(e.AggregateType)
		case "aggregate_id":
			b.WriteString(e.AggregateID)
		case "event_type":
			b.WriteString(e.Type)
		case "message_key":
			if e.Key != nil {
				b.WriteString(*e.Key)
			}
		}
	}
	return b.String()
}

// clip shortens a name for an error text at a rune boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
