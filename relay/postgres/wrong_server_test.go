package postgres

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
)

// TestOpen_AnotherServer: a port of MySQL or MariaDB is told from a PostgreSQL that lacks TLS or is down, and
// is not waited for.
func TestOpen_AnotherServer(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"POSTRIDER_TEST_MYSQL", "POSTRIDER_TEST_MARIADB"} {
		u, err := url.Parse(server(t, variable))
		require.NoError(t, err)
		for _, mode := range []string{"", "?sslmode=disable", "?sslmode=prefer"} {
			e := refused(t, relay.StoreOptions{URL: fmt.Sprintf("postgres://app:hunter2@%s/shop%s", u.Host, mode), Name: "n", Relay: "r", Table: ownTable()})
			require.Equal(t, relay.SetupUsage, e.Kind)
			require.Contains(t, e.Error(), u.Host+": another kind of server answers there, not PostgreSQL")
			require.NotContains(t, e.Error(), "hunter2")
		}
	}
}

// TestServerRefusal_Replica: a replica whose sessions would be SERIALIZABLE refuses the first statement, and
// waiting would not help.
func TestServerRefusal_Replica(t *testing.T) {
	t.Parallel()
	config, err := connConfig(relay.StoreOptions{URL: "postgres://app@db/shop"})
	require.NoError(t, err)
	setup := relay.AsSetup(connectError(config, &pgconn.PgError{Code: "0A000", Message: "cannot use serializable mode in a hot standby"}))
	require.Equal(t, relay.SetupUsage, setup.Kind)
	require.Contains(t, setup.Error(), "read-only replica")
	require.Contains(t, setup.Error(), "connect to the primary")
}
