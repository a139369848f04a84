package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/api"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/kafka"
)

// Options is what Run needs beside the configuration.
type Options struct {
	Config   *config.Config
	Logger   *slog.Logger // defaults to silence
	Version  string       // shown in outbox_build_info
	Revision string
	// UntilDrained ends Run once nothing is due.
	UntilDrained bool
	// Notify, when set, is told of each phase for a service manager: "READY=1", "STATUS=…", "STOPPING=1".
	// It may be called from several goroutines.
	Notify func(state string)
}

// app is one run of the relay process.
type app struct {
	o       Options
	cfg     *config.Config
	log     *slog.Logger
	metrics *api.Metrics
	server  *api.Server
	kafka   kafka.Config
}

// Run relays until ctx ends, then drains and returns nil. With UntilDrained it also returns nil once
// nothing is due. It waits for a database or a Kafka that does not answer; what waiting cannot cure is
// returned, as a *relay.SetupError where a person must act.
func Run(ctx context.Context, o Options) error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Notify == nil {
		o.Notify = func(string) {}
	}
	a := &app{o: o, cfg: o.Config, log: o.Logger.With("relay", o.Config.Relay.Name)}
	if err := a.parseKafka(); err != nil {
		return err
	}
	tuning, done := context.WithCancel(context.WithoutCancel(ctx))
	var tuned sync.WaitGroup
	tuned.Go(func() { tuneMemory(tuning) })
	defer tuned.Wait()
	defer done()
	a.metrics = api.NewMetrics(o.Version, o.Revision)
	server, err := api.Listen(ctx, o.Config.HTTP.Listen, a.metrics, a.log)
	if err != nil {
		return err
	}
	a.server = server
	// A service manager learns of the end when it begins, not when all is drained.
	stopping := sync.OnceFunc(func() { o.Notify("STOPPING=1") })
	defer stopping()
	defer context.AfterFunc(ctx, stopping)()
	// HTTP goes last, so that health stays truthful while the relay drains.
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Close(closing)
	}()
	a.log.Info("postrider starts", "version", o.Version, "http", server.Addr(), "outbox", a.cfg.Outbox.Name,
		"table", a.cfg.Outbox.Table, "claim", string(a.cfg.Relay.Claim), "delivery", a.cfg.Relay.Delivery)
	if a.cfg.Relay.Claim == relay.ClaimRows {
		a.log.Info("relay.claim is rows: events of a key may overtake each other where several relays work on the table; lanes and single keep their order")
	}
	err = a.loop(ctx)
	if err == nil {
		why := "it was told to"
		if ctx.Err() == nil {
			why = "nothing is left to send"
		}
		a.log.Info("postrider stopped", "because", why)
	}
	return err
}

func (a *app) parseKafka() error {
	cfg, problems, notices := kafka.Parse(a.cfg.Kafka.Reveal())
	for _, n := range notices {
		a.log.Info("kafka property without effect", "property", n.Property, "reason", n.Text)
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = &relay.SetupError{Kind: relay.SetupUsage, Thing: "kafka." + p.Property, Reason: p.Reason, Fix: p.Fix}
	}
	a.kafka = cfg
	return errors.Join(errs...)
}

// loop runs one relay after another: a relay that lost its table is replaced, since what it had in
// flight is no longer its own, and so is one whose database went away before it was at work. Opening
// the store anew tells what waiting can cure from what it cannot.
func (a *app) loop(ctx context.Context) error {
	for {
		err := a.once(ctx)
		setup := relay.AsSetup(err)
		switch {
		case ctx.Err() != nil && a.o.UntilDrained:
			return fmt.Errorf("stopped before the outbox was drained: %w", context.Cause(ctx))
		case err == nil, ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, relay.ErrOwnershipLost)):
			return nil
		case setup != nil && setup.Kind != relay.SetupUnreachable:
			return err
		case errors.Is(err, relay.ErrOwnershipLost):
			a.log.Warn("ownership of the table was lost (its database session ended), starting over")
		default:
			a.log.Warn("the relay could not take up its work, starting over", "error", err.Error())
		}
		sleep(ctx, firstWait)
	}
}

// once opens store and sink, waiting for their servers, and relays until it ends.
func (a *app) once(ctx context.Context) error {
	store, err := await(ctx, a, theDatabase, func() (Store, error) { return OpenStore(ctx, a.cfg) })
	if err != nil {
		return err
	}
	if w, ok := store.(interface{ Warnings() []string }); ok {
		for _, n := range w.Warnings() {
			a.log.Warn("about the table", "warning", n)
		}
	}
	for _, n := range store.Notices() {
		a.log.Info("about the table", "notice", n)
	}
	o := a.relayOptions(store)
	flows, err := a.openFlows(ctx, store, &o)
	if err != nil {
		_ = store.Close()
		return err
	}
	r := relay.New(o)
	// Connections that fail have no record to tell of it: the sinks' own word fills in.
	status := func() relay.Status {
		s := r.Status()
		for _, f := range flows {
			if trouble := f.Health().Trouble; s.KafkaTrouble == "" && trouble != nil {
				s.KafkaTrouble = trouble.Error()
			}
		}
		return s
	}
	a.metrics.Watch(store, status, a.log)
	a.server.Follow(status, "")
	defer a.server.Follow(nil, "stopped")
	defer a.metrics.Watch(nil, nil, a.log)
	a.o.Notify("READY=1")
	return r.Run(ctx)
}

func (a *app) sinkOptions() kafka.Options {
	return kafka.Options{Logger: a.log, UnknownTopicGrace: a.unknownTopicGrace(), CreateTopics: a.createTopics()}
}

// unknownTopicGrace turns 0 into what the sink takes for none.
func (a *app) unknownTopicGrace() time.Duration {
	if a.cfg.Relay.UnknownTopicGrace == 0 {
		return -1
	}
	return a.cfg.Relay.UnknownTopicGrace
}

func (a *app) createTopics() kafka.CreateTopics {
	c := a.cfg.Relay.CreateTopics
	return kafka.CreateTopics{Partitions: int32(c.Partitions), ReplicationFactor: int16(c.ReplicationFactor)}
}

// knownTopics are those that the configuration names without variables.
func (a *app) knownTopics() []string {
	var names []string
	router := a.cfg.Router()
	for _, t := range append([]relay.Template{router.Default}, topics(router.Routes)...) {
		if name, static := t.Static(); static {
			names = append(names, name)
		}
	}
	if t := a.cfg.Relay.Retry.DeadLetterTopic; t != "" {
		names = append(names, t)
	}
	return names
}

func topics(routes []relay.Route) []relay.Template {
	ts := make([]relay.Template, len(routes))
	for i := range routes {
		ts[i] = routes[i].Topic
	}
	return ts
}

func (a *app) relayOptions(store relay.Store) relay.Options {
	c := a.cfg
	return relay.Options{
		Name: c.Relay.Name, Store: store, Claim: c.Relay.Claim,
		Router:          c.Router(),
		Encode:          relay.Encoder{Envelope: c.Record.Envelope, ContentType: c.Record.ContentType, DenyHeaders: c.Record.Headers.Deny},
		Retry:           c.Backoff(),
		OnDead:          c.Relay.Retry.OnDead,
		DeadLetterTopic: c.Relay.Retry.DeadLetterTopic,
		Batch:           c.Relay.Batch,
		BatchBytes:      int64(c.Relay.BatchBytes),
		PollInterval:    c.Relay.PollInterval,
		ClaimTimeout:    c.Relay.ClaimTimeout,
		DrainTimeout:    c.Relay.ShutdownTimeout,
		UntilDrained:    a.o.UntilDrained,
		Hooks:           a.metrics,
		Logger:          a.log,
	}
}
