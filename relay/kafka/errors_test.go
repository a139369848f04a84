package kafka

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/relay"
)

// Every code that the client library knows is placed on purpose: an upgrade that brings a new one fails
// here.
func TestPlacements_CoverEveryErrorCode(t *testing.T) {
	t.Parallel()
	known := 0
	for code := int16(-1); code < 1000; code++ {
		err := kerr.TypedErrorForCode(code)
		if err == nil || err.Code != code {
			continue // 0 is no error, and codes that do not exist give UNKNOWN_SERVER_ERROR
		}
		known++
		p, placed := placements[err]
		require.True(t, placed, "%s (%d) has no place", err.Message, code)
		require.Contains(t, []relay.Class{relay.ClassRetriable, relay.ClassPermanent, relay.ClassUnavailable, relay.ClassRelay}, p.class)
		require.NotEmpty(t, p.hint, err.Message)
		if p.batch {
			require.Contains(t, []relay.Class{relay.ClassRetriable, relay.ClassPermanent}, p.class, "%s: only a record can be guilty alone", err.Message)
		}
	}
	require.Equal(t, len(placements), known)
}

// What may pass must not cost an attempt, and what cannot pass must not be tried twenty times.
func TestPlacements_ThatMatter(t *testing.T) {
	t.Parallel()
	want := map[*kerr.Error]relay.Class{
		kerr.MessageTooLarge: relay.ClassPermanent, kerr.RecordListTooLarge: relay.ClassPermanent, kerr.InvalidRecord: relay.ClassPermanent,
		kerr.InvalidTopicException: relay.ClassPermanent, kerr.UnknownTopicOrPartition: relay.ClassPermanent,
		kerr.CorruptMessage: relay.ClassRetriable, kerr.UnknownServerError: relay.ClassRetriable,
		kerr.NotLeaderForPartition: relay.ClassUnavailable, kerr.LeaderNotAvailable: relay.ClassUnavailable, kerr.NotEnoughReplicas: relay.ClassUnavailable,
		kerr.NotEnoughReplicasAfterAppend: relay.ClassUnavailable, kerr.RequestTimedOut: relay.ClassUnavailable, kerr.KafkaStorageError: relay.ClassUnavailable,
		kerr.CoordinatorNotAvailable: relay.ClassUnavailable, kerr.TopicAuthorizationFailed: relay.ClassUnavailable,
		kerr.OutOfOrderSequenceNumber: relay.ClassUnavailable, kerr.UnknownProducerID: relay.ClassUnavailable,
		kerr.SaslAuthenticationFailed: relay.ClassRelay, kerr.ClusterAuthorizationFailed: relay.ClassRelay, kerr.UnsupportedVersion: relay.ClassRelay,
	}
	for err, class := range want {
		require.Equal(t, class, placements[err].class, err.Message)
	}
	attempts := 0
	for _, p := range placements {
		if p.class == relay.ClassRetriable {
			attempts++
		}
	}
	require.Equal(t, 2, attempts, "few errors cost an attempt")
}

func TestPlace_ErrorsOfTheLibraryAndTheNetwork(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err   error
		class relay.Class
		code  string
	}{
		{fmt.Errorf("wrapped: %w (uncompressed_bytes=1)", kerr.MessageTooLarge), relay.ClassPermanent, "MESSAGE_TOO_LARGE"},
		{&kerr.Error{Message: "FROM_THE_FUTURE", Code: 999}, relay.ClassUnavailable, "FROM_THE_FUTURE"},
		{kgo.ErrRecordTimeout, relay.ClassUnavailable, CodeClient},
		{kgo.ErrRecordRetries, relay.ClassUnavailable, CodeClient},
		{kgo.ErrAborting, relay.ClassUnavailable, CodeClient},
		{kgo.ErrMaxBuffered, relay.ClassUnavailable, CodeBufferFull},
		{kgo.ErrClientClosed, relay.ClassUnavailable, CodeClosed},
		{&kgo.ErrDataLoss{Topic: "t"}, relay.ClassUnavailable, CodeClient},
		{&kgo.ErrFirstReadEOF{}, relay.ClassUnavailable, CodeUnreachable},
		{context.DeadlineExceeded, relay.ClassUnavailable, CodeUnreachable},
		{fmt.Errorf("metadata: %w", dial), relay.ClassUnavailable, CodeUnreachable},
		{&net.DNSError{Name: "kafka", IsNotFound: true}, relay.ClassUnavailable, CodeUnreachable},
		{io.EOF, relay.ClassUnavailable, CodeUnreachable},
		{x509.UnknownAuthorityError{}, relay.ClassRelay, CodeTLS},
		{errors.New("something new"), relay.ClassUnavailable, CodeClient},
	} {
		p, code := place(c.err)
		require.Equal(t, c.class, p.class, "%v", c.err)
		require.Equal(t, c.code, code, "%v", c.err)
	}
}

func TestSink_FailureFillsItsHint(t *testing.T) {
	t.Parallel()
	s := open(t, parsed(t, properties("a:1", "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN", "sasl.username", "app", "sasl.password", "hidden")), Options{})
	f := s.failure("orders", kerr.TopicAuthorizationFailed)
	require.Equal(t, "allow it: kafka-acls.sh --bootstrap-server a:1 --add --allow-principal 'User:app' --operation Write --operation Describe --topic 'orders'", f.Hint)
	require.NotContains(t, f.Error(), "hidden")
	require.Zero(t, f.Grace)
	f = s.failure("orders", kerr.UnknownTopicOrPartition)
	require.Equal(t, defaultGrace, f.Grace)
	require.Contains(t, f.Hint, "--create --topic 'orders'")
}
