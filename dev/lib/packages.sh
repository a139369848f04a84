# shellcheck shell=bash
#
# What has to be installed, and how: Debian packages, the Debian tree with the newest servers, and
# the jars of Kafka and of Kafka Connect. Each function does nothing when its work is done already; none needs a network then.

NEWEST_TREE=$CACHE_DIR/$NEWEST_SUITE-tree
KAFKA_DIR=$CACHE_DIR/kafka-$KAFKA_VERSION
CONNECT_DIR=$CACHE_DIR/connect-$KAFKA_VERSION-debezium-$DEBEZIUM_VERSION

debian() { [[ -r /etc/debian_version && -x /usr/bin/apt-get ]]; }

# require_debian_root says what this way of running servers needs.
require_debian_root() {
    debian ||
        die "this sets up servers from Debian's packages, and here is no Debian: see dev/compose.yaml"
    ((EUID == 0)) || die 'this needs root, for apt-get, chroot and the users of the servers'
}

# apt_install PACKAGE… installs what is missing of a list.
apt_install() {
    local package missing=()
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    say "installing ${missing[*]}"
    with_lock "$CACHE_DIR/apt.lock" apt_get_install "${missing[@]}"
}

apt_get_install() {
    local policy=/usr/sbin/policy-rc.d log=$CACHE_DIR/apt.log
    # A package must not start its own server: ours run on other ports, from other directories.
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    # The package lists are fetched only when those at hand do not do.
    local install=(apt-get -o Acquire::Retries=3 install -y -q --no-install-recommends "$@")
    if ! { "${install[@]}" || { apt-get update -q && "${install[@]}"; }; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "cannot install $*: see $log"
    fi
}

# apt_mirror prints the mirror that this machine's own sources name for its Debian release. Apt tells
# only while it has that mirror's package lists.
apt_mirror() {
    local codename mirrors
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016  # expanded by apt-get
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' 'Component: main' "Release: $codename" | sed -n '/^http/p')
    echo "${mirrors%%$'\n'*}"
}

# newest_tree_install unpacks the tree that mysql and postgres-newest run in.
newest_tree_install() {
    local want="$NEWEST_SUITE $NEWEST_PACKAGES"
    newest_tree_ready "$want" || with_lock "$NEWEST_TREE.lock" newest_tree_unpack "$want"
}

newest_tree_ready() {
    [[ -f $NEWEST_TREE/.complete && $(<"$NEWEST_TREE/.complete") == "$1" ]]
}

newest_tree_unpack() {
    local log=$NEWEST_TREE.log mirror
    ! newest_tree_ready "$1" || return 0
    mirror=$(apt_mirror)
    if [[ -z $mirror ]]; then
        with_lock "$CACHE_DIR/apt.lock" apt-get update -q >"$log" 2>&1
        mirror=$(apt_mirror)
    fi
    [[ -n $mirror ]] ||
        die "/etc/apt names no mirror of this Debian release: mysql and postgres-newest are fetched from it"
    say "unpacking Debian $NEWEST_SUITE with $NEWEST_PACKAGES"
    if ! twice newest_tree_debootstrap "$mirror" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "cannot unpack Debian $NEWEST_SUITE: see $log"
    fi
    echo "$1" >"$NEWEST_TREE.part/.complete"
    rm -rf --one-file-system "$NEWEST_TREE"
    mv "$NEWEST_TREE.part" "$NEWEST_TREE"
}

newest_tree_debootstrap() {
    local part=$NEWEST_TREE.part
    rm -rf --one-file-system "$part"
    # In a mount namespace of its own, what debootstrap mounts goes away with it, however it ends.
    unshare --mount debootstrap --variant=minbase --include="$NEWEST_PACKAGES" \
        "$NEWEST_SUITE" "$part" "$1" &&
        rm -f "$part"/var/cache/apt/archives/*.deb
}

# twice COMMAND… tries a download again, since a network may blink.
twice() { "$@" || "$@"; }

# in_newest_tree DIR COMMAND… replaces the shell by a command that runs in the tree, where DIR is
# /srv. The mounts live in a namespace that ends with the command: nothing to undo, or to leak.
in_newest_tree() {
    # shellcheck disable=SC2016  # expanded by the inner shell
    exec unshare --mount --propagation private bash -c '
        set -e
        tree=$1 dir=$2
        shift 2
        mount --rbind /proc "$tree/proc"
        mount --rbind /dev "$tree/dev"
        mount --bind "$dir" "$tree/srv"
        exec chroot "$tree" "$@"' newest-tree "$NEWEST_TREE" "$@"
}

# newest_tree_user NAME prints the uid:gid that a user of the tree has.
newest_tree_user() {
    awk -F: -v name="$1" '$1 == name { print $3 ":" $4 }' "$NEWEST_TREE/etc/passwd"
}

# kafka_jars_install fetches Kafka and its tools.
kafka_jars_install() {
    [[ -f $KAFKA_DIR/complete ]] || with_lock "$KAFKA_DIR.lock" jars_fetch "$KAFKA_DIR" kafka_jars
}

kafka_jars() {
    maven_copy "$1/lib" '' \
        "org.apache.kafka:kafka_$KAFKA_SCALA:$KAFKA_VERSION" \
        "org.apache.kafka:kafka-tools:$KAFKA_VERSION" \
        "org.apache.logging.log4j:log4j-slf4j-impl:$LOG4J_VERSION"
}

# connect_jars_install fetches Kafka Connect and, as its plugin, Debezium's connector for PostgreSQL.
connect_jars_install() {
    [[ -f $CONNECT_DIR/complete ]] || with_lock "$CONNECT_DIR.lock" jars_fetch "$CONNECT_DIR" connect_jars
}

# connect_jars leaves out of the plugin what Connect gives to every plugin.
connect_jars() {
    maven_copy "$1/lib" '' \
        "org.apache.kafka:connect-runtime:$KAFKA_VERSION" \
        "org.apache.kafka:connect-json:$KAFKA_VERSION" \
        "org.apache.kafka:connect-transforms:$KAFKA_VERSION" \
        "org.apache.logging.log4j:log4j-slf4j-impl:$LOG4J_VERSION" &&
        maven_copy "$1/plugins/debezium-postgres" \
            connect-api,kafka-clients,slf4j-api,jakarta.ws.rs-api,lz4-java,snappy-java,zstd-jni \
            "io.debezium:debezium-connector-postgres:$DEBEZIUM_VERSION"
}

# jars_fetch DIR COMMAND lets COMMAND fill a directory, which gets its name when it is whole.
jars_fetch() {
    local part=$1.part log=$1.log
    [[ ! -f $1/complete ]] || return 0
    say "fetching ${1##*/}"
    rm -rf "$part"
    mkdir -p "$part"
    "$2" "$part" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "cannot fetch ${1##*/}: see $log"
    }
    touch "$part/complete"
    rm -rf "$1"
    mv "$part" "$1"
}

# maven_copy DIR WITHOUT ARTIFACT… puts the jars of Maven artifacts (group:artifact:version), and of
# what they need at run time, into DIR, through this machine's own settings of Maven.
maven_copy() {
    local dir=$1 without=$2 plugin=org.apache.maven.plugins:maven-dependency-plugin
    shift 2
    mkdir -p "$dir"
    maven_pom "$@" >"$dir/pom.xml"
    twice mvn -q -B -f "$dir/pom.xml" \
        "$plugin:$MAVEN_DEPENDENCY_PLUGIN_VERSION:copy-dependencies" \
        -DincludeScope=runtime -DexcludeArtifactIds="$without" -DoutputDirectory="$dir"
}

maven_pom() {
    local artifact
    cat <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
POM
    for artifact in "$@"; do pom_dependency "$artifact"; done
    echo '  </dependencies>'
    echo '</project>'
}

pom_dependency() {
    local group name version
    IFS=: read -r group name version <<<"$1"
    echo "    <dependency>"
    echo "      <groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>"
    echo "    </dependency>"
}
