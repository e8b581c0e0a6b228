# CUDA's compiler and libraries from PyPI, in a cache folder, for whoever sources this: `nvcc` and what CUDA_HOME is for. There
# need be neither a GPU nor CUDA on the machine.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/nightmill"
venv="$cache/cuda"
# One minor version for the compiler and its headers: mixed ones fail in ptxas. An older driver refuses what a newer
# compiler made, so this is the oldest of CUDA 13.
version="13.0.*"
packages=(nvcc nvvm crt runtime cccl cublas curand nvrtc)

find_cuda() { find "$venv" -type d -path '*/nvidia/cu13' 2>/dev/null | head -1 || true; }

# Another version than this script's is fetched anew.
if [ ! -x "$(find_cuda)/bin/nvcc" ] || [ "$(cat "$venv/version" 2>/dev/null)" != "$version" ]; then
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
  echo "$version" > "$venv/version"
fi
cuda="$(find_cuda)"
[ -n "$cuda" ] || { echo "cuda.sh: nvcc was not found below $venv" >&2; exit 1; }
export CUDA_HOME="$cuda" CUDA_PATH="$cuda" CUDA_ROOT="$cuda" CUDA_TOOLKIT_ROOT_DIR="$cuda"
export PATH="$cuda/bin:$PATH"
# The kernels of candle: code that all cards since then translate.
export CUDA_COMPUTE_CAP="${CUDA_COMPUTE_CAP:-80}"

# What a program is linked with, in $1: PyPI has libraries without the names that linkers look for, and no driver's library.
link_cuda() {
  local name
  mkdir -p "$1"
  for name in cublas cublasLt curand nvrtc cudart; do
    ln -sf "$(find "$venv" -name "lib$name.so.*" | sort | head -1)" "$1/lib$name.so"
  done
  # The driver's functions are found where the program runs.
  find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -path '*/cudarc-*/src/driver/sys/mod.rs' -exec grep -ohE 'fn cu[A-Z]\w*' {} + |
    sort -u | sed 's/fn \(.*\)/void \1(void) {}/' > "$1/driver.c"
  cc -shared -fPIC -w -Wl,-soname,libcuda.so.1 -o "$1/libcuda.so" "$1/driver.c"
}
