#!/usr/bin/env bash
# Compiles the CUDA build without a GPU and without CUDA on the machine: nvcc and its libraries come from PyPI
# (scripts/cuda.sh). The kernels of the packed graph are compiled for four architectures and held against their limits; `cargo
# check` runs nvcc over all kernels and checks the program against them. Nothing is run on a GPU. For that, see
# scripts/gpu-check.sh and scripts/gpu-kit.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/cuda.sh
nvcc --version | tail -2
kernels=src/encoder/gpu
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
for architecture in 80 86 89 90; do
  nvcc -cubin -arch="sm_$architecture" -O3 -std=c++17 -Xptxas -v -o "$out/k.cubin" "$kernels/kernels.cu" 2> "$out/said" ||
    { cat "$out/said" >&2; exit 1; }
  awk -v architecture="$architecture" '
    NR == FNR { if ($1 !~ /^#/ && NF == 3) { registers[$1] = $2; shared[$1] = $3 } next }
    /Compiling entry function/ { split($0, parts, "\047"); name = parts[2] }
    /bytes spill stores/ { spilled = $5 + $9 + $1 }
    /Used [0-9]+ registers/ {
      used = 0; bytes = 0
      for (at = 1; at <= NF; at++) {
        if ($at == "Used") used = $(at + 1)
        if ($at == "smem" || $at == "smem,") bytes = $(at - 2)
      }
      seen++
      problem = ""
      if (!(name in registers)) problem = "has no line in limits.txt"
      else if (spilled > 0) problem = "spills or has a stack"
      else if (used > registers[name] || bytes > shared[name]) problem = "is over its limits"
      if (problem) { print "check-cuda: " name " on sm_" architecture " " problem ": " $0; bad = 1 }
    }
    END { if (seen != 8) { print "check-cuda: " seen + 0 " kernels were compiled, not 8"; bad = 1 } exit bad }
  ' "$kernels/limits.txt" "$out/said"
done
nvcc -ptx -arch=compute_90 -std=c++17 -o "$out/k.ptx" "$kernels/kernels.cu"
for part in attend_32 attend_64 attend_128; do
  awk -v entry="$part" '$0 ~ "[.]entry " entry { inside = 1 } inside && /wmma[.]mma/ { found = 1 } inside && /^}/ { inside = 0 } END { exit !found }' \
    "$out/k.ptx" || { echo "check-cuda: $part uses no tensor cores" >&2; exit 1; }
done
echo "check-cuda: 8 kernels on sm_80, 86, 89 and 90: no spills, within limits.txt, attention on tensor cores"
# The profile of the lints, so that their dependencies are used again.
cargo check --release --features cuda
cargo check --release --features bench-gpu --bench gpu
echo "check-cuda: the CUDA build compiles (checked, not run)"
