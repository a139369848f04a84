package kafka

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/relay"
)

// topicInfo is what is known of one topic. It never changes: new knowledge is a new topicInfo.
type topicInfo struct {
	name        string
	partitions  int32
	leaders     []int32 // by partition; they move
	replication int
	maxBytes    int            // max.message.bytes
	minISR      int            // 0: not known
	policy      string         // cleanup.policy; "" when it is not known
	configErr   error          // why its configuration is not known: maxBytes is Kafka's default then
	failure     *relay.Failure // why no record can be written to it
	at          time.Time
}

func (t *topicInfo) compacted() bool { return strings.Contains(t.policy, "compact") }

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
		go ts.refresh(stale) //nolint:contextcheck // outlives the write that noticed
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
