# shellcheck shell=bash
#
# mysql: MySQL out of the Debian tree.

# Test runs write much of it, and nobody reads it a day later; MariaDB would keep it for ever.
# shellcheck disable=SC2034  # read by mariadb.sh too
BINLOG_KEPT=(--binlog-expire-logs-seconds=86400)

mysql_install() {
    apt_install debootstrap
    newest_tree_install
}

mysql_port() { port "$MYSQL_PORT"; }
mysql_env() { echo "POSTRIDER_TEST_MYSQL=mysql://root@127.0.0.1:$(mysql_port)/postrider_test"; }
mysql_version() { chroot "$NEWEST_TREE" mysqld --version; }
mysql_signal() { echo TERM; }

mysql_prepare() {
    local dir=$INSTANCE_DIR/mysql
    if [[ ! -d $dir/data ]]; then
        new_data_dir mysql "$(newest_tree_user mysql)"
        (in_newest_tree "$dir/new" mysqld --no-defaults --initialize-insecure --user=mysql \
            --datadir=/srv/data)
        mv "$dir/new/data" "$dir/data"
    fi
    # Nobody works in the data directory by now, but a lock left by a crash may name a pid that lives.
    rm -f "$dir/data/mysqld.sock.lock"
    mysql_init_statements >"$dir/data/postrider-init.sql"
}

mysql_exec() {
    in_newest_tree "$PWD" setsid mysqld --no-defaults --user=mysql --datadir=/srv \
        --init-file=/srv/postrider-init.sql --bind-address=127.0.0.1 --port="$(mysql_port)" \
        --socket=/srv/mysqld.sock --pid-file=/srv/mysqld.pid --mysqlx=OFF --max-connections=300 \
        --server-id=1 --log-bin=binlog --gtid-mode=ON --enforce-gtid-consistency=ON \
        "${BINLOG_KEPT[@]}"
}

mysql_answers() {
    chroot "$NEWEST_TREE" mysqladmin --no-defaults --protocol=tcp --host=127.0.0.1 \
        --port="$(mysql_port)" --user=root --connect-timeout=2 ping
}

# mysql_init_statements run at each start, before the server takes a connection.
mysql_init_statements() {
    cat <<'SQL'
CREATE DATABASE IF NOT EXISTS postrider_test;
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
SQL
}
