#!/usr/bin/env bash
# Checks the whole program with Metal, for a Mac, without one: the compiler's and clippy's checks, no code and no link. C
# sources of dependencies are compiled by zig (scripts/zig.sh). Nothing is run on a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/zig.sh
cargo-zigbuild clippy --release --target aarch64-apple-darwin -p nightmill -p nightmill-encoder --features metal \
  --lib --bins -- -D warnings
