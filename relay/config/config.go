package config

import (
	"time"

	"github.com/postrider/postrider/relay"
)

// Config is the whole configuration after presets and defaults. The keys of the file are the snake
// case of the field names: Relay.PollInterval is relay.poll_interval. Default states every default.
type Config struct {
	Database Database
	Kafka    Properties // Java client property names, verbatim
	Outbox   Outbox
	Routes   []Route
	Topic    string // template for events that neither name a topic nor match a route
	Record   Record
	Relay    Relay
	HTTP     HTTP
	Log      Log
}

// Database says where the outbox table is.
type Database struct {
	// URL is postgres://, mysql://, mariadb:// or sqlite:file. Use Config.DatabaseURL, which puts in
	// User and Password.
	URL Secret
	// User and Password replace those of URL; they need no percent-encoding.
	User     string
	Password Secret
}

// Outbox says how the table looks. Table, Columns and States start from Preset's; empty columns
// and states do not exist. Config.Table gives them as the relay takes them.
type Outbox struct {
	Name     string // the relay group
	Preset   string
	Table    string
	Columns  relay.Columns
	States   relay.States
	TimeZone string // IANA name for time columns without zone; empty: the session's default
}

// Route sends the events it matches to a topic; the first match decides.
type Route struct {
	Match     Match
	Topic     string // template
	Key       string // template; empty: the row's key
	Partition *int32 // nil: by key
}

// Match selects events by exact names; empty matches any.
type Match struct {
	AggregateType string
	EventType     string
}

// Record says how a record looks.
type Record struct {
	Profile     string // "postrider"
	Envelope    relay.Envelope
	ContentType string // content-type header of events whose row names none
	Headers     Headers
}

// Headers rules over the row's headers.
type Headers struct {
	Deny []string // names that never leave; compared without case
}

// The deliveries.
const (
	// AtLeastOnce: after a crash or an answer that was lost, some events come twice, with the same id.
	AtLeastOnce = "at-least-once"
	// ExactlyOnce: readers of committed records see each event once. Events go in transactions; needs claim:
	// lanes and brokers with transaction.version 2 (Kafka 4.0).
	ExactlyOnce = "exactly-once"
)

// Relay says how events are read, sent and settled.
type Relay struct {
	Name              string // shown in locks and logs; the host's name by default
	Source            string // "poll"
	Claim             relay.ClaimMode
	Lanes             int           // claim: lanes: how many; fixed by the control topic once it exists
	Flows             int           // how many send side by side, each its share of the keys
	SessionTimeout    time.Duration // claim: lanes: how long a silent relay keeps its lanes
	Delivery          string        // ExactlyOnce, AtLeastOnce; without lanes at least once is all there is, and the default
	Batch             int           // events
	BatchBytes        Size
	PollInterval      time.Duration // idle sleep
	Retry             Retry
	ClaimTimeout      time.Duration
	AfterSend         string // "mark" or "delete"
	ShutdownTimeout   time.Duration
	UnknownTopicGrace time.Duration
	CreateTopics      CreateTopics
}

// Retry says how failed events are tried again. Either Backoff or Schedule is used.
type Retry struct {
	Backoff         Backoff
	Schedule        []time.Duration // the wait after the first, second, … failure; then DEAD
	MaxAttempts     int             // with a Schedule always one more than its length
	OnDead          string          // relay.OnDeadHold or relay.OnDeadSkip
	DeadLetterTopic string          // empty: none
}

// Backoff grows the wait from Initial by Factor up to Max; Jitter is the share that is random.
type Backoff struct {
	Initial time.Duration
	Factor  float64
	Max     time.Duration
	Jitter  float64 // 0 to 1; 0 is none
}

// CreateTopics makes the relay create missing topics; the zero value creates none.
type CreateTopics struct {
	Partitions        int // -1: the broker's default
	ReplicationFactor int // -1: the broker's default
}

// Wanted says whether topics are to be created.
func (c CreateTopics) Wanted() bool { return c != CreateTopics{} }

// Off is an http.listen that switches HTTP off.
const Off = "off"

// HTTP is the listener for health, metrics, API and console.
type HTTP struct {
	Listen string // host:port, or Off
}

// Log says what is logged and how.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // json, text, auto: text on a terminal, json elsewhere
}

// Default returns the configuration with every default and nothing else. It is the one place where
// defaults are stated.
func Default() Config {
	c := Config{
		Topic:  relay.DefaultTopic,
		Outbox: Outbox{Name: "outbox", Preset: DefaultPreset},
		Record: Record{Profile: "postrider", Envelope: relay.EnvelopeNone, ContentType: relay.DefaultContentType},
		Relay: Relay{
			Source:       "poll",
			Claim:        relay.ClaimLanes,
			Lanes:        16,
			Flows:        2,
			Delivery:     ExactlyOnce,
			Batch:        2000,
			BatchBytes:   8 * MiB,
			PollInterval: 500 * time.Millisecond,
			Retry: Retry{
				Backoff:     Backoff{Initial: time.Second, Factor: 2, Max: 5 * time.Minute, Jitter: 0.2},
				MaxAttempts: 16,
				OnDead:      relay.OnDeadHold,
			},
			SessionTimeout:    10 * time.Second,
			ClaimTimeout:      time.Minute,
			AfterSend:         "mark",
			ShutdownTimeout:   30 * time.Second,
			UnknownTopicGrace: 5 * time.Minute,
		},
		HTTP: HTTP{Listen: "127.0.0.1:8080"},
		Log:  Log{Level: "info", Format: "auto"},
	}
	presets[DefaultPreset].apply(&c.Outbox)
	return c
}

// DatabaseURL returns the database's URL with database.user and database.password in it. It holds
// the secret: never log it.
func (c *Config) DatabaseURL() string {
	raw := c.Database.URL.Reveal()
	u, reason := parseDatabaseURL(raw)
	if reason != "" || u.Scheme == "sqlite" || (c.Database.User == "" && c.Database.Password.Empty()) {
		return raw
	}
	return withUser(u, c.Database.User, c.Database.Password.Reveal())
}

// Table returns the outbox table as the relay takes it.
func (c *Config) Table() relay.Table {
	own := presets[DefaultPreset]
	return relay.Table{
		Name:     c.Outbox.Table,
		Columns:  c.Outbox.Columns,
		States:   c.Outbox.States,
		TimeZone: c.Outbox.TimeZone,
		Own: c.Outbox.Preset == DefaultPreset &&
			c.Outbox.Columns == own.columns && c.Outbox.States == own.states,
		AfterSend: c.Relay.AfterSend,
	}
}

// Router returns the routes as the relay takes them. Load has checked the templates; one that cannot
// be read panics.
func (c *Config) Router() relay.Router {
	r := relay.Router{Default: relay.MustTemplate(c.Topic)}
	for _, route := range c.Routes {
		r.Routes = append(r.Routes, relay.Route{
			AggregateType: route.Match.AggregateType,
			EventType:     route.Match.EventType,
			Topic:         relay.MustTemplate(route.Topic),
			Key:           relay.MustTemplate(route.Key),
			Partition:     route.Partition,
		})
	}
	return r
}

// Backoff returns the retry rule as the relay takes it, where 0 stands for the default jitter and a
// negative number for none.
func (c *Config) Backoff() relay.Backoff {
	r := c.Relay.Retry
	b := relay.Backoff{
		Initial: r.Backoff.Initial, Factor: r.Backoff.Factor, Max: r.Backoff.Max, Jitter: r.Backoff.Jitter,
		Schedule: r.Schedule, MaxAttempts: r.MaxAttempts,
	}
	if b.Jitter == 0 {
		b.Jitter = -1
	}
	return b
}
