package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config is a checked set of Kafka client properties. Get one from Parse: the zero value names no
// broker. It holds secrets, and shows none when it is printed or marshalled.
type Config struct {
	Seeds       []string // bootstrap.servers, host:port
	ClientID    string   // client.id
	Compression string   // compression.type: none, gzip, snappy, lz4, zstd
	Protocol    string   // security.protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	Mechanism   string   // sasl.mechanism in force; empty without SASL
	InstanceID  string   // group.instance.id; empty for a member that leaves the group when it stops

	// MaxRequestSize is max.request.size in bytes: no record larger than it is sent. 0 when it is not
	// set: then each topic's own max.message.bytes is the limit.
	MaxRequestSize int
	// BufferMemory is buffer.memory in bytes: while records of earlier writes that were not answered
	// hold more than this, new ones are not taken.
	BufferMemory int64

	levels          map[string]int // compression.*.level by codec
	requestTimeout  time.Duration
	dialTimeout     time.Duration
	retryBackoff    time.Duration
	retryBackoffMax time.Duration
	metadataMaxAge  time.Duration
	connIdle        time.Duration
	sendBuffer      int // bytes; 0 leaves it to the operating system
	receiveBuffer   int
	telemetry       bool

	consumerProtocol bool // group.protocol: consumer

	tls  tlsSettings
	sasl saslSettings
}

// Problem is a property that cannot be used as it stands.
type Problem struct {
	Property string // its name as given, or the name of the one that is missing
	Reason   string // never holds the value of a secret
	Fix      string // the next step; may be empty
}

// Error is one line: property, reason, next step.
func (p Problem) Error() string {
	s := p.Property + ": " + p.Reason
	if p.Fix != "" {
		s += "; " + p.Fix
	}
	return s
}

// Notice is a property that was accepted and has no effect here, with the reason.
type Notice struct {
	Property string
	Text     string
}

// String is one line.
func (n Notice) String() string { return n.Property + ": " + n.Text }

// Parse reads the Java client's property names. It reports every problem at once, in the order of the
// names; the Config is usable when there is none. Files that properties name (keys, certificates,
// tokens) are read to check them.
func Parse(props map[string]string) (Config, []Problem, []Notice) {
	p := parser{given: props, cfg: defaultConfig()}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		p.property(name, strings.TrimSpace(props[name]))
	}
	p.finish()
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return strings.Compare(a.Property, b.Property) })
	return p.cfg, p.problems, p.notices
}

func defaultConfig() Config {
	return Config{
		ClientID:        "postrider",
		Compression:     "none",
		Protocol:        "PLAINTEXT",
		BufferMemory:    32 << 20,
		requestTimeout:  20 * time.Second,
		dialTimeout:     5 * time.Second,
		retryBackoff:    100 * time.Millisecond,
		retryBackoffMax: time.Second,
		metadataMaxAge:  5 * time.Minute,
		connIdle:        9 * time.Minute,
		tls:             tlsSettings{verifyHost: true},
	}
}

// parser is one call of Parse.
type parser struct {
	given    map[string]string
	cfg      Config
	problems []Problem
	notices  []Notice
}

func (p *parser) problem(property, reason, fix string) {
	p.problems = append(p.problems, Problem{Property: property, Reason: reason, Fix: fix})
}

// property handles one name. Values of secrets reach nothing but the Config.
func (p *parser) property(name, value string) {
	prop, known := propertiesByName[name]
	switch {
	case !known:
		p.unknown(name)
	case prop.Kind == Refused:
		p.problem(name, prop.Doc, prop.fix)
	case prop.Kind == NoEffect:
		p.notices = append(p.notices, Notice{Property: name, Text: prop.Doc})
	default:
		if prop.Secret {
			value = p.given[name] // spaces belong to a secret
		}
		if err := prop.set(&p.cfg, value); err != nil {
			p.problem(name, err.Error(), "")
		}
	}
}

func (p *parser) unknown(name string) {
	if near := nearest(name); near != "" {
		p.problem(name, "is not a Kafka client property", fmt.Sprintf("did you mean %s?", near))
		return
	}
	p.problem(name, "is not a Kafka client property", "remove it, or look its name up in the Java client's documentation")
}

// finish checks what no property shows alone.
func (p *parser) finish() {
	if len(p.cfg.Seeds) == 0 && p.given["bootstrap.servers"] == "" {
		p.problem("bootstrap.servers", "is missing", "name at least one broker, as host:port")
	}
	if p.cfg.retryBackoff > p.cfg.retryBackoffMax {
		p.cfg.retryBackoffMax = p.cfg.retryBackoff
	}
	p.finishTLS()
	p.finishSASL()
}

// Kind says what becomes of a property.
type Kind string

// The kinds of properties.
const (
	Applied  Kind = "applied"   // takes effect
	NoEffect Kind = "no effect" // accepted, with a notice that says why it changes nothing
	Refused  Kind = "refused"   // a problem, with the reason
)

// Property describes one known name.
type Property struct {
	Name    string
	Kind    Kind
	Default string // as text; empty for none
	Doc     string // what it does, why it has no effect, or why it is refused
	Secret  bool   // its value must never be shown

	set func(*Config, string) error // Applied only
	fix string                      // Refused only: the next step
}

// Properties lists every known name in alphabetical order.
func Properties() []Property {
	return slices.SortedFunc(maps.Values(propertiesByName), func(a, b Property) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// IsSecret reports whether the value of a property must not be shown. It is true for names that are
// not known too: a misspelt password is still a password.
func IsSecret(name string) bool {
	prop, known := propertiesByName[name]
	return !known || prop.Secret
}
