# shellcheck shell=bash disable=SC2034  # sourced; its values are read by the scripts beside it
#
# Every version and every port of the servers that the tests use, in one place. Docker Compose reads
# this file too, so it holds nothing but NAME=value.

# PostgreSQL: the oldest release the relay supports that Debian 12 carries, and the newest at hand.
POSTGRES_VERSION=15
POSTGRES_NEWEST_VERSION=18

# MySQL and the newest PostgreSQL are not in Debian 12. They come from a Debian tree of this suite,
# which is unpacked beside the system and never mixed with it. The suite moves, so MySQL is "9 at
# hand", not one fixed release; `dev/servers status` prints what is there.
NEWEST_SUITE=sid
NEWEST_PACKAGES=mysql-server,postgresql-$POSTGRES_NEWEST_VERSION

# Kafka comes from Maven. Its log4j binding must be the one for the slf4j that Kafka resolves to.
KAFKA_SCALA=2.13
KAFKA_VERSION=4.3.1
LOG4J_VERSION=2.26.1
MAVEN_DEPENDENCY_PLUGIN_VERSION=3.11.0
DEBEZIUM_VERSION=3.6.1.Final
JAVA_VERSION=17

# Where Docker Compose runs the servers (compose.yaml), MySQL and MariaDB are these images.
MYSQL_IMAGE_VERSION=9
MARIADB_IMAGE_VERSION=10.11

# Ports on 127.0.0.1 of the default instance. Other instances add a multiple of ten, so no two bases
# may differ by a multiple of ten below 600 (dev/lib/instance.sh).
POSTGRES_PORT=15432
POSTGRES_NEWEST_PORT=18432
MYSQL_PORT=13307
MARIADB_PORT=13310
KAFKA_PORT=19092
KAFKA_CONTROLLER_PORT=19093
# Three brokers that are one cluster.
KAFKA_1_PORT=20091
KAFKA_2_PORT=20092
KAFKA_3_PORT=20093
KAFKA_1_CONTROLLER_PORT=20094
KAFKA_2_CONTROLLER_PORT=20095
KAFKA_3_CONTROLLER_PORT=20096
PGBOUNCER_PORT=16432
CONNECT_PORT=18083

# Checks that dev/test runs besides the tests.
GOLANGCI_LINT_VERSION=v2.15.0
