#!/usr/bin/env bash
# A kit that measures a card without building anything there: `pack` on a build machine, `run` where the card is.
#
#   scripts/gpu-kit.sh pack KIT.tar.xz       # builds benches/gpu.rs and packs it with this script; needs no CUDA
#   ./gpu-kit.sh run FOLDER [SECONDS]        # in the unpacked kit; eight minutes at most
#
# FOLDER/kit.json has the card, its driver, the commit, the date, and what `benches/gpu.rs` found. Figures in the README are
# from such a file, and from nothing else. `run` also asks NVIDIA's compute-sanitizer, where it is installed, and PyTorch,
# where there is one with CUDA: the same shape, compiled, f16, ids ready. Each part has a time of its own, and what was found
# before one ran out of it stays: FOLDER/found.jsonl has every part as soon as it is known.
set -euo pipefail

case "${1:-}" in
pack)
  out="$(realpath "${2:?name the archive to make}")"
  cd "$(dirname "$0")/.."
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  if ! command -v nvcc >/dev/null; then
    . scripts/cuda.sh
    link_cuda "$folder/link"
    # Not by flags of the compiler: they would build every crate again.
    export LIBRARY_PATH="$folder/link${LIBRARY_PATH:+:$LIBRARY_PATH}"
  fi
  # The padded graph, which is the baseline, is candle's: code that all cards since then translate.
  export CUDA_COMPUTE_CAP="${CUDA_COMPUTE_CAP:-80}"
  built="$(cargo bench --bench gpu --features bench-gpu --no-run --message-format json |
    python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin if line.startswith("{")]
print([l["executable"] for l in lines if l.get("executable") and l["target"]["name"] == "gpu"][-1])')"
  cp "$built" "$folder/gpu"
  strip "$folder/gpu"
  cp scripts/gpu-kit.sh "$folder/gpu-kit.sh"
  git describe --always --abbrev=40 --dirty > "$folder/commit"
  tar -C "$folder" -cJf "$out" gpu gpu-kit.sh commit
  bytes="$(stat -c %s "$out")"
  [ "$bytes" -le 60000000 ] || { echo "gpu-kit: $out has $bytes bytes, more than 60 MB" >&2; exit 1; }
  echo "gpu-kit: $out, $bytes bytes"
  ;;
run)
  cd "$(dirname "$0")"
  # The libraries that PyTorch brings do as well as those of CUDA.
  libraries="$(python3 -c 'import glob, site
print(":".join(f for s in site.getsitepackages() for f in sorted(glob.glob(s + "/nvidia/*/lib"))))' 2>/dev/null || true)"
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$libraries"
  if ldd ./gpu | grep 'not found' >&2; then
    echo "gpu-kit: libraries of CUDA 13 are not there; install them, or PyTorch for CUDA 13" >&2
    exit 1
  fi
  folder="${2:?name a folder for what is found}"
  mkdir -p "$folder"
  ended=0
  timeout 270 ./gpu "${3:-2}" > "$folder/found.jsonl" 2> "$folder/said.txt" || ended=$?
  sanitizer="not there"
  if command -v compute-sanitizer >/dev/null; then
    code=0
    timeout 100 compute-sanitizer --error-exitcode 9 ./gpu 0.01 brief > "$folder/sanitizer.txt" 2>&1 || code=$?
    sanitizer="$(grep -E 'ERROR SUMMARY' "$folder/sanitizer.txt" || echo "ended with $code (124: no end in 100 s)")"
  fi
  timeout 90 python3 - > "$folder/pytorch.json" 2> "$folder/pytorch.txt" <<'PY' || true
import json, time

import torch

layer = torch.nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True, dropout=0.0)
model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
words = torch.nn.Embedding(30522, 384).cuda().half()
forward = torch.compile(lambda ids: torch.nn.functional.normalize(model(words(ids)).mean(1), dim=-1))
speeds = {}
with torch.inference_mode():
    for texts in (64, 128, 256, 512, 1024):
        ids = torch.randint(30522, (texts, 128), device="cuda")
        for _ in range(3):
            forward(ids)
        torch.cuda.synchronize()
        began, passes = time.time(), 0
        while time.time() - began < 2:
            forward(ids)
            torch.cuda.synchronize()
            passes += 1
        # As all-MiniLM-L6, compiled, f16, ids on the card, 128 tokens a text; by the number of texts.
        speeds[texts] = round(passes * texts * 128 / (time.time() - began))
        best = {"version": torch.__version__, "tokens_per_second": max(speeds.values()), "by_texts": speeds}
        print(json.dumps(best), flush=True)
PY
  FOLDER="$folder" SANITIZER="$sanitizer" COMMIT="$(cat commit)" python3 - <<'PY'
import json, os, subprocess, time

folder = os.environ["FOLDER"]


def lines(name):
    with open(os.path.join(folder, name)) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


result = {"commit": os.environ["COMMIT"], "date": time.strftime("%Y-%m-%d"), "models": []}
for part in lines("found.jsonl"):
    name = part.pop("part")
    if name == "model":
        result["models"].append(part)
    else:
        result[name] = part
asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
try:
    result["driver"] = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
except OSError as problem:
    result["driver"] = f"not known: {problem}"
result["compute_sanitizer"] = os.environ["SANITIZER"]
# None, or one without CUDA: said, and everything else stands.
result["pytorch"] = (lines("pytorch.json") or ["not measured; see pytorch.txt"])[-1]
text = json.dumps(result, indent=2)
with open(os.path.join(folder, "kit.json"), "w") as file:
    file.write(text + "\n")
print(text)
PY
  if [ "$ended" != 0 ]; then
    echo "gpu-kit: not everything was measured (the program ended with $ended); see $folder/said.txt" >&2
    exit 1
  fi
  ;;
*)
  sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//'
  exit 2
  ;;
esac
