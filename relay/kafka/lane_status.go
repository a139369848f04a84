package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	Last  string `json:"last,omitempty"` // who noted the position: the owner, or the one before
	Low   string `json:"low,omitempty"`  // events below this row are settled
	// Progress is the offset in the control topic up to which transactions are known to be marked, End the topic's.
	// The difference, with what transactions add of their own, is what a take-over would read.
	Progress int64 `json:"progress"`
	End      int64 `json:"end"`
}

// DescribeLanes asks the cluster who has which lane of an outbox. There are none when no relay has ever shared it
// by lanes.
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
	for _, end := range ends.Offsets().Sorted() {
		lanes = append(lanes, LaneStatus{Lane: end.Partition, Progress: -1, End: end.At})
	}
	if len(lanes) == 0 {
		return nil, nil
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
		if o, ok := noted.Lookup(topic, lanes[i].Lane); ok && o.Err == nil {
			n := parseNote(&o.Metadata)
			lanes[i].Progress, lanes[i].Low, lanes[i].Last = o.At, n.Low, n.Relay
		}
	}
	return nil
}

func addOwners(ctx context.Context, c *kgo.Client, topic string, lanes []LaneStatus) error {
	members, err := describeMembers(ctx, c, topic)
	if err != nil {
		return err
	}
	for _, m := range members {
		for _, lane := range m.lanes {
			if i := slices.IndexFunc(lanes, func(l LaneStatus) bool { return l.Lane == lane }); i >= 0 {
				lanes[i].Run, lanes[i].Host, lanes[i].Relay = m.client, m.host, relayOf(m.client)
			}
		}
	}
	return nil
}
