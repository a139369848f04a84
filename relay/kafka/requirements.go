package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/relay"
)

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
			Fix: g.lend.fill("kafka-features.sh --bootstrap-server {servers} upgrade --feature transaction.version=2 (brokers of Kafka 4.0 or later), "+
				"or write delivery: at-least-once", g.topic)}
	}
	err = initProducer(ctx, c, g.topic+"/"+g.runID+"/check")
	switch {
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "relay.delivery", Err: err,
			Reason: fmt.Sprintf("exactly-once asks for transactions of up to %s, and the brokers allow less (transaction.max.timeout.ms)", transactionTimeout),
			Fix:    "raise transaction.max.timeout.ms of the brokers, or write delivery: at-least-once"}
	case err != nil:
		return fmt.Errorf("ask for a transactional id: %w", err)
	}
	return nil
}

// checkProtocol finds out whether the brokers speak the group protocol that was asked for: the client library would
// use the classic one otherwise and not say so. The member that is told to leave does not exist.
func (g *Group) checkProtocol(ctx context.Context) error {
	if !g.lend.cfg.consumerProtocol {
		return nil
	}
	c := g.lend.current().Client
	refused := func(reason string) error {
		return &relay.SetupError{Kind: relay.SetupUsage, Thing: "kafka.group.protocol", Reason: "consumer is not possible: " + reason,
			Fix: "write group.protocol: classic, or have Kafka 4.0 or later on all brokers, with the feature group.version=1 and consumer among group.coordinator.rebalance.protocols"}
	}
	old, err := lacking(ctx, c, kmsg.ConsumerGroupHeartbeat, 1)
	switch {
	case err != nil:
		return err
	case old != "":
		return refused("broker " + old + " does not know it")
	}
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = g.topic, "check", -1
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("ask for the group's protocol: %w", err)
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.UnsupportedVersion):
		return refused("it is switched off at the brokers")
	case forbidden(err), kerr.IsRetriable(err):
		return fmt.Errorf("ask for the group's protocol: %w", err)
	}
	return nil
}

// checkRights says whether this user may do with the control topic what it will have to.
func (g *Group) checkRights(t kadm.TopicDetail) error {
	if len(t.AuthorizedOperations) == 0 {
		return nil // the brokers do not say
	}
	for _, op := range []kadm.ACLOperation{kadm.OpRead, kadm.OpWrite} {
		if !slices.Contains(t.AuthorizedOperations, op) {
			return g.setup(kerr.TopicAuthorizationFailed)
		}
	}
	return nil
}

// checkTopic judges how the control topic is kept. It may have been made by hand.
func (g *Group) checkTopic(ctx context.Context, t kadm.TopicDetail) error {
	if n := int32(len(t.Partitions)); n != g.o.Lanes {
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: "topic " + g.topic,
			Reason: fmt.Sprintf("has %d partitions, and relay.lanes is %d: the number of lanes is fixed by the topic", n, g.o.Lanes),
			Fix:    fmt.Sprintf("set relay.lanes: %d, or choose another outbox.name", n)}
	}
	refused := func(reason, settings string) error {
		return &relay.SetupError{Kind: relay.SetupConflict, Thing: "topic " + g.topic, Reason: reason,
			Fix: g.lend.fill("kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics --entity-name '{topic}' --add-config "+settings, g.topic)}
	}
	found, err := g.lend.describe(ctx, []string{g.topic})
	if err != nil {
		return fmt.Errorf("look the control topic up: %w", err)
	}
	info := found[0]
	if info.failure != nil {
		return fmt.Errorf("look the control topic up: %w", info.failure)
	}
	switch {
	case info.configErr != nil:
	case info.policy != "compact":
		return refused("holds the lanes' progress, which must not be deleted by age, and its cleanup.policy is "+info.policy, "cleanup.policy=compact")
	case info.maxBytes < leastBytes:
		return refused(fmt.Sprintf("its max.message.bytes is %d, and progress records take up to %d", info.maxBytes, leastBytes), fmt.Sprintf("max.message.bytes=%d", leastBytes))
	case info.minISR > info.replication:
		return refused(fmt.Sprintf("min.insync.replicas is %d with %d replicas: no record can be acknowledged", info.minISR, info.replication),
			fmt.Sprintf("min.insync.replicas=%d", max(1, info.replication-1)))
	}
	info.policy = "" // is as it should be
	for _, f := range g.lend.check(info) {
		g.log.Warn("about the control topic", "topic", f.Topic, "problem", f.Problem, "advice", f.Advice)
	}
	return nil
}

// leastBytes is what the control topic must take in one batch.
const leastBytes = maxNote + 16<<10
