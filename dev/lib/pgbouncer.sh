# shellcheck shell=bash
#
# pgbouncer: transaction pooling in front of the postgres server. Debian 12 carries a release that
# knows no prepared statements across transactions, which is what max_prepared_statements=0 means in
# later ones. It asks again soon when postgres is not up yet.

pgbouncer_install() { apt_install pgbouncer; }

pgbouncer_port() { port "$PGBOUNCER_PORT"; }
pgbouncer_env() {
    echo "POSTRIDER_TEST_PGBOUNCER=$(postgres_url "$(pgbouncer_port)")"
}
pgbouncer_version() { pgbouncer --version | head -n 1; }
pgbouncer_signal() { echo TERM; }

pgbouncer_prepare() {
    local dir=$INSTANCE_DIR/pgbouncer
    install -d -o postgres -g postgres "$dir/data"
    echo '"postgres" ""' >"$dir/data/users.txt"
    cat >"$dir/data/pgbouncer.ini" <<INI
[databases]
* = host=127.0.0.1 port=$(postgres_port)
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(pgbouncer_port)
unix_socket_dir =
auth_type = trust
auth_file = users.txt
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
server_login_retry = 0.2
INI
}

pgbouncer_exec() { exec setsid "${AS_POSTGRES[@]}" pgbouncer pgbouncer.ini; }
pgbouncer_answers() { postgres_select "$(pgbouncer_port)"; }
