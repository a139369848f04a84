package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

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
	s.brokers.Store(int32(len(resp.Brokers)))
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
			t.leaders = make([]int32, len(rt.Partitions))
			for _, p := range rt.Partitions {
				if int(p.Partition) < len(t.leaders) {
					t.leaders[p.Partition] = p.Leader
				}
			}
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
			t.policy = value
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
		if rest(ctx, pause) != nil {
			return nil // their failures stand: they are asked for again
		}
	}
	return nil
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
