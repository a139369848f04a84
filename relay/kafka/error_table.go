package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/relay"
)

// placement says what an error code means for a record that was to be written.
type placement struct {
	class relay.Class
	// batch: the broker judged a batch, and one record may be guilty alone. The records are sent again
	// in smaller groups until the guilty one stands alone, and only that one bears the verdict.
	batch bool
	// grace: the verdict may be the fault of a topic that comes later (UnknownTopicGrace).
	grace bool
	hint  string
}

const (
	hintCluster      = "the cluster takes records again once it has recovered"
	hintProducer     = "the producer starts over with a new id by itself"
	hintTopicACL     = "allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation Write --operation Describe --topic '{topic}'"
	hintCreate       = "create it: kafka-topics.sh --bootstrap-server {servers} --create --topic '{topic}' --partitions 12 --replication-factor {replicas}, or let the relay do it with relay.create_topics; once it is there, postrider events retry for events that are DEAD by then"
	hintLimit        = "raise max.message.bytes of the topic, or make the event smaller; then postrider events retry"
	hintTransactions = "allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation Write --operation Describe --transactional-id '{topic}' --resource-pattern-type prefixed"
	hintGroup        = "allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation Read --group '{topic}'"
	hintControl      = "allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation Read --operation Write --operation Create --topic '{topic}'"
	hintLanes        = "the control topic was deleted: relays make it anew by themselves, with a partition for each lane, and share the lanes out again"
	hintForeign      = "this answer does not belong to writing records: look into the broker's log"
)

var (
	clusterTrouble  = placement{class: relay.ClassUnavailable, hint: hintCluster}
	producerRestart = placement{class: relay.ClassUnavailable, hint: hintProducer}
	relayTrouble    = placement{class: relay.ClassRelay, hint: "check the kafka section of the configuration"}
	topicDenied     = placement{class: relay.ClassUnavailable, hint: hintTopicACL}
	clusterDenied   = placement{class: relay.ClassRelay, hint: "allow it: kafka-acls.sh --bootstrap-server {servers} --add --allow-principal '{principal}' --operation IdempotentWrite --cluster"}
	missingTopic    = placement{class: relay.ClassPermanent, grace: true, hint: hintCreate}
	tooLarge        = placement{class: relay.ClassPermanent, batch: true, hint: hintLimit}
	badRecord       = placement{class: relay.ClassPermanent, batch: true, hint: "the broker's log says what is wrong with the record"}
	mayPass         = placement{class: relay.ClassRetriable, batch: true, hint: "the broker's log says what went wrong"}
	// foreign codes answer other requests than those the relay makes. Should one come all the same, it
	// says nothing about the record.
	foreign = placement{class: relay.ClassUnavailable, hint: hintForeign}
)

// placements places every error code of the protocol. A test fails when the client library knows one
// that is not here.
var placements = map[*kerr.Error]placement{
	// Verdicts on a record, or on the batch that holds it.
	kerr.MessageTooLarge:             tooLarge,
	kerr.RecordListTooLarge:          tooLarge,
	kerr.InvalidRecord:               badRecord,
	kerr.UnsupportedForMessageFormat: badRecord,
	kerr.CorruptMessage:              mayPass, // damaged on the way, or a record that the broker cannot take
	kerr.UnknownServerError:          mayPass, // a fault inside the broker that this batch met

	// Verdicts on a topic.
	kerr.UnknownTopicOrPartition:  missingTopic,
	kerr.InvalidTopicException:    {class: relay.ClassPermanent, hint: "topic names have 1 to 249 letters, digits, '.', '_' or '-'"},
	kerr.TopicAuthorizationFailed: topicDenied,
	kerr.UnknownTopicID:           {class: relay.ClassUnavailable, hint: "the topic was deleted and created again; the relay looks it up anew"},
	kerr.InconsistentTopicID:      {class: relay.ClassUnavailable, hint: "the topic was deleted and created again; the relay looks it up anew"},

	// Trouble of the cluster, which passes.
	kerr.LeaderNotAvailable:           clusterTrouble,
	kerr.NotLeaderForPartition:        clusterTrouble,
	kerr.RequestTimedOut:              clusterTrouble,
	kerr.BrokerNotAvailable:           clusterTrouble,
	kerr.ReplicaNotAvailable:          clusterTrouble,
	kerr.StaleControllerEpoch:         clusterTrouble,
	kerr.NetworkException:             clusterTrouble,
	kerr.CoordinatorLoadInProgress:    clusterTrouble,
	kerr.CoordinatorNotAvailable:      clusterTrouble,
	kerr.NotCoordinator:               clusterTrouble,
	kerr.NotEnoughReplicas:            {class: relay.ClassUnavailable, hint: "fewer replicas are in sync than min.insync.replicas asks for: bring brokers back"},
	kerr.NotEnoughReplicasAfterAppend: {class: relay.ClassUnavailable, hint: "fewer replicas are in sync than min.insync.replicas asks for: bring brokers back"},
	kerr.NotController:                clusterTrouble,
	kerr.KafkaStorageError:            {class: relay.ClassUnavailable, hint: "a disk of the broker fails: look into its log"},
	kerr.LogDirNotFound:               clusterTrouble,
	kerr.ReassignmentInProgress:       clusterTrouble,
	kerr.ListenerNotFound:             clusterTrouble,
	kerr.FencedLeaderEpoch:            clusterTrouble,
	kerr.UnknownLeaderEpoch:           clusterTrouble,
	kerr.StaleBrokerEpoch:             clusterTrouble,
	kerr.OffsetNotAvailable:           clusterTrouble,
	kerr.PreferredLeaderNotAvailable:  clusterTrouble,
	kerr.EligibleLeadersNotAvailable:  clusterTrouble,
	kerr.ElectionNotNeeded:            clusterTrouble,
	kerr.ThrottlingQuotaExceeded:      {class: relay.ClassUnavailable, hint: "the client's quota is used up: raise it, or wait"},
	kerr.NewLeaderElected:             clusterTrouble,
	kerr.RebootstrapRequired:          clusterTrouble,
	kerr.OperationNotAttempted:        clusterTrouble,
	kerr.UnknownControllerID:          clusterTrouble,
	kerr.BrokerIDNotRegistered:        clusterTrouble,
	kerr.ControllerIDNotRegistered:    clusterTrouble,

	// The idempotent producer lost its place, which the client repairs.
	kerr.OutOfOrderSequenceNumber: producerRestart,
	kerr.DuplicateSequenceNumber:  producerRestart,
	kerr.InvalidProducerEpoch:     producerRestart,
	kerr.UnknownProducerID:        producerRestart,
	kerr.InvalidProducerIDMapping: producerRestart,
	kerr.ProducerFenced:           producerRestart,
	kerr.InvalidTxnState:          producerRestart,
	kerr.ConcurrentTransactions:   producerRestart,
	kerr.TransactionAbortable:     producerRestart,

	// The relay's own set-up.
	kerr.ClusterAuthorizationFailed:         clusterDenied,
	kerr.TransactionalIDAuthorizationFailed: clusterDenied,
	kerr.SaslAuthenticationFailed:           {class: relay.ClassRelay, hint: "check sasl.mechanism, user and password"},
	kerr.UnsupportedSaslMechanism:           {class: relay.ClassRelay, hint: "set sasl.mechanism to one that the broker's listener offers"},
	kerr.IllegalSaslState:                   {class: relay.ClassRelay, hint: "the listener expects another login: check security.protocol and sasl.mechanism"},
	kerr.UnsupportedVersion:                 {class: relay.ClassRelay, hint: "the broker does not know this version of the protocol: is it Kafka, and which version?"},
	kerr.InvalidRequiredAcks:                relayTrouble,
	kerr.InvalidRequest:                     {class: relay.ClassRelay, hint: "the broker does not understand the request: is it Kafka, and which version?"},
	kerr.InvalidTimestamp:                   {class: relay.ClassRelay, hint: "records carry this host's time: compare its clock with the brokers'"},
	kerr.UnsupportedCompressionType:         {class: relay.ClassRelay, hint: "choose another compression.type"},
	kerr.PolicyViolation:                    {class: relay.ClassRelay, hint: "a policy of the cluster forbids it: ask its operators"},
	kerr.SecurityDisabled:                   relayTrouble,
	kerr.MismatchedEndpointType:             {class: relay.ClassRelay, hint: "bootstrap.servers names a controller: name brokers"},
	kerr.UnsupportedEndpointType:            {class: relay.ClassRelay, hint: "bootstrap.servers names a controller: name brokers"},
	kerr.PrincipalDeserializationFailure:    relayTrouble,
	kerr.InvalidPrincipalType:               relayTrouble,
	kerr.InconsistentClusterID:              {class: relay.ClassRelay, hint: "bootstrap.servers name brokers of two clusters"},
	kerr.DelegationTokenAuthDisabled:        relayTrouble,
	kerr.DelegationTokenNotFound:            relayTrouble,
	kerr.DelegationTokenOwnerMismatch:       relayTrouble,
	kerr.DelegationTokenRequestNotAllowed:   relayTrouble,
	kerr.DelegationTokenAuthorizationFailed: relayTrouble,
	kerr.DelegationTokenExpired:             {class: relay.ClassRelay, hint: "renew the delegation token"},

	// Creating a topic by choice.
	kerr.TopicAlreadyExists:       clusterTrouble, // somebody else was faster: it is there
	kerr.InvalidPartitions:        relayTrouble,
	kerr.InvalidReplicationFactor: {class: relay.ClassRelay, hint: "the cluster has fewer brokers than the topics to create ask for"},
	kerr.InvalidReplicaAssignment: relayTrouble,
	kerr.InvalidConfig:            relayTrouble,

	// Other requests' answers.
	kerr.GroupAuthorizationFailed:               foreign,
	kerr.OffsetOutOfRange:                       foreign,
	kerr.InvalidFetchSize:                       foreign,
	kerr.OffsetMetadataTooLarge:                 foreign,
	kerr.IllegalGeneration:                      foreign,
	kerr.InconsistentGroupProtocol:              foreign,
	kerr.InvalidGroupID:                         foreign,
	kerr.UnknownMemberID:                        foreign,
	kerr.InvalidSessionTimeout:                  foreign,
	kerr.RebalanceInProgress:                    foreign,
	kerr.InvalidCommitOffsetSize:                foreign,
	kerr.InvalidTransactionTimeout:              foreign,
	kerr.TransactionalIDNotFound:                foreign,
	kerr.TransactionCoordinatorFenced:           foreign,
	kerr.NonEmptyGroup:                          foreign,
	kerr.GroupIDNotFound:                        foreign,
	kerr.FetchSessionIDNotFound:                 foreign,
	kerr.InvalidFetchSessionEpoch:               foreign,
	kerr.TopicDeletionDisabled:                  foreign,
	kerr.MemberIDRequired:                       foreign,
	kerr.GroupMaxSizeReached:                    foreign,
	kerr.FencedInstanceID:                       foreign,
	kerr.NoReassignmentInProgress:               foreign,
	kerr.GroupSubscribedToTopic:                 foreign,
	kerr.UnstableOffsetCommit:                   foreign,
	kerr.ResourceNotFound:                       foreign,
	kerr.DuplicateResource:                      foreign,
	kerr.UnacceptableCredential:                 foreign,
	kerr.InconsistentVoterSet:                   foreign,
	kerr.InvalidUpdateVersion:                   foreign,
	kerr.FeatureUpdateFailed:                    foreign,
	kerr.SnapshotNotFound:                       foreign,
	kerr.PositionOutOfRange:                     foreign,
	kerr.DuplicateBrokerRegistration:            foreign,
	kerr.FetchSessionTopicIDError:               foreign,
	kerr.IneligibleReplica:                      foreign,
	kerr.OffsetMovedToTieredStorage:             foreign,
	kerr.FencedMemberEpoch:                      foreign,
	kerr.UnreleasedInstanceID:                   foreign,
	kerr.UnsupportedAssignor:                    foreign,
	kerr.StaleMemberEpoch:                       foreign,
	kerr.UnknownSubscriptionID:                  foreign,
	kerr.TelemetryTooLarge:                      foreign,
	kerr.InvalidRegistration:                    foreign,
	kerr.InvalidRecordState:                     foreign,
	kerr.ShareSessionNotFound:                   foreign,
	kerr.InvalidShareSessionEpoch:               foreign,
	kerr.FencedStateEpoch:                       foreign,
	kerr.InvalidVoterKey:                        foreign,
	kerr.DuplicateVoter:                         foreign,
	kerr.VoterNotFound:                          foreign,
	kerr.InvalidRegularExpression:               foreign,
	kerr.StreamsInvalidTopology:                 foreign,
	kerr.StreamsInvalidTopologyEpoch:            foreign,
	kerr.StreamsTopologyFenced:                  foreign,
	kerr.ShareSessionLimitReached:               foreign,
	kerr.GroupDeletionFailed:                    foreign,
	kerr.StreamsTopologyDescriptionUpdateFailed: foreign,
}

// defaultGrace is how long a missing topic may take to appear.
const defaultGrace = time.Minute
