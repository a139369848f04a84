# shellcheck shell=bash
#
# Processes: started apart from the caller's session, found by a pid file that cannot be mistaken,
# stopped by pid. It knows no server; what it needs of one are the functions NAME_exec (replaces
# the shell by the server), NAME_answers and NAME_signal.

# process_identity PID prints what no other process has, before or after a reboot: its pid, its
# start in ticks since boot, and the boot's id.
process_identity() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    # The name in parentheses may hold blanks, so fields are counted after it; the 20th is the start.
    # shellcheck disable=SC2086  # split on purpose
    set -- "$1" ${stat##*) }
    [[ $2 != Z ]] || return 1
    echo "$1 ${21} $(</proc/sys/kernel/random/boot_id)"
}

# running NAME prints the pid of a server of this instance, or fails. A pid file left by a reboot or
# a crash names a process that is gone or another's by now: both count as not running.
running() {
    local file=$INSTANCE_DIR/$1/pid pid
    [[ -s $file ]] || return 1
    read -r pid _ <"$file"
    [[ $(process_identity "$pid") == "$(<"$file")" ]] || return 1
    echo "$pid"
}

# holders DIR prints the pids that work in a directory. Each server's working directory is its data
# directory, so this finds one whose pid file was lost, and workers that outlived a killed parent.
holders() {
    local want proc
    want=$(stat -c %d:%i "$1" 2>/dev/null) || return 0
    for proc in /proc/[0-9]*; do
        [[ $(stat -L -c %d:%i "$proc/cwd" 2>/dev/null) != "$want" ]] || echo "${proc#/proc/}"
    done
}

# launch NAME starts the server and notes its pid.
launch() {
    local dir=$INSTANCE_DIR/$1 pid
    [[ ! -f $dir/log ]] || mv "$dir/log" "$dir/log.previous"
    (
        # A lock that the server inherited would be held for as long as it lives.
        [[ -z ${LOCK_FD:-} ]] || exec {LOCK_FD}>&-
        cd "$dir/data" || exit
        "$(fn "$1")_exec"
    ) </dev/null >"$dir/log" 2>&1 &
    pid=$!
    process_identity "$pid" >"$dir/pid" || rm -f "$dir/pid"
}

# wait_until_answers NAME SECONDS fails early when the process ends.
wait_until_answers() {
    local deadline=$((SECONDS + $2))
    until "$(fn "$1")_answers" >/dev/null 2>&1; do
        running "$1" >/dev/null || return 1
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# wait_until_gone SECONDS PID… is told pids that are not this shell's children.
wait_until_gone() {
    local deadline=$((SECONDS + $1)) pid
    shift
    for pid in "$@"; do
        while process_identity "$pid" >/dev/null; do
            ((SECONDS < deadline)) || return 1
            sleep 0.05
        done
    done
}

# stop NAME asks the server to end, and insists after a minute.
stop() {
    local pid
    pid=$(running "$1") || return 0
    kill -s "$("$(fn "$1")_signal")" "$pid"
    if ! wait_until_gone 60 "$pid"; then
        warn "$1 (pid $pid) did not end within 60 s: killed"
        crash "$1"
    fi
    rm -f "$INSTANCE_DIR/$1/pid"
}

# crash NAME kills the server and its workers at once.
crash() {
    local pid pids
    pid=$(running "$1") || return 0
    mapfile -t pids < <(holders "$INSTANCE_DIR/$1/data")
    # The parent first: it would start new workers.
    kill -s KILL "$pid" 2>/dev/null || true
    kill -s KILL "${pids[@]}" 2>/dev/null || true
    wait_until_gone 10 "$pid" "${pids[@]}" ||
        die "$1 (pid $pid) survives SIGKILL: see its state with ps"
    rm -f "$INSTANCE_DIR/$1/pid"
}

# listening PORT tells whether somebody accepts connections on it.
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
