# shellcheck shell=bash
#
# Which modules there are, and what is checked of them besides the tests.

# find_modules puts the directories of the workspace's modules into WORKSPACE_MODULES, and of those
# that go.work does not name into OUTSIDE_MODULES.
find_modules() {
    local file dir
    mapfile -t WORKSPACE_MODULES < <(cd "$ROOT" && go list -m -f '{{.Dir}}')
    OUTSIDE_MODULES=()
    while IFS= read -r file; do
        dir=$(cd "${file%/*}" && pwd -P)
        in_workspace "$dir" || OUTSIDE_MODULES+=("$dir")
    done < <(sources -name go.mod -print | sort)
}

in_workspace() {
    local dir
    for dir in "${WORKSPACE_MODULES[@]}"; do [[ $dir != "$1" ]] || return 0; done
    return 1
}

# sources FIND-EXPRESSION… finds files of the checkout, without what others wrote or tests feed on.
sources() {
    find "$ROOT" \( -name testdata -o -name vendor -o -name node_modules -o -name '.?*' \) -prune \
        -o "$@"
}

# in_dir DIR COMMAND… runs a command there, without the workspace where the module is not part of it.
in_dir() {
    local module
    module=$(cd "$1" && go env GOMOD)
    if in_workspace "${module%/go.mod}"; then
        (cd "$1" && shift && "$@")
    else
        (cd "$1" && shift && GOWORK=off "$@")
    fi
}

# packages_of DIR prints the patterns for all packages to work on there: in the root, those of every
# module of the workspace, since ./... ends where the next module begins.
packages_of() {
    local dir
    if [[ $1 == "$ROOT" ]]; then
        for dir in "${WORKSPACE_MODULES[@]}"; do echo ".${dir#"$ROOT"}/..."; done
    else
        echo ./...
    fi
}

# in_all DIR COMMAND… runs a command on all packages.
in_all() {
    local patterns
    mapfile -t patterns < <(packages_of "$1")
    in_dir "$@" "${patterns[@]}"
}

check_format() {
    local files
    files=$(sources -name '*.go' -print0 | xargs -0 -r gofmt -l)
    [[ -z $files ]] || { printf 'not formatted, run gofmt -w on:\n%s\n' "$files" && return 1; }
}

# check_tidy holds that a module builds by itself too, without the workspace that we work in.
check_tidy() { (cd "$1" && GOWORK=off go mod tidy -diff); }
check_vet() { in_all "$1" go vet -tags "$VIRTUAL_TAG"; }
check_lint() { in_all "$1" "$LINT" run --config "$ROOT/.golangci.yml" --build-tags "$VIRTUAL_TAG" --allow-parallel-runners; }

# build_lint puts golangci-lint of our version into the cache. The go command builds it, from the
# module proxy that this machine uses, and with the Go release that the code is built with.
build_lint() { [[ -x $LINT ]] || with_lock "$LINT.lock" build_missing_lint; }

build_missing_lint() {
    local log=$LINT.log module=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
    [[ ! -x $LINT ]] || return 0
    if ! (cd / && GOWORK=off GOFLAGS='' GOBIN=$LINT.part \
        twice go install "$module@$GOLANGCI_LINT_VERSION") >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        die "cannot build golangci-lint $GOLANGCI_LINT_VERSION: see $log"
    fi
    mv "$LINT.part/golangci-lint" "$LINT"
    rmdir "$LINT.part"
}
