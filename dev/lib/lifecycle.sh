# shellcheck shell=bash
#
# What a command does with one server, and how it reports it. A server NAME is a set of functions
# NAME_install, _prepare (data directory and configuration), _exec, _answers, _signal, _port, _env
# and _version, one file each beside this one.

# Seconds to wait for an answer. After a crash a database first reads its log.
START_TIMEOUT=120

# fn NAME prints the prefix of a server's functions.
fn() { echo "${1//-/_}"; }

# up NAME… starts servers side by side. It is a plain job for each, never a condition, since bash
# would ignore errors inside of one.
up() {
    local name jobs=() job failed=0
    for name in "$@"; do
        up_server "$name" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || failed=1; done
    return "$failed"
}

up_server() {
    local name=$1 dir=$INSTANCE_DIR/$1 began
    began=$(now_ms)
    # One that was just killed may still count as running; then it does not answer, and is gone.
    if running "$name" >/dev/null && wait_until_answers "$name" "$START_TIMEOUT"; then
        report "$name" 'already up'
        return
    fi
    # shellcheck disable=SC2064  # expanded now
    trap "report_failure '$name'" EXIT
    ! running "$name" >/dev/null || exit 1
    claim_place "$name"
    "$(fn "$name")_prepare" >"$dir/prepare.log" 2>&1
    launch "$name"
    wait_until_answers "$name" "$START_TIMEOUT"
    trap - EXIT
    report "$name" "up in $(seconds_since "$began") s"
}

# claim_place NAME makes sure that nobody else has the server's data directory or port. Workers that
# outlive a killed parent are waited for.
claim_place() {
    local data=$INSTANCE_DIR/$1/data port pids
    mkdir -p "$INSTANCE_DIR/$1"
    mapfile -t pids < <(holders "$data")
    wait_until_gone 10 "${pids[@]}" ||
        die "$1: pid ${pids[*]} works in $data, and no pid file names it: stop it with kill"
    port=$("$(fn "$1")_port")
    ! listening "$port" ||
        die "$1: another program listens on port $port: stop it, or set POSTRIDER_DEV_PORT_OFFSET"
}

# report NAME TEXT prints one line with the server's address.
report() { printf '%-16s %-16s %s\n' "$1" "127.0.0.1:$("$(fn "$1")_port")" "$2"; }

# report_failure NAME shows the last that the server said.
report_failure() {
    local log
    report "$1" 'IS NOT UP' >&2
    for log in "$INSTANCE_DIR/$1/prepare.log" "$INSTANCE_DIR/$1/log"; do
        [[ ! -s $log ]] || { echo "--- the end of $log" && tail -n 15 "$log"; } >&2
    done
}

# new_data_dir NAME OWNER makes the place in which a data directory is built. It gets its final name
# when it is whole, so that an interrupted first start leaves nothing that looks like one.
new_data_dir() {
    rm -rf "$INSTANCE_DIR/$1/new"
    install -d -o "${2%:*}" -g "${2#*:}" "$INSTANCE_DIR/$1/new" "$INSTANCE_DIR/$1/new/data"
}

down() {
    local name began
    for name in "$@"; do
        running "$name" >/dev/null || continue
        began=$(now_ms)
        stop "$name"
        report "$name" "down in $(seconds_since "$began") s"
    done
}

kill_servers() {
    local name
    for name in "$@"; do
        if running "$name" >/dev/null; then
            crash "$name"
            report "$name" 'killed'
        else
            warn "$name is not up"
        fi
    done
}

wipe() {
    local name
    down "$@"
    for name in "$@"; do rm -rf "${INSTANCE_DIR:?}/$name"; done
}

status() {
    local name pid state
    say "instance $POSTRIDER_DEV_INSTANCE in $INSTANCE_DIR"
    for name in "$@"; do
        if ! pid=$(running "$name"); then
            state='down'
        elif "$(fn "$name")_answers" >/dev/null 2>&1; then
            state="up    pid $pid    $("$(fn "$name")_version")"
        else
            state="pid $pid, does not answer"
        fi
        report "$name" "$state"
    done
}

# environment prints the address of each server that is up, and a comment for the others.
environment() {
    local name
    for name in "$@"; do
        if running "$name" >/dev/null; then
            "$(fn "$name")_env" | sed "s/=\(.*\)/='\1'/; s/^/export /"
        else
            echo "# $name is not up"
        fi
    done
}

# install_servers NAME… lets the downloads run beside each other; apt's own turns are kept by a lock.
install_servers() {
    local name jobs=() job failed=0
    for name in "$@"; do
        "$(fn "$name")_install" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || failed=1; done
    return "$failed"
}
