package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/postrider/postrider/relay"
)

// OpenDB connects to database.url for work on tables rather than events. Why there is no connection it
// says in Open's words, as a *relay.SetupError; a context that ended is returned as it is.
func OpenDB(ctx context.Context, url string) (*sql.DB, error) {
	config, err := connConfig(relay.StoreOptions{URL: url, Relay: "schema"})
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, unreached(ctx, config, err)
	}
	return db, nil
}
