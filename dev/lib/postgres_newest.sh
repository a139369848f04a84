# shellcheck shell=bash
#
# postgres-newest: the newest PostgreSQL at hand, out of the Debian tree.

POSTGRES_NEWEST_BIN=/usr/lib/postgresql/$POSTGRES_NEWEST_VERSION/bin

postgres_newest_install() {
    apt_install debootstrap "postgresql-client-$POSTGRES_VERSION"
    newest_tree_install
}

postgres_newest_port() { port "$POSTGRES_NEWEST_PORT"; }
postgres_newest_env() {
    echo "POSTRIDER_TEST_POSTGRES_NEWEST=$(postgres_url "$(postgres_newest_port)")"
}
postgres_newest_version() { chroot "$NEWEST_TREE" "$POSTGRES_NEWEST_BIN/postgres" --version; }
postgres_newest_signal() { echo INT; }

postgres_newest_prepare() {
    local dir=$INSTANCE_DIR/postgres-newest
    if [[ ! -d $dir/data ]]; then
        new_data_dir postgres-newest "$(newest_tree_user postgres)"
        (in_newest_tree "$dir/new" "${AS_POSTGRES[@]}" \
            "$POSTGRES_NEWEST_BIN/initdb" -D /srv/data "${INITDB_OPTIONS[@]}")
        mv "$dir/new/data" "$dir/data"
    fi
    postgres_configure "$dir/data" "$(postgres_newest_port)"
}

postgres_newest_exec() {
    in_newest_tree "$PWD" setsid "${AS_POSTGRES[@]}" \
        "$POSTGRES_NEWEST_BIN/postgres" -D /srv
}

postgres_newest_answers() { postgres_select "$(postgres_newest_port)"; }
