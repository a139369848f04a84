# shellcheck shell=bash
#
# postgres: PostgreSQL from Debian, the oldest release that the relay supports. What both PostgreSQL
# servers share lies in postgres_common.sh.

POSTGRES_BIN=/usr/lib/postgresql/$POSTGRES_VERSION/bin

postgres_install() { apt_install "postgresql-$POSTGRES_VERSION"; }
postgres_port() { port "$POSTGRES_PORT"; }
postgres_env() { echo "POSTRIDER_TEST_POSTGRES=$(postgres_url "$(postgres_port)")"; }
postgres_version() { "$POSTGRES_BIN/postgres" --version; }
postgres_signal() { echo INT; } # a fast shutdown: sessions are cut, data is flushed

postgres_prepare() {
    local dir=$INSTANCE_DIR/postgres
    if [[ ! -d $dir/data ]]; then
        new_data_dir postgres postgres:postgres
        "${AS_POSTGRES[@]}" "$POSTGRES_BIN/initdb" -D "$dir/new/data" "${INITDB_OPTIONS[@]}"
        mv "$dir/new/data" "$dir/data"
    fi
    postgres_configure "$dir/data" "$(postgres_port)"
}

postgres_exec() { exec setsid "${AS_POSTGRES[@]}" "$POSTGRES_BIN/postgres" -D .; }
postgres_answers() { postgres_select "$(postgres_port)"; }
