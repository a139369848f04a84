package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// left is what the group has noted of a lane.
type left struct {
	lane   int32
	offset int64 // -1: nothing
	note   note
}

// errUnstable: a transaction of an earlier owner may still commit.
var errUnstable = errors.New("an earlier owner's transaction is still open")

// offsetFetch asks what is noted of lanes. With stable it is an error that a transaction is open which would
// change it: none that an earlier owner began can do so after a stable answer, because the generation it
// would commit with has passed.
func (g *Group) offsetFetch(ctx context.Context, lanes []int32, stable bool) ([]left, error) {
	topic, id := g.control()
	req := kmsg.NewPtrOffsetFetchRequest()
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = g.topic
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.TopicID, rt.Partitions = topic, id, lanes
	rg.Topics = append(rg.Topics, rt)
	req.Groups, req.RequireStable = append(req.Groups, rg), stable
	resp, err := req.RequestWith(ctx, g.lend.current().Client)
	if err != nil {
		return nil, fmt.Errorf("read the lanes' positions: %w", err)
	}
	var out []left
	for _, rg := range resp.Groups {
		if err := kerr.ErrorForCode(rg.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, offsetError(err)
		}
		for _, rt := range rg.Topics {
			for _, rp := range rt.Partitions {
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return nil, offsetError(err)
				}
				out = append(out, left{rp.Partition, rp.Offset, parseNote(rp.Metadata)})
			}
		}
	}
	return out, nil
}

func offsetError(err error) error {
	if errors.Is(err, kerr.UnstableOffsetCommit) {
		return errUnstable
	}
	return fmt.Errorf("read the lanes' positions: %w", err)
}

// once makes the request and repeats it by no means: a first try that was given up could be applied after a second,
// and win over what a transaction committed meanwhile.
func (g *Group) once(ctx context.Context, req *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, error) {
	c := g.lend.current().Client
	at := kadm.NewClient(c).FindGroupCoordinators(ctx, g.topic)[g.topic]
	if at.Err != nil {
		return nil, at.Err
	}
	return req.RequestWith(ctx, c.Broker(int(at.NodeID)))
}

// offsetCommit notes positions as a member.
func (g *Group) offsetCommit(ctx context.Context, m member, todo map[int32]committed) error {
	topic, id := g.control()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	if m.instance != "" {
		req.InstanceID = &m.instance
	}
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	for lane, c := range todo {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = lane, max(c.offset, 0), kmsg.StringPtr(c.note)
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := g.once(ctx, req)
	if err != nil {
		return fmt.Errorf("note the lanes' positions: %w", err)
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return fmt.Errorf("note the lanes' positions: %w", err)
			}
		}
	}
	return nil
}
