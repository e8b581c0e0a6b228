#!/usr/bin/env bash
# Compiles the CUDA build without a GPU and without CUDA on the machine: nvcc and its libraries come from PyPI, into a
# cache folder. `cargo check` runs nvcc over candle's kernels and checks the program against them; nothing is run on
# a GPU. For that, see scripts/gpu-check.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/nightmill"
venv="$cache/cuda"
# One minor version for the compiler and its headers: mixed ones fail in ptxas.
version="13.2.*"
packages=(nvcc nvvm crt runtime cccl cublas curand nvrtc)

find_cuda() { find "$venv" -type d -path '*/nvidia/cu13' 2>/dev/null | head -1 || true; }

if [ ! -x "$(find_cuda)/bin/nvcc" ]; then
  rm -rf "$venv"
  mkdir -p "$cache"
  python3 -m venv "$venv"
  wanted=()
  for package in "${packages[@]}"; do
    case "$package" in
      crt) wanted+=("nvidia-cuda-crt==$version") ;;
      nvvm) wanted+=("nvidia-nvvm==$version") ;;
      # These count versions of their own.
      cublas) wanted+=("nvidia-cublas>=13,<14") ;;
      curand) wanted+=("nvidia-curand>=10.4,<11") ;;
      *) wanted+=("nvidia-cuda-$package==$version") ;;
    esac
  done
  "$venv/bin/python" -m pip install --quiet "${wanted[@]}"
fi
cuda="$(find_cuda)"
[ -n "$cuda" ] || { echo "check-cuda: nvcc was not found below $venv" >&2; exit 1; }
export CUDA_HOME="$cuda" CUDA_PATH="$cuda" CUDA_ROOT="$cuda" CUDA_TOOLKIT_ROOT_DIR="$cuda"
export PATH="$cuda/bin:$PATH"
export CUDA_COMPUTE_CAP="${CUDA_COMPUTE_CAP:-90}"
nvcc --version | tail -2
# The profile of the lints, so that their dependencies are used again.
cargo check --release --features cuda
echo "check-cuda: the CUDA build compiles (checked, not run)"
