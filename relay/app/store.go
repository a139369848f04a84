package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/relay/config"
	"github.com/postrider/postrider/relay/mysql"
	"github.com/postrider/postrider/relay/postgres"
	"github.com/postrider/postrider/relay/sqlite"
)

// Store is what every database package offers: the poller's half, the operator's half, and what it
// noticed while it looked at the table.
type Store interface {
	relay.Store
	relay.Admin
	// Notices are facts about the table worth a line at start, such as a column type that rewrites
	// payloads.
	Notices() []string
	// Identity names database and table wherever they are reached from.
	Identity(ctx context.Context) (string, error)
}

// OpenStore opens the configured table once and checks it. A server that does not answer is a
// *relay.SetupError of kind SetupUnreachable; OpenStore does not wait for it.
func OpenStore(ctx context.Context, cfg *config.Config) (Store, error) {
	return openStore(ctx, cfg, false)
}

// LookStore is OpenStore for those who only look: SELECT is all the right that it asks for.
func LookStore(ctx context.Context, cfg *config.Config) (Store, error) {
	return openStore(ctx, cfg, true)
}

func openStore(ctx context.Context, cfg *config.Config, readOnly bool) (Store, error) {
	url := cfg.DatabaseURL()
	o := relay.StoreOptions{
		URL: url, Name: cfg.Outbox.Name, Relay: cfg.Relay.Name, Table: cfg.Table(), Claim: cfg.Relay.Claim,
		Lanes: int32(cfg.Relay.Lanes), ReadOnly: readOnly,
		OnDead: cfg.Relay.Retry.OnDead, ClaimTimeout: cfg.Relay.ClaimTimeout,
	}
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme {
	case "postgres", "postgresql":
		return opened(postgres.Open(ctx, o))
	case "mysql", "mariadb":
		return opened(mysql.Open(ctx, o))
	case "sqlite":
		return opened(sqlite.Open(ctx, o))
	}
	return nil, unknownScheme(scheme)
}

func unknownScheme(scheme string) error {
	return &relay.SetupError{Kind: relay.SetupUsage, Thing: "database.url",
		Reason: fmt.Sprintf("unknown scheme %q", scheme), Fix: "use postgres://, mysql://, mariadb:// or sqlite:"}
}

// opened keeps a nil *Store from becoming a Store that is not nil.
func opened[S Store](s S, err error) (Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
