package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is the membership under which offsets are committed.
type member struct {
	group, id, instance string
	generation          int32 // with group.protocol: consumer, the member's epoch
}

// errNotOwner: a lane is not this relay's.
var errNotOwner = errors.New("the lane is not this relay's")

// present are the group's members.
type present []presentMember

type presentMember struct {
	id     string
	client string // the run, see Group.memberOptions
	host   string
	static bool // it has a group.instance.id
	lanes  []int32
}

// has says whether the run that a note is from is a member still. A restarted static member is shown under the
// client id of the run before it, so that the member id tells there.
func (p present) has(n note) bool {
	for _, m := range p {
		if m.id == n.Member || !m.static && m.client == n.Run {
			return true
		}
	}
	return false
}

// describeMembers lists the members of a group of either protocol.
func describeMembers(ctx context.Context, c *kgo.Client, group string) (present, error) {
	groups, err := kadm.NewClient(c).DescribeGroups(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("list the group's members: %w", err)
	}
	g := groups[group]
	var found present
	for _, m := range g.Members {
		p := presentMember{id: m.MemberID, client: m.ClientID, host: strings.TrimPrefix(m.ClientHost, "/"), static: m.InstanceID != nil}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				if t.Topic == group {
					p.lanes = append(p.lanes, t.Partitions...)
				}
			}
		}
		found = append(found, p)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound):
		return nil, fmt.Errorf("list the group's members: %w", g.Err)
	}
	return describeConsumers(ctx, c, group)
}

// describeConsumers lists the members of a group with group.protocol: consumer; there are none in a group of
// another kind, nor where brokers do not know it.
func describeConsumers(ctx context.Context, c *kgo.Client, group string) (present, error) {
	if old, err := lacking(ctx, c, kmsg.ConsumerGroupDescribe, 0); old != "" || err != nil {
		return nil, err
	}
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list the group's members: %w", err)
	}
	var found present
	for _, rg := range resp.Groups {
		switch err := kerr.ErrorForCode(rg.ErrorCode); {
		case errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.UnsupportedVersion):
		case err != nil:
			return nil, fmt.Errorf("list the group's members: %w", err)
		}
		for _, m := range rg.Members {
			p := presentMember{id: m.MemberID, client: m.ClientID, host: strings.TrimPrefix(m.ClientHost, "/"), static: m.InstanceID != nil}
			for _, t := range m.Assignment.TopicPartitions {
				if t.Topic == group {
					p.lanes = append(p.lanes, t.Partitions...)
				}
			}
			found = append(found, p)
		}
	}
	return found, nil
}

// lacking names a broker that does not know a request in a version; "" when all that answer do.
func lacking(ctx context.Context, c *kgo.Client, key kmsg.Key, version int16) (broker string, err error) {
	all, err := kadm.NewClient(c).ApiVersions(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the brokers for their versions: %w", err)
	}
	for _, v := range all {
		if most, known := v.KeyMaxVersion(int16(key)); v.Err == nil && (!known || most < version) {
			return fmt.Sprint(v.NodeID), nil
		}
	}
	return "", nil
}
