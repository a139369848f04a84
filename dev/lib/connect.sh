# shellcheck shell=bash
#
# connect: Kafka Connect with Debezium's connector for PostgreSQL, which the benchmarks put beside the
# relay. It takes half a minute and 2 GB, so it is there by choice only. One worker keeps its offsets in
# a file; connectors are made over HTTP and gone when it stops.

connect_install() {
    apt_install maven "openjdk-$JAVA_VERSION-jre-headless"
    connect_jars_install
}

connect_port() { port "$CONNECT_PORT"; }
connect_env() { echo "POSTRIDER_TEST_CONNECT=http://127.0.0.1:$(connect_port)"; }
connect_version() { echo "Kafka Connect $KAFKA_VERSION, Debezium $DEBEZIUM_VERSION"; }
connect_signal() { echo TERM; }

connect_prepare() {
    local dir=$INSTANCE_DIR/connect
    mkdir -p "$dir/data"
    rm -f "$dir/data/offsets" # they are of connectors that are gone
    connect_properties >"$dir/worker.properties"
    kafka_logging >"$dir/log4j2.properties"
}

# Memory and collector are those that Kafka's own start script gives a worker.
connect_exec() {
    exec setsid "$(kafka_java_command)" -Xms256m -Xmx2g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
        -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent \
        -Dlog4j2.configurationFile="../log4j2.properties" -cp "$CONNECT_DIR/lib/*" \
        org.apache.kafka.connect.cli.ConnectStandalone ../worker.properties
}

# The port is open before the worker serves.
connect_answers() {
    local line
    exec 3<>"/dev/tcp/127.0.0.1/$(connect_port)" || return 1
    printf 'GET /connectors HTTP/1.0\r\n\r\n' >&3
    read -r -t 5 line <&3 && [[ $line == *' 200 '* ]]
}

connect_properties() {
    cat <<PROPERTIES
bootstrap.servers=127.0.0.1:$(kafka_port)
listeners=http://127.0.0.1:$(connect_port)
plugin.path=$CONNECT_DIR/plugins
offset.storage.file.filename=../data/offsets
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
PROPERTIES
}
