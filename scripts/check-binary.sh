#!/usr/bin/env bash
# Does a binary run where people are?
#
#   scripts/check-binary.sh BINARY [MOST_MEGABYTES]
#
# Fails if it needs a newer C library than GLIBC 2.28 (RHEL 8), another library than that one, or, if a size is given,
# more bytes than that, or symbols that are not stripped. Needs objdump (binutils).
set -euo pipefail
binary="$1"
most="${2:-}"
newest="2.28"

versions="$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV)"
[ -n "$versions" ] || { echo "check-binary: \`$binary\` needs no version of glibc: is it a dynamic binary?" >&2; exit 1; }
last="$(tail -1 <<<"$versions")"
if [ "$(printf '%s\n' "$last" "GLIBC_$newest" | sort -V | tail -1)" != "GLIBC_$newest" ]; then
  echo "check-binary: \`$binary\` needs $last, more than GLIBC_$newest, for:" >&2
  objdump -T "$binary" | grep -F "($last)" | awk '{print "  " $NF}' >&2
  exit 1
fi
libraries="$(objdump -p "$binary" | awk '$1 == "NEEDED" {print $2}')"
others="$(grep -vE '^(libc|libm|libdl|libpthread|librt)\.so\.[0-9]+$|^ld-linux' <<<"$libraries" || true)"
if [ -n "$others" ]; then
  echo "check-binary: \`$binary\` needs libraries that a system may lack:" $others >&2
  exit 1
fi
bytes="$(stat -c %s "$binary")"
if [ -n "$most" ]; then
  if [ "$bytes" -gt $((most * 1000000)) ]; then
    echo "check-binary: \`$binary\` has $bytes bytes, more than $most MB" >&2
    exit 1
  fi
  if objdump -h "$binary" | grep -q ' \.symtab\| \.debug_info'; then
    echo "check-binary: \`$binary\` holds symbols or debug information" >&2
    exit 1
  fi
fi
echo "$binary: $((bytes / 1000000)) MB, needs $last and" $libraries
