# shellcheck shell=bash
#
# mariadb: MariaDB from Debian.

mariadb_install() { apt_install mariadb-server; }
mariadb_port() { port "$MARIADB_PORT"; }
mariadb_env() {
    echo "POSTRIDER_TEST_MARIADB=mariadb://root@127.0.0.1:$(mariadb_port)/postrider_test"
}
mariadb_version() { mariadbd --version; }
mariadb_signal() { echo TERM; }

mariadb_prepare() {
    local dir=$INSTANCE_DIR/mariadb
    if [[ ! -d $dir/data ]]; then
        new_data_dir mariadb mysql:mysql
        # Its own script takes no blank in the path that it is given.
        (cd "$dir/new" && mariadb-install-db --no-defaults --user=mysql --datadir=./data \
            --auth-root-authentication-method=normal --skip-test-db)
        mv "$dir/new/data" "$dir/data"
    fi
    mysql_init_statements >"$dir/data/postrider-init.sql"
}

# The socket is named relative to the data directory: an absolute path may be too long for one.
mariadb_exec() {
    exec setsid mariadbd --no-defaults --user=mysql --datadir="$PWD" \
        --init-file="$PWD/postrider-init.sql" --bind-address=127.0.0.1 --port="$(mariadb_port)" \
        --socket=mariadbd.sock --pid-file=mariadbd.pid --max-connections=300 \
        --server-id=1 --log-bin=binlog --binlog-format=ROW "${BINLOG_KEPT[@]}"
}

mariadb_answers() {
    mariadb-admin --no-defaults --protocol=tcp --host=127.0.0.1 --port="$(mariadb_port)" \
        --user=root --connect-timeout=2 ping
}
