# shellcheck shell=bash
#
# What the PostgreSQL servers share, and the pooler in front of one: user, options of initdb,
# configuration, who may log in, and how they are asked.

# PostgreSQL and the pooler refuse to run as root.
# shellcheck disable=SC2034  # read by the files of the servers
AS_POSTGRES=(setpriv --reuid=postgres --regid=postgres --init-groups)

# The same locale on every machine. Data files are flushed as in production: the benchmarks measure
# real commits, so fsync stays on.
# shellcheck disable=SC2034  # read by postgres.sh and postgres_newest.sh
INITDB_OPTIONS=(-U postgres -A trust -E UTF8 --locale=C.UTF-8)

# postgres_configure DATA PORT writes what the tests need, at every start, so that a change of this
# file reaches data directories that exist.
postgres_configure() {
    local data=$1
    # Nobody works in the data directory by now, but a lock left by a crash may name a pid that lives.
    rm -f "$data/postmaster.pid"
    postgres_settings "$2" >"$data/postrider.conf"
    grep -qxF "include 'postrider.conf'" "$data/postgresql.conf" ||
        echo "include 'postrider.conf'" >>"$data/postgresql.conf"
    # The superuser needs no password; every other role does, so that a test can see one refused.
    cat >"$data/pg_hba.conf" <<'HBA'
host  all          postgres  127.0.0.1/32  trust
host  replication  postgres  127.0.0.1/32  trust
host  all          all       127.0.0.1/32  scram-sha-256
host  replication  all       127.0.0.1/32  scram-sha-256
HBA
}

# There is no Unix socket: its path would be too long in a deep directory, and the tests use TCP.
# Slots that a broken test forgot may keep 4 GB of log, not the whole disk.
postgres_settings() {
    cat <<CONF
listen_addresses = '127.0.0.1'
port = $1
unix_socket_directories = ''
max_connections = 200
wal_level = logical
max_replication_slots = 20
max_wal_senders = 20
max_slot_wal_keep_size = 4GB
CONF
}

postgres_url() { echo "postgres://postgres@127.0.0.1:$1/postgres?sslmode=disable"; }

# postgres_select PORT asks over TCP, as the tests do.
postgres_select() {
    PGCONNECT_TIMEOUT=2 psql -X -q -w -h 127.0.0.1 -p "$1" -U postgres -d postgres -c 'SELECT 1'
}
