# shellcheck shell=bash
#
# kafka: one broker that is its own controller.

kafka_install() {
    apt_install maven "openjdk-$JAVA_VERSION-jre-headless"
    kafka_jars_install
}

kafka_port() { port "$KAFKA_PORT"; }
kafka_env() { echo "POSTRIDER_TEST_KAFKA=127.0.0.1:$(kafka_port)"; }
kafka_version() { echo "Kafka $KAFKA_VERSION"; }
kafka_signal() { echo TERM; }

# kafka_java_command prints the Java that was installed for Kafka, or else the one on PATH.
kafka_java_command() {
    local java
    for java in "/usr/lib/jvm/java-$JAVA_VERSION-openjdk-"*/bin/java; do
        [[ ! -x $java ]] || { echo "$java" && return; }
    done
    command -v java
}

kafka_prepare() {
    local dir=$INSTANCE_DIR/kafka id
    kafka_properties >"$dir/server.properties"
    kafka_logging >"$dir/log4j2.properties"
    if [[ ! -d $dir/data ]]; then
        new_data_dir kafka "$(id -u):$(id -g)"
        id=$(kafka_storage random-uuid)
        (cd "$dir/new/data" &&
            kafka_storage format --standalone -t "$id" -c "$dir/server.properties")
        mv "$dir/new/data" "$dir/data"
    fi
}

# kafka_storage runs Kafka's tool for data directories, which is done before the compiler would pay.
kafka_storage() {
    "$(kafka_java_command)" -XX:TieredStopAtLevel=1 -cp "$KAFKA_DIR/lib/*" \
        kafka.tools.StorageTool "$@"
}

kafka_exec() { broker_exec -Xms512m -Xmx512m; }

# broker_exec FLAG… becomes a broker; its files lie beside the data directory.
broker_exec() {
    ulimit -n "$(ulimit -H -n)" || true # a file and a map for each segment of each test's topics
    exec setsid "$(kafka_java_command)" "$@" -XX:+UseSerialGC \
        -Dlog4j2.configurationFile="../log4j2.properties" -cp "$KAFKA_DIR/lib/*" \
        kafka.Kafka ../server.properties
}

kafka_answers() { broker_answers kafka "$(kafka_port)"; }

# broker_answers NAME PORT: a broker accepts connections before it serves; its log says when it does.
broker_answers() { grep -q 'Kafka Server started' "$INSTANCE_DIR/$1/log" && listening "$2"; }

kafka_properties() {
    local controller
    controller=127.0.0.1:$(port "$KAFKA_CONTROLLER_PORT")
    cat <<PROPERTIES
node.id=1
controller.quorum.bootstrap.servers=$controller
$(broker_listeners "127.0.0.1:$(kafka_port)" "$controller")
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
$(broker_habits)
PROPERTIES
}

# broker_listeners BROKER CONTROLLER are the addresses of a node that is both.
broker_listeners() {
    cat <<PROPERTIES
process.roles=broker,controller
listeners=PLAINTEXT://$1,CONTROLLER://$2
advertised.listeners=PLAINTEXT://$1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
PROPERTIES
}

# Internal topics are small. Records are kept by size, never by age: a test may write records dated
# years ago and must find them again. The cleaner's buffer is cut to leave the heap to the broker. The
# data directory is named from within, since Kafka splits paths at commas. A killed broker may register
# again only when its session has ended: 9 s by default, and the heartbeat never leaves this machine,
# so 4 s do.
broker_habits() {
    cat <<'PROPERTIES'
log.dirs=../data
num.partitions=8
auto.create.topics.enable=false
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
group.initial.rebalance.delay.ms=0
group.consumer.min.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=500
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
log.retention.ms=-1
log.retention.bytes=1073741824
log.segment.bytes=268435456
log.cleaner.dedupe.buffer.size=16777216
PROPERTIES
}

kafka_logging() {
    cat <<'PROPERTIES'
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
PROPERTIES
}
