package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// topicInfo is what is known of one topic. It never changes: new knowledge is a new topicInfo.
type topicInfo struct {
	name        string
	partitions  int32
	replication int
	maxBytes    int // max.message.bytes
	minISR      int // 0: not known
	compacted   bool
	configErr   error          // why its configuration is not known: maxBytes is Kafka's default then
	failure     *relay.Failure // why no record can be written to it
	at          time.Time
}

// Ages of knowledge.
const (
	doubtAfter = time.Second     // older knowledge is not enough to refuse a record
	retryAfter = time.Second     // what could not be looked up, or is missing, is asked for again
	defaultMax = 1<<20 + 12      // Kafka's default of message.max.bytes
	maxKnown   = 10_000          // topics; beyond that all is forgotten
	createWait = 5 * time.Second // for a topic just created to have leaders
)

// topics remembers topics. Known ones are looked up again in the background once they are older than
// TopicTTL: a write never waits for what it knows already.
type topics struct {
	s *Sink

	mu         sync.Mutex
	known      map[string]*topicInfo
	refreshing bool
}

func newTopics(s *Sink) *topics { return &topics{s: s, known: map[string]*topicInfo{}} }

// get returns each named topic, in no order. What is not known, or was missing a second ago, is looked
// up first, until ctx ends.
func (ts *topics) get(ctx context.Context, names []string) []*topicInfo {
	found := make([]*topicInfo, 0, len(names))
	var need, stale []string
	now := time.Now()
	ts.mu.Lock()
	for _, name := range names {
		t, known := ts.known[name]
		switch {
		case badName(name) != "":
			found = append(found, ts.illegal(name))
		case !known || t.failure != nil && now.Sub(t.at) >= retryAfter:
			need = append(need, name)
		default:
			found = append(found, t)
			if now.Sub(t.at) >= ts.s.opts.TopicTTL {
				stale = append(stale, name)
			}
		}
	}
	refresh := len(stale) > 0 && !ts.refreshing && ts.s.begin()
	if refresh {
		ts.refreshing = true
	}
	ts.mu.Unlock()
	if refresh {
		go ts.refresh(stale)
	}
	if len(need) > 0 {
		found = append(found, ts.load(ctx, need)...)
	}
	return found
}

func (ts *topics) refresh(names []string) {
	defer ts.s.calls.Done()
	ctx, cancel := context.WithTimeout(context.Background(), ts.s.cfg.requestTimeout)
	defer cancel()
	ts.load(ctx, names)
	ts.mu.Lock()
	ts.refreshing = false
	ts.mu.Unlock()
}

// again looks t up anew unless it was looked up just now. It returns t itself when the cluster does not
// answer.
func (ts *topics) again(ctx context.Context, t *topicInfo) *topicInfo {
	if time.Since(t.at) < doubtAfter {
		return t
	}
	fresh := ts.load(ctx, []string{t.name})[0]
	if fresh.failure != nil && fresh.failure.Code == CodeUnreachable {
		return t
	}
	return fresh
}

// latest is what is known of t's topic now.
func (ts *topics) latest(t *topicInfo) *topicInfo {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if now, known := ts.known[t.name]; known && now.failure == nil {
		return now
	}
	return t
}

// expire lets the next get look the topic up again in the background, soon.
func (ts *topics) expire(name string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t, known := ts.known[name]; known && time.Since(t.at) >= doubtAfter {
		delete(ts.known, name)
	}
}

// load asks the cluster and remembers the answer. When it does not answer, what was known stays, and is
// asked for again a second later.
func (ts *topics) load(ctx context.Context, names []string) []*topicInfo {
	loaded, err := ts.s.describe(ctx, names)
	if err != nil {
		failure := ts.s.failure(strings.Join(names, ", "), err)
		loaded = loaded[:0]
		for _, name := range names {
			loaded = append(loaded, &topicInfo{name: name, failure: failure, at: time.Now()})
		}
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.known) >= maxKnown {
		clear(ts.known)
	}
	for i, t := range loaded {
		old, known := ts.known[t.name]
		if err != nil && known && old.failure == nil {
			kept := *old
			kept.at = time.Now().Add(retryAfter - ts.s.opts.TopicTTL)
			loaded[i], t = &kept, &kept
		}
		ts.known[t.name] = t
	}
	return loaded
}

// describe asks for layout and configuration, and creates what is missing if it may.
func (s *Sink) describe(ctx context.Context, names []string) ([]*topicInfo, error) {
	found, err := s.layout(ctx, names)
	if err != nil {
		return nil, err
	}
	if s.opts.CreateTopics != (CreateTopics{}) {
		if found, err = s.create(ctx, found); err != nil {
			return nil, err
		}
	}
	s.configure(ctx, found)
	return slices.Collect(maps.Values(found)), nil
}

// layout asks for partitions and replicas.
func (s *Sink) layout(ctx context.Context, names []string) (map[string]*topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.current())
	if err != nil {
		return nil, err
	}
	found := make(map[string]*topicInfo, len(names))
	for _, rt := range resp.Topics {
		if rt.Topic == nil {
			continue
		}
		t := &topicInfo{name: *rt.Topic, partitions: int32(len(rt.Partitions)), maxBytes: defaultMax, at: time.Now()}
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			t.failure = s.topicFailure(t.name, err)
		} else if t.partitions == 0 {
			t.failure = s.topicFailure(t.name, kerr.LeaderNotAvailable)
		} else {
			t.replication = len(rt.Partitions[0].Replicas)
		}
		found[t.name] = t
	}
	for _, name := range names {
		if found[name] == nil {
			return nil, fmt.Errorf("look up topic %s: the broker's answer leaves it out", name)
		}
	}
	return found, nil
}

func (s *Sink) topicFailure(name string, err error) *relay.Failure {
	f := s.failure(name, err)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		f.Text = "topic " + name + ": it does not exist"
	}
	return f
}

// configure asks for the configuration of the topics that exist. Without the right to do so the
// defaults stand in.
func (s *Sink) configure(ctx context.Context, found map[string]*topicInfo) {
	var names []string
	for name, t := range found {
		if t.failure == nil {
			names = append(names, name)
		}
	}
	configs, err := kadm.NewClient(s.current().Client).DescribeTopicConfigs(ctx, names...)
	for _, name := range names {
		t := found[name]
		t.configErr = err
		if err != nil {
			continue
		}
		rc, err := configs.On(name, nil)
		if t.configErr = cmpErr(err, rc.Err); t.configErr == nil {
			t.read(rc.Configs)
		}
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *topicInfo) read(configs []kadm.Config) {
	for i := range configs {
		value := configs[i].MaybeValue()
		switch configs[i].Key {
		case "max.message.bytes":
			if n, err := strconv.Atoi(value); err == nil {
				t.maxBytes = n
			}
		case "min.insync.replicas":
			t.minISR, _ = strconv.Atoi(value)
		case "cleanup.policy":
			t.compacted = strings.Contains(value, "compact")
		}
	}
}

// create makes the missing topics and waits until they have partitions.
func (s *Sink) create(ctx context.Context, found map[string]*topicInfo) (map[string]*topicInfo, error) {
	var missing []string
	for name, t := range found {
		if t.failure != nil && t.failure.Code == kerr.UnknownTopicOrPartition.Message {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	partitions, replication := int32(-1), int16(-1) // the broker's defaults
	if n := s.opts.CreateTopics.Partitions; n > 0 {
		partitions = n
	}
	if n := s.opts.CreateTopics.ReplicationFactor; n > 0 {
		replication = n
	}
	answers, err := kadm.NewClient(s.current().Client).CreateTopics(ctx, partitions, replication, nil, missing...)
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", err)
	}
	var waiting []string
	for _, name := range missing {
		if err := answers[name].Err; err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			found[name].failure = s.topicFailure(name, err)
			continue
		}
		s.opts.Logger.Info("topic created", "topic", name)
		waiting = append(waiting, name)
	}
	return found, s.awaitCreated(ctx, found, waiting)
}

func (s *Sink) awaitCreated(ctx context.Context, found map[string]*topicInfo, waiting []string) error {
	ctx, cancel := context.WithTimeout(ctx, createWait)
	defer cancel()
	for pause := 10 * time.Millisecond; len(waiting) > 0; pause = min(2*pause, 250*time.Millisecond) {
		fresh, err := s.layout(ctx, waiting)
		if err != nil {
			return err
		}
		maps.Copy(found, fresh)
		waiting = slices.DeleteFunc(waiting, func(name string) bool { return fresh[name].failure == nil })
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil // their failures stand: they are asked for again
		}
	}
	return nil
}

// current is the client that takes new flights.
func (s *Sink) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// badName says what is wrong with a topic's name, by Kafka's own rules.
func badName(name string) string {
	switch {
	case name == "":
		return "it has no name"
	case name == "." || name == "..":
		return `"." and ".." are not allowed`
	case len(name) > 249:
		return fmt.Sprintf("its name has %d characters, at most 249 are allowed", len(name))
	}
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return fmt.Sprintf("its name holds %q", c)
		}
	}
	return ""
}

func (ts *topics) illegal(name string) *topicInfo {
	shown := name
	if len(shown) > 249 {
		shown = shown[:249] + "…"
	}
	f := ts.s.failure(name, kerr.InvalidTopicException)
	f.Text = fmt.Sprintf("topic %q: %s", shown, badName(name))
	return &topicInfo{name: name, failure: f, at: time.Now()}
}
