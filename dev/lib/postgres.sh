# shellcheck shell=bash
#
# postgres: PostgreSQL from Debian, the oldest release that the relay supports. What both PostgreSQL
# servers share lies in postgres_common.sh.

POSTGRES_BIN=/usr/lib/postgresql/$POSTGRES_VERSION/bin

postgres_install() { apt_install "postgresql-$POSTGRES_VERSION"; }
postgres_port() { port "$POSTGRES_PORT"; }
postgres_url() { echo "postgres://postgres@127.0.0.1:$(postgres_port)/postgres?sslmode=disable"; }
postgres_env() { echo "POSTRIDER_TEST_POSTGRES=$(postgres_url)"; }
postgres_version() { "$POSTGRES_BIN/postgres" --version; }
postgres_signal() { echo INT; } # a fast shutdown: sessions are cut, data is flushed

postgres_prepare() {
    local dir=$INSTANCE_DIR/postgres
    if [[ ! -d $dir/data ]]; then
        new_data_dir postgres postgres:postgres
        as_postgres "$POSTGRES_BIN/initdb" -D "$dir/new/data" "${INITDB_OPTIONS[@]}"
        mv "$dir/new/data" "$dir/data"
    fi
    postgres_configure "$dir/data" "$(postgres_port)"
}

postgres_exec() { exec setsid setpriv --reuid=postgres --regid=postgres --init-groups "$POSTGRES_BIN/postgres" -D .; }
postgres_answers() { postgres_select "$(postgres_port)"; }
as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }

# postgres_select PORT asks over TCP, as the tests do.
postgres_select() {
    PGCONNECT_TIMEOUT=2 psql -X -q -w -h 127.0.0.1 -p "$1" -U postgres -d postgres -c 'SELECT 1'
}
