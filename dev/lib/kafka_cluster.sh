# shellcheck shell=bash
#
# kafka-1, kafka-2, kafka-3: three brokers that are one cluster, for what one broker does not show:
# leaders and coordinators that move, replicas that are missing, transactions over several brokers.
# They are small, and start with the quick compiler alone.

for broker in 1 2 3; do
    for part in install port env version signal prepare exec answers; do
        eval "kafka_${broker}_$part() { cluster_$part $broker; }"
    done
done
unset broker part

# All nodes are of one cluster, which the directory of each must name.
CLUSTER_ID=cG9zdHJpZGVyLWthZmthMw

cluster_install() { kafka_install; }
cluster_version() { kafka_version; }

# A broker that stops hands its leaders over, which takes a controller: where only one other is left there is none, and
# it would wait for a minute.
cluster_signal() {
    local broker others=0
    for broker in 1 2 3; do
        [[ $broker == "$1" ]] || ! running "kafka-$broker" >/dev/null || ((others += 1))
    done
    if ((others == 2)); then kafka_signal; else echo KILL; fi
}

cluster_port() {
    local base=KAFKA_$1_PORT
    port "${!base}"
}

cluster_controller() {
    local base=KAFKA_$1_CONTROLLER_PORT
    echo "127.0.0.1:$(port "${!base}")"
}

# The address is that of all, whichever of them is up.
cluster_env() {
    echo "POSTRIDER_TEST_KAFKA_CLUSTER=127.0.0.1:$(cluster_port 1),127.0.0.1:$(cluster_port 2),127.0.0.1:$(cluster_port 3)"
}

cluster_prepare() {
    local dir=$INSTANCE_DIR/kafka-$1
    cluster_properties "$1" >"$dir/server.properties"
    kafka_logging >"$dir/log4j2.properties"
    if [[ ! -d $dir/data ]]; then
        new_data_dir "kafka-$1" "$(id -u):$(id -g)"
        (cd "$dir/new/data" && kafka_storage format -t "$CLUSTER_ID" -c "$dir/server.properties")
        mv "$dir/new/data" "$dir/data"
    fi
}

cluster_exec() { broker_exec -Xms160m -Xmx256m -XX:TieredStopAtLevel=1; }

cluster_answers() { broker_answers "kafka-$1" "$(cluster_port "$1")"; }

cluster_properties() {
    cat <<PROPERTIES
node.id=$1
controller.quorum.voters=1@$(cluster_controller 1),2@$(cluster_controller 2),3@$(cluster_controller 3)
$(broker_listeners "127.0.0.1:$(cluster_port "$1")" "$(cluster_controller "$1")")
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
num.io.threads=4
num.network.threads=2
$(broker_habits)
PROPERTIES
}
