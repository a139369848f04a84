package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

// prepare sees to the control topic and that it is this table's. It waits for a cluster that does not answer.
func (g *Group) prepare(ctx context.Context) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		within, cancel := context.WithTimeout(ctx, g.lend.cfg.requestTimeout)
		err := g.checkControl(within)
		cancel()
		if forbidden(err) && relay.AsSetup(err) == nil {
			err = g.setup(err)
		}
		if err == nil || relay.AsSetup(err) != nil {
			return err
		}
		g.log.Warn("the control topic cannot be looked at yet", "topic", g.topic, "error", err.Error())
		if rest(ctx, pause) != nil {
			return nil
		}
	}
}

// transactionVersion is what the cluster's feature transaction.version must be at least: with version 2 a record or a
// commit that was sent under an earlier transaction can never become part of a later one (KIP-890).
const transactionVersion = 2

// checkTransactions finds out before the first event whether the cluster and this user's rights are up to
// transactions. Delivery is never downgraded in silence.
func (g *Group) checkTransactions(ctx context.Context) error {
	if g.o.Flows == 0 {
		return nil
	}
	c := g.lend.current().Client
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("ask for the cluster's features: %w", err)
	}
	level := int16(0)
	for _, f := range versions.FinalizedFeatures {
		if f.Name == "transaction.version" {
			level = f.MaxVersionLevel
		}
	}
	if level < transactionVersion {
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "relay.delivery",
			Reason: fmt.Sprintf("exactly-once needs the cluster's feature transaction.version to be %d, and it is %d", transactionVersion, level),
			Fix:    "kafka-features.sh --bootstrap-server … upgrade --feature transaction.version=2 (brokers of Kafka 4.0 or later), or write delivery: at-least-once"}
	}
	err = initProducer(ctx, c, g.topic+"/"+g.runID+"/check")
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return &relay.SetupError{Kind: relay.SetupPermission, Thing: "transactional ids " + g.topic + "/…", Err: err, Reason: "this user may not use them",
			Fix: "grant it: kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --operation Write --operation Describe --transactional-id " +
				g.topic + " --resource-pattern-type prefixed"}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "relay.delivery", Err: err,
			Reason: fmt.Sprintf("exactly-once asks for transactions of up to %s, and the brokers allow less (transaction.max.timeout.ms)", transactionTimeout),
			Fix:    "raise transaction.max.timeout.ms of the brokers, or write delivery: at-least-once"}
	case err != nil:
		return fmt.Errorf("ask for a transactional id: %w", err)
	}
	return nil
}

// forbidden says whether a right is missing.
func forbidden(err error) bool {
	return errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.TopicAuthorizationFailed) ||
		errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
}

func (g *Group) checkControl(ctx context.Context) error {
	if err := g.checkTransactions(ctx); err != nil {
		return err
	}
	t, err := g.controlTopic(ctx)
	if err != nil {
		return err
	}
	if n := int32(len(t.Partitions)); n != g.o.Lanes {
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: "topic " + g.topic,
			Reason: fmt.Sprintf("has %d partitions, and relay.lanes is %d: the number of lanes is fixed by the topic", n, g.o.Lanes),
			Fix:    fmt.Sprintf("set relay.lanes: %d, or choose another outbox.name", n)}
	}
	g.mu.Lock()
	g.topicID = t.ID
	g.mu.Unlock()
	left, err := g.offsetFetch(ctx, allLanes(g.o.Lanes), false)
	if err != nil {
		return err
	}
	for _, l := range left {
		if err := g.sameTable(l.note); err != nil {
			return err
		}
	}
	return nil
}

func allLanes(n int32) []int32 {
	lanes := make([]int32, n)
	for i := range lanes {
		lanes[i] = int32(i)
	}
	return lanes
}

// sameTable refuses lanes that belong to another outbox.
func (g *Group) sameTable(n note) error {
	if n.Table == "" || n.Table == g.o.Table {
		return nil
	}
	return &relay.SetupError{Kind: relay.SetupConflict, Thing: "outbox.name " + g.o.Name,
		Reason: fmt.Sprintf("belongs to %s (relay %s); this relay is on %s", n.Table, n.Relay, g.o.Table),
		Fix:    "give this outbox a name of its own (outbox.name)"}
}

// controlTopic looks the topic up and makes it when it is missing.
func (g *Group) controlTopic(ctx context.Context) (kadm.TopicDetail, error) {
	adm := kadm.NewClient(g.lend.current().Client)
	for {
		ts, err := adm.ListTopics(ctx, g.topic)
		if err != nil {
			return kadm.TopicDetail{}, fmt.Errorf("look the control topic up: %w", err)
		}
		t := ts[g.topic]
		switch {
		case t.Err == nil && len(t.Partitions) > 0:
			return t, nil
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			if err := g.createControl(ctx, adm); err != nil {
				return kadm.TopicDetail{}, err
			}
		case t.Err != nil && !kerr.IsRetriable(t.Err):
			return kadm.TopicDetail{}, g.setup(t.Err)
		}
		if err := rest(ctx, firstPause); err != nil {
			return kadm.TopicDetail{}, fmt.Errorf("look the control topic up: %w", err)
		}
	}
}

// createControl makes the topic: compacted, since only the newest records count, in segments small enough to be
// compacted soon.
func (g *Group) createControl(ctx context.Context, adm *kadm.Client) error {
	replication := g.o.Replication
	if replication == 0 {
		replication = -1
	}
	settings := map[string]*string{
		"cleanup.policy": kadm.StringPtr("compact"),
		"segment.bytes":  kadm.StringPtr("16777216"),
		"segment.ms":     kadm.StringPtr("3600000"),
	}
	answers, err := adm.CreateTopics(ctx, g.o.Lanes, replication, settings, g.topic)
	if err != nil {
		return fmt.Errorf("create the control topic: %w", err)
	}
	switch err := answers[g.topic].Err; {
	case err == nil:
		g.log.Info("control topic created", "topic", g.topic, "lanes", g.o.Lanes)
	case errors.Is(err, kerr.TopicAlreadyExists), kerr.IsRetriable(err):
	default:
		return g.setup(err)
	}
	return nil
}

// setup puts a broker's refusal into a person's words, with the command that grants what is missing.
func (g *Group) setup(err error) error {
	e := &relay.SetupError{Kind: relay.SetupUsage, Thing: "group " + g.topic, Reason: err.Error(), Err: err}
	grant := "grant it: kafka-acls.sh --bootstrap-server … --add --allow-principal User:… "
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		e.Kind, e.Reason = relay.SetupPermission, "this user may not take part in it"
		e.Fix = grant + "--operation Read --group " + g.topic
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		e.Kind, e.Thing, e.Reason = relay.SetupPermission, "topic "+g.topic, "this user may not make, read or write the control topic of the lanes"
		e.Fix = grant + "--operation Read --operation Write --operation Create --topic " + g.topic
	case errors.Is(err, kerr.InvalidSessionTimeout):
		e.Thing, e.Reason = "relay.session_timeout", g.o.SessionTimeout.String()+" is not within what the brokers allow"
		e.Fix = "choose a value between group.min.session.timeout.ms (6 s unless changed) and group.max.session.timeout.ms"
	case errors.Is(err, kerr.InvalidReplicationFactor):
		e.Thing, e.Reason = "topic "+g.topic, "cannot be made: "+err.Error()
		e.Fix = "make it by hand, compacted, with as many partitions as relay.lanes"
	}
	return e
}

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

// offsetCommit notes positions as a member.
func (g *Group) offsetCommit(ctx context.Context, m member, todo map[int32]committed) error {
	topic, id := g.control()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	for lane, c := range todo {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = lane, max(c.offset, 0), kmsg.StringPtr(c.note)
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, g.lend.current().Client)
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

// readCommitted implements lanes: records of a lane's partition in [from, to), once nothing below to is open.
func (g *Group) readCommitted(ctx context.Context, lane int32, from, to int64, each func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	if err := g.awaitStable(ctx, lane, to); err != nil {
		return err
	}
	c, err := kgo.NewClient(append(g.lend.clientOptions(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // they move the position too
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // compaction and retention may have moved the start
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{g.topic: {lane: kgo.NewOffset().At(from)}}),
	)...)
	if err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	defer c.Close()
	within, cancel := context.WithTimeout(ctx, g.lend.cfg.requestTimeout)
	defer cancel()
	for next := from; next < to; {
		fs := c.PollFetches(within)
		if err := fs.Err0(); err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		for _, e := range fs.Errors() {
			return fmt.Errorf("read progress of lane %d: %w", lane, e.Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() && r.Offset < to {
				each(r)
			}
		})
	}
	return nil
}

// awaitStable waits until no transaction is open below an offset of a lane's partition.
func (g *Group) awaitStable(ctx context.Context, lane int32, to int64) error {
	adm := kadm.NewClient(g.lend.current().Client)
	for {
		ends, err := adm.ListCommittedOffsets(ctx, g.topic)
		if err != nil {
			return fmt.Errorf("read the end of lane %d: %w", lane, err)
		}
		if end, ok := ends.Lookup(g.topic, lane); ok && end.Err == nil && end.Offset >= to {
			return nil
		}
		if err := rest(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the end of lane %d: %w", lane, err)
		}
	}
}
