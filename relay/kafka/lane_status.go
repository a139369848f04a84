package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// LaneStatus is what the cluster knows of one lane.
type LaneStatus struct {
	Lane  int32  `json:"lane"`
	Relay string `json:"relay"` // the owner's relay.name; empty: nobody has it now
	Host  string `json:"host,omitempty"`
	Run   string `json:"run,omitempty"`  // names this run of the relay
	Flow  *int32 `json:"flow,omitempty"` // the owner's that sends it; none when it does not send in transactions
	Last  string `json:"last,omitempty"` // who noted the position: the owner, or the one before
	Low   string `json:"low,omitempty"`  // Store.Low: events below this row are settled
	// Progress is the offset in the control topic up to which transactions are known to be marked, End the topic's.
	Progress int64 `json:"progress"`
	End      int64 `json:"end"`
	// Unmarked is about how many transactions are not known to be marked, of which a take-over would read. It grows while
	// the database does not take marks; without transactions it is 0.
	Unmarked int64 `json:"unmarked"`
	// ProgressAt is when the newest transaction of the lane was noted, by its relay's clock; none before the owner's first.
	ProgressAt *time.Time `json:"progress_at,omitempty"`

	member string // noted by a static member, see present.has
}

// NoControlTopicError tells that a cluster has no control topic for an outbox: no relay has shared it by lanes yet, or
// the topic was deleted.
type NoControlTopicError struct {
	Topic  string
	Relays int // members of the group; they make the topic anew
}

func (e *NoControlTopicError) Error() string {
	if e.Relays == 0 {
		return fmt.Sprintf("the cluster has no topic %s: no relay has shared this outbox by lanes yet, or the topic was deleted; the first relay makes it", e.Topic)
	}
	return fmt.Sprintf("topic %s was deleted under the relays that share lanes by it (%d run): they make it anew by themselves within seconds; if they do not, their logs say why",
		e.Topic, e.Relays)
}

// noControlTopic says who misses the topic.
func noControlTopic(ctx context.Context, c *kgo.Client, topic string) error {
	members, err := describeMembers(ctx, c, topic)
	if err != nil {
		return err
	}
	return &NoControlTopicError{Topic: topic, Relays: len(members)}
}

// DescribeLanes asks the cluster who has which lane of an outbox. Without a control topic the error is a
// *NoControlTopicError.
func DescribeLanes(ctx context.Context, cfg Config, outbox string) ([]LaneStatus, error) {
	s, err := NewSink(cfg, Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }()
	topic := outbox + ".postrider"
	adm := kadm.NewClient(s.current().Client)
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("look the lanes up: %w", err)
	}
	var lanes []LaneStatus
	for _, lane := range slices.Sorted(maps.Keys(ends[topic])) {
		end := ends[topic][lane]
		switch {
		case errors.Is(end.Err, kerr.UnknownTopicOrPartition):
			return nil, noControlTopic(ctx, s.current().Client, topic)
		case end.Err != nil:
			return nil, fmt.Errorf("look the lanes up: %w", end.Err)
		}
		lanes = append(lanes, LaneStatus{Lane: lane, Progress: -1, End: end.Offset})
	}
	if len(lanes) == 0 {
		return nil, noControlTopic(ctx, s.current().Client, topic)
	}
	if err := addNotes(ctx, adm, topic, lanes); err != nil {
		return nil, err
	}
	return lanes, addOwners(ctx, s.current().Client, topic, lanes)
}

func addNotes(ctx context.Context, adm *kadm.Client, topic string, lanes []LaneStatus) error {
	noted, err := adm.FetchOffsets(ctx, topic)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return fmt.Errorf("read the lanes' positions: %w", err)
	}
	for i := range lanes {
		l := &lanes[i]
		o, ok := noted.Lookup(topic, l.Lane)
		if !ok || o.Err != nil {
			continue
		}
		n := parseNote(&o.Metadata)
		l.Progress, l.Low, l.Last, l.Run, l.member = o.At, n.Low, n.Relay, n.Run, n.Member
		l.Unmarked = int64(len(n.Sent)) + max(l.End-l.Progress, 0)/2 // each record has a mark of the broker's behind it
		if n.At > 0 {
			at := time.UnixMilli(n.At).UTC()
			l.ProgressAt = &at
		}
		if n.Flows > 0 {
			flow := l.Lane % int32(n.Flows)
			l.Flow = &flow
		}
	}
	return nil
}

// addOwners says who has the lanes now. A note of another run is the last owner's: the new one has not opened the lane.
func addOwners(ctx context.Context, c *kgo.Client, topic string, lanes []LaneStatus) error {
	members, err := describeMembers(ctx, c, topic)
	if err != nil {
		return err
	}
	owned := map[int32]presentMember{}
	for _, m := range members {
		for _, lane := range m.lanes {
			owned[lane] = m
		}
	}
	for i := range lanes {
		l := &lanes[i]
		m, ok := owned[l.Lane]
		switch {
		case !ok:
			l.Run, l.Flow = "", nil
		case l.Run == m.client, l.member == m.id:
			l.Host, l.Relay = m.host, relayOf(l.Run)
		default:
			l.Host, l.Relay, l.Run, l.Flow = m.host, relayOf(m.client), m.client, nil
		}
	}
	return nil
}
