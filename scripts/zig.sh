# To be sourced: puts cargo-zigbuild and zig, as PyPI has them, on PATH. Zig brings the symbol lists of old C libraries, so
# that a binary made on a new system runs on an old one.
zig_cache="${XDG_CACHE_HOME:-$HOME/.cache}/nightmill/zig"
zig_packages=("ziglang==0.17.1" "cargo-zigbuild==0.24.0")
# The C library of RHEL 8, Debian 10 and Ubuntu 18.10.
export glibc="2.28"
if ! [ "$(cat "$zig_cache/packages" 2>/dev/null)" = "${zig_packages[*]}" ]; then
  rm -rf "$zig_cache"
  python3 -m venv "$zig_cache"
  "$zig_cache/bin/python" -m pip install --quiet "${zig_packages[@]}"
  echo "${zig_packages[*]}" > "$zig_cache/packages"
fi
export PATH="$zig_cache/bin:$PATH"
