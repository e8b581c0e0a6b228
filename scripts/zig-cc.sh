#!/usr/bin/env bash
# A linker for this machine's processor that takes the C library of zig.sh, whatever the machine has.
exec cargo-zigbuild zig cc -- -target "$(uname -m)-linux-gnu.${glibc:?source scripts/zig.sh first}" "$@"
