# shellcheck shell=bash disable=SC2034  # what is set here is read by dev/test
#
# Which servers a test run gets, and from where: Debian's packages, Docker Compose, or none. The tests
# find them by the variables below; one that is set already is left as it is.

TEST_VARIABLES=(
    POSTRIDER_TEST_POSTGRES POSTRIDER_TEST_POSTGRES_NEWEST POSTRIDER_TEST_PGBOUNCER
    POSTRIDER_TEST_MYSQL POSTRIDER_TEST_MARIADB POSTRIDER_TEST_KAFKA
)

# What provide_servers found out, for the last lines of the run.
SERVERS_FAILED=
HOW_TO_STOP=

# provide_servers starts what this machine can run and exports the addresses.
provide_servers() {
    local lines
    if [[ -z $(missing_servers) ]]; then
        say 'servers: as the environment names them'
    elif ((EUID == 0)) && debian; then
        say 'servers: dev/servers up'
        "$DEV_DIR/servers" up || SERVERS_FAILED=1
        lines=$("$DEV_DIR/servers" env)
        adopt_environment "$lines"
        HOW_TO_STOP='dev/servers down'
    elif docker_works; then
        say 'servers: docker compose'
        compose up -d --wait || SERVERS_FAILED=1
        adopt_environment "$(compose_environment)"
        HOW_TO_STOP='docker compose --env-file dev/versions.sh -f dev/compose.yaml down'
    else
        say 'servers: none to start; that takes root on Debian, or Docker Compose and its engine'
    fi
}

# missing_servers prints the variables that are not set.
missing_servers() {
    local name
    for name in "${TEST_VARIABLES[@]}"; do [[ -n ${!name:-} ]] || echo "$name"; done
}

# adopt_environment LINES exports what `export NAME='value'` lines say, unless it is set.
adopt_environment() {
    local name value
    while IFS='=' read -r name value; do
        name=${name#export }
        [[ $name == POSTRIDER_TEST_* && -z ${!name:-} ]] || continue
        value=${value#\'}
        export "$name=${value%\'}"
    done <<<"$1"
}

# docker_works asks the engine, since a client alone starts nothing.
docker_works() { docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; }
compose() { docker compose --env-file "$DEV_DIR/versions.sh" -f "$DEV_DIR/compose.yaml" "$@"; }

compose_environment() {
    local host=127.0.0.1
    cat <<ENV
POSTRIDER_TEST_POSTGRES=postgres://postgres@$host:$POSTGRES_PORT/postgres?sslmode=disable
POSTRIDER_TEST_POSTGRES_NEWEST=postgres://postgres@$host:$POSTGRES_NEWEST_PORT/postgres?sslmode=disable
POSTRIDER_TEST_PGBOUNCER=postgres://postgres@$host:$PGBOUNCER_PORT/postgres?sslmode=disable
POSTRIDER_TEST_MYSQL=mysql://root@$host:$MYSQL_PORT/postrider_test
POSTRIDER_TEST_MARIADB=mariadb://root@$host:$MARIADB_PORT/postrider_test
POSTRIDER_TEST_KAFKA=$host:$KAFKA_PORT
ENV
}
