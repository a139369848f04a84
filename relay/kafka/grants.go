package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/relay"
)

// forbidden says whether a right is missing.
func forbidden(err error) bool {
	return errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.TopicAuthorizationFailed) ||
		errors.Is(err, kerr.ClusterAuthorizationFailed) || errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
}

// grant is the command that gives the right whose lack err tells of, for control topic, group and transactional ids,
// which bear the same name; "" when err is about something else.
func (s *Sink) grant(name string, err error) string {
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return s.fill(hintTransactions, name)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return s.fill(hintGroup, name)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return s.fill(hintControl, name)
	}
	return ""
}

// setup puts a broker's refusal into a person's words, with the next step.
func (g *Group) setup(err error) error {
	e := &relay.SetupError{Kind: relay.SetupUsage, Thing: "group " + g.topic, Reason: err.Error(), Err: err}
	who := g.lend.cfg.Principal()
	switch {
	case forbidden(err):
		e.Kind, e.Fix = relay.SetupPermission, g.lend.grant(g.topic, err)
		switch {
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			e.Thing, e.Reason = "transactional ids "+g.topic+"/…", who+" may not use them"
		case errors.Is(err, kerr.GroupAuthorizationFailed):
			e.Reason = who + " may not take part in it"
		default:
			e.Thing, e.Reason = "topic "+g.topic, who+" may not make, read or write the control topic of the lanes"
		}
	case errors.Is(err, kerr.FencedInstanceID):
		e.Kind, e.Thing = relay.SetupConflict, "kafka.group.instance.id "+g.lend.cfg.InstanceID
		e.Reason, e.Fix = "another relay has come with the same id and has this one's place", "give each relay an id of its own, or let only one run"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		e.Kind, e.Reason = relay.SetupConflict, "its members share the lanes out in a way that this relay does not know: they are no relays, or of another version"
		e.Fix = g.lend.fill("see who they are: kafka-consumer-groups.sh --bootstrap-server {servers} --describe --group '{topic}' --members --verbose; stop them, or choose another outbox.name", g.topic)
	case errors.Is(err, kerr.GroupMaxSizeReached):
		e.Kind, e.Reason, e.Fix = relay.SetupConflict, "it has as many members as the brokers allow (group.max.size)", "run fewer relays, or raise it"
	case errors.Is(err, kerr.InvalidSessionTimeout):
		e.Thing, e.Reason = "relay.session_timeout", g.o.SessionTimeout.String()+" is not within what the brokers allow"
		e.Fix = "choose a value between group.min.session.timeout.ms (6 s unless changed) and group.max.session.timeout.ms"
	case errors.Is(err, kerr.InvalidReplicationFactor):
		e.Thing, e.Reason = "topic "+g.topic, "cannot be made: "+err.Error()
		e.Fix = g.lend.fill("make it by hand: kafka-topics.sh --bootstrap-server {servers} --create --topic '{topic}' --partitions "+fmt.Sprint(g.o.Lanes)+
			" --replication-factor {replicas} --config cleanup.policy=compact", g.topic)
	}
	return e
}
