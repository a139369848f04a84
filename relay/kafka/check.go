package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Finding is something about a topic that a person should know before events depend on it.
type Finding struct {
	Topic   string
	Problem string
	Advice  string // the next step, a command where there is one; may be empty
	Severe  bool   // no record can be written as things stand
	Minor   bool   // nothing can be done about it here; at most one of a check is
}

// String is one line.
func (f Finding) String() string {
	s := "topic " + f.Topic + ": " + f.Problem
	if f.Advice != "" {
		s += "; " + f.Advice
	}
	return s
}

// CheckTopics looks the topics up anew, creates missing ones if Options.CreateTopics says so, and
// returns what is doubtful, sorted by topic. A cluster that does not answer within request.timeout.ms is
// a finding about the first topic.
func (s *Sink) CheckTopics(ctx context.Context, names []string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.requestTimeout)
	defer cancel()
	var findings []Finding
	var legal []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if why := badName(name); why != "" {
			findings = append(findings, Finding{Topic: name, Problem: why, Severe: true,
				Advice: placements[kerr.InvalidTopicException].hint})
			continue
		}
		legal = append(legal, name)
	}
	if len(legal) == 0 {
		return findings
	}
	found, err := s.describe(ctx, legal)
	if err != nil {
		setup := s.unreachable(ctx, err)
		return append(findings, Finding{Topic: legal[0], Severe: true,
			Problem: "it cannot be looked up: " + setup.Thing + ": " + setup.Reason, Advice: setup.Fix})
	}
	s.topics.remember(found)
	alone := s.brokers.Load() == 1
	for _, t := range found {
		findings = append(findings, s.check(t)...)
		if alone && t.failure == nil {
			findings = append(findings, Finding{Topic: t.name, Minor: true,
				Problem: "it has one replica, as every topic of a cluster with one broker: what the broker loses is lost, acknowledged records too"})
			alone = false // one says it for all
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return strings.Compare(a.Topic, b.Topic) })
	return findings
}

// check judges one topic.
func (s *Sink) check(t *topicInfo) []Finding {
	if t.failure != nil {
		return []Finding{{Topic: t.name, Severe: true, Advice: t.failure.Hint,
			Problem: strings.TrimPrefix(t.failure.Text, "topic "+t.name+": ") + " (" + t.failure.Code + ")"}}
	}
	var out []Finding
	add := func(problem, advice string) {
		out = append(out, Finding{Topic: t.name, Problem: problem, Advice: s.fill(advice, t.name)})
	}
	alter := func(config string) string {
		return "kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics --entity-name '{topic}' --add-config " + config
	}
	switch {
	case s.brokers.Load() == 1: // it cannot have more replicas
	case t.replication == 1:
		add("it has one replica: its records are lost with that broker, acknowledged ones too",
			"give it three: kafka-reassign-partitions.sh, or create it with --replication-factor 3")
	case t.minISR == 1:
		add(fmt.Sprintf("min.insync.replicas is 1 with %d replicas: an acknowledged record may be in one place only", t.replication),
			"ask for two: "+alter("min.insync.replicas=2"))
	case t.minISR == t.replication:
		add(fmt.Sprintf("min.insync.replicas is %d with as many replicas: one broker down stops all writing", t.minISR),
			"add a replica, or: "+alter(fmt.Sprintf("min.insync.replicas=%d", t.minISR-1)))
	}
	if t.minISR > t.replication {
		out = append(out, Finding{Topic: t.name, Severe: true, Advice: s.fill(alter(fmt.Sprintf("min.insync.replicas=%d", max(1, t.replication-1))), t.name),
			Problem: fmt.Sprintf("min.insync.replicas is %d with %d replicas: no record can be acknowledged", t.minISR, t.replication)})
	}
	if own := s.cfg.MaxRequestSize; own > t.maxBytes {
		add(fmt.Sprintf("max.message.bytes is %d, below the client's max.request.size of %d: records in between are refused", t.maxBytes, own),
			alter(fmt.Sprintf("max.message.bytes=%d", own)))
	}
	if t.compacted() {
		add("it is compacted (cleanup.policy): records without a key are refused, and of each key only the last is kept", "")
	}
	if t.configErr != nil {
		add(fmt.Sprintf("its configuration cannot be read (%s): Kafka's default of %d is taken for max.message.bytes", codeOf(t.configErr), defaultMax),
			"allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation DescribeConfigs --topic '{topic}'")
	}
	return out
}

func codeOf(err error) string {
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return broker.Message
	}
	return err.Error()
}

// remember keeps what a check has looked up.
func (ts *topics) remember(found []*topicInfo) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range found {
		ts.known[t.name] = t
	}
}
