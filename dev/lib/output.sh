# shellcheck shell=bash
#
# What the scripts say, and to whom: facts on stdout, trouble on stderr.

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    warn "$*"
    exit 1
}

# seconds_since MILLIS prints the time gone since a value of now_ms, like 3.4.
now_ms() { date +%s%3N; }
seconds_since() {
    local ms=$(($(now_ms) - $1))
    printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# with_lock FILE COMMAND… runs a command while nobody else holds FILE.
with_lock() {
    local file=$1 lock
    shift
    mkdir -p "${file%/*}"
    (
        exec {lock}>"$file"
        flock -w 900 "$lock" || die "waited 15 minutes for the lock $file: does another run hang?"
        LOCK_FD=$lock "$@"
    )
}
