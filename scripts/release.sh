#!/usr/bin/env bash
# Makes what people download: for each processor a tarball with the one binary, the model inside it, and its checksum.
#
#   scripts/release.sh [x86_64] [aarch64]        (this machine's processor if none is named)
#
# The files are put into target/release-files. The binaries run on GLIBC 2.28 and newer (RHEL 8, Debian 10). Needs Rust,
# python3 and binutils; for another processor also its standard library: rustup target add aarch64-unknown-linux-gnu.
# With the same commit and the same Rust, the tarballs are equal to the byte.
set -euo pipefail
# A library of compression is compiled in: what this machine has, others may lack.
export LZMA_API_STATIC=1
cd "$(dirname "$0")/.."
. scripts/zig.sh

target_folder="${CARGO_TARGET_DIR:-target}"
out="$target_folder/release-files"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"
[ $# -gt 0 ] || set -- "$(uname -m)"
mkdir -p "$out"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

for processor in "$@"; do
  case "$processor" in
    x86_64 | aarch64) target="$processor-unknown-linux-gnu" ;;
    *) echo "release: choose x86_64 or aarch64, not $processor" >&2; exit 2 ;;
  esac
  if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; then
    echo "release: Rust's standard library for $target is missing; run: rustup target add $target" >&2
    exit 1
  fi
  # Paths of the machine that builds are no part of what it builds.
  sources="${CARGO_HOME:-$HOME/.cargo}/registry/src"
  RUSTFLAGS="--remap-path-prefix=$sources=/cargo --remap-path-prefix=$PWD=/nightmill" \
    cargo zigbuild --locked --profile dist --target "$target.$glibc" --bin nightmill
  binary="$target_folder/$target/dist/nightmill"
  scripts/check-binary.sh "$binary" 120

  name="nightmill-$version-$processor-linux"
  stage="$(mktemp -d)"
  mkdir "$stage/$name"
  cp "$binary" README.md CHANGELOG.md LICENSE scripts/nightmill-monitor.service scripts/nightmill-monitor.timer \
    scripts/Containerfile "$stage/$name/"
  chmod 755 "$stage/$name" "$stage/$name/nightmill"
  if [ "$processor" = "$(uname -m)" ]; then
    # It must do its main job before anybody gets it.
    XDG_CACHE_HOME="$stage/cache" "$stage/$name/nightmill" score datasets/support --out "$stage/run" >/dev/null
  fi
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$stage" -cf - "$name" |
    gzip -9n > "$out/$name.tar.gz"
  rm -rf "$stage"
done

(cd "$out" && sha256sum nightmill-"$version"-*.tar.gz > SHA256SUMS && cat SHA256SUMS)
echo "release: files are in $out"
