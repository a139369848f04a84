package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay/demo"
)

func TestDemoVerdict(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	require.NoError(t, demoVerdict(ctx, demo.Summary{EventsCommitted: 3, EventsDelivered: 2, Dead: 1, DuplicatesSkipped: 4}))

	err := demoVerdict(ctx, demo.Summary{Doubled: 1})
	require.Equal(t, exitFindings, exitCode(err))
	require.ErrorContains(t, err, "a promise was broken")

	err = demoVerdict(ctx, demo.Summary{Undelivered: "not everything was delivered in time"})
	require.Equal(t, exitFindings, exitCode(err))
	require.ErrorContains(t, err, "in time")

	cut, stop := context.WithTimeoutCause(ctx, 0, &timeoutError{limit: time.Second})
	defer stop()
	<-cut.Done()
	require.ErrorContains(t, demoVerdict(cut, demo.Summary{}), "--timeout")
}

func TestStartedAs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "go run ./relay/cmd/postrider", startedAs("/tmp/go-build3405/b001/exe/postrider", "/tmp/go-build3405/b001/exe/postrider"))
	require.Equal(t, "go run ./relay/cmd/postrider", startedAs("/root/.cache/go-build/d1/d1f0-d/postrider", "/root/.cache/go-build/d1/d1f0-d/postrider"))
	require.Equal(t, "./postrider", startedAs("/srv/postrider", "./postrider"))
	require.Equal(t, "'./my tools/postrider'", startedAs("/srv/my tools/postrider", "./my tools/postrider"))
}
