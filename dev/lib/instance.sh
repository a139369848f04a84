# shellcheck shell=bash
#
# Where things lie: the cache that all instances share, and the data and ports of this one.

# Servers run as root and as users of their own, who must reach it; a user who is not root only
# keeps built tools here.
if ((EUID == 0)); then
    POSTRIDER_DEV_DIR=${POSTRIDER_DEV_DIR:-/var/lib/postrider-dev}
else
    POSTRIDER_DEV_DIR=${POSTRIDER_DEV_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/postrider-dev}
fi
POSTRIDER_DEV_INSTANCE=${POSTRIDER_DEV_INSTANCE:-default}
CACHE_DIR=$POSTRIDER_DEV_DIR/cache
INSTANCES_DIR=$POSTRIDER_DEV_DIR/instances
INSTANCE_DIR=$INSTANCES_DIR/$POSTRIDER_DEV_INSTANCE

# The bases in versions.sh stay apart for this many steps of ten.
MAX_INSTANCES=60

# instance_open makes the directories and settles the port offset: 0 for "default", else the
# smallest step that no other instance holds, remembered in the instance's directory.
instance_open() {
    [[ $POSTRIDER_DEV_INSTANCE =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] ||
        die "POSTRIDER_DEV_INSTANCE '$POSTRIDER_DEV_INSTANCE': use a-z, 0-9 and '-', at most 31"
    mkdir -p "$CACHE_DIR" "$INSTANCE_DIR"
    if [[ -n ${POSTRIDER_DEV_PORT_OFFSET:-} ]]; then
        [[ $POSTRIDER_DEV_PORT_OFFSET =~ ^[0-9]{1,5}$ ]] ||
            die "POSTRIDER_DEV_PORT_OFFSET '$POSTRIDER_DEV_PORT_OFFSET': use a number, e.g. 100"
        PORT_OFFSET=$POSTRIDER_DEV_PORT_OFFSET
    elif [[ $POSTRIDER_DEV_INSTANCE == default ]]; then
        PORT_OFFSET=0
    else
        PORT_OFFSET=$(with_lock "$INSTANCES_DIR/lock" instance_allot_offset)
    fi
}

instance_allot_offset() {
    local mine=$INSTANCE_DIR/port-offset step
    if [[ ! -s $mine ]]; then
        for ((step = 1; step < MAX_INSTANCES; step++)); do
            grep -qsx "$((step * 10))" "$INSTANCES_DIR"/*/port-offset || break
        done
        ((step < MAX_INSTANCES)) ||
            die "no port offset is free: remove an instance's directory below $INSTANCES_DIR"
        echo "$((step * 10))" >"$mine"
    fi
    cat "$mine"
}

# port BASE prints the port of this instance.
port() { echo $(($1 + PORT_OFFSET)); }
