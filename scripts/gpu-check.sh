#!/usr/bin/env bash
# For a person with a GPU: is the device path right, and how fast is it?
#
#   scripts/gpu-check.sh [cuda|metal] [PEAK_TFLOPS]
#
# 1. Builds with the feature. 2. Embeds the sample data on the CPU at f32 and on the GPU at f32 and f16, there also by the
# packed graph, and compares the vectors. 3. Embeds many generated texts on the GPU and prints tokens a second and, if the
# GPU's peak at f16 is given (in TFLOPS, from its data sheet), the share of it. 4. Embeds texts in two orders by the packed
# graph: the bits must be equal. Needs python3 with pyarrow and numpy for the comparison.
set -euo pipefail
cd "$(dirname "$0")/.."
device="${1:-cuda}"
peak="${2:-}"
python="${NIGHTMILL_PYTHON:-python3}"
unset NIGHTMILL_PYTHON
# The settings of this machine must not change what is compared.
export NIGHTMILL_CONFIG=/dev/null

"$python" -c 'import numpy, pyarrow' || { echo "gpu-check: $python needs numpy and pyarrow" >&2; exit 1; }
cargo build --release --features "$device"
program="${CARGO_TARGET_DIR:-target}/release/nightmill"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT

"$python" - "$out/texts.jsonl" <<'PY'
import json, random, sys
words = "the order parcel refund late blue shoe please check account mail card number seven because when".split()
chance = random.Random(7)
with open(sys.argv[1], "w") as file:
    for _ in range(200_000):
        text = " ".join(chance.choice(words) + str(chance.randrange(1000)) for _ in range(chance.randint(3, 60)))
        file.write(json.dumps({"text": text}) + "\n")
PY

embed() { # FILE COLUMN DEVICE PRECISION OUT [FLAGS]
  "$program" embed "$1" --columns "$2" --device "$3" --precision "$4" --no-cache --overwrite --json --out "$5" "${@:6}"
}
embed datasets/chats.jsonl question cpu f32 "$out/cpu.parquet" >/dev/null
refused=""
for graph in "f32 padded" "f16 padded" "f16 packed"; do
  read -r precision name <<<"$graph"
  if ! embed datasets/chats.jsonl question "$device" "$precision" "$out/gpu.parquet" --gpu-graph "$name" \
    > /dev/null 2> "$out/said.txt"; then
    cat "$out/said.txt" >&2
    # There are cards and models that it has no kernels for.
    [ "$name" = packed ] || exit 1
    refused="$(tail -1 "$out/said.txt")"
    continue
  fi
  "$python" - "$out" "$precision" "$name" <<'PY'
import sys
import numpy as np
import pyarrow.parquet as pq
folder, precision, graph = sys.argv[1:]
def vectors(name):
    rows = pq.read_table(f"{folder}/{name}.parquet")["question_embedding"].to_pylist()
    return np.array([row for row in rows if row is not None])
a, b = vectors("cpu"), vectors("gpu")
assert a.shape == b.shape and len(a) > 10, (a.shape, b.shape)
cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
print(f"{precision}, {graph}: {len(a)} texts, cosine to the CPU at f32: mean {cosine.mean():.7f}, least {cosine.min():.7f}")
least = {"f32": 0.99999, "f16": 0.999}[precision]
assert cosine.min() >= least, f"{precision} is further from the CPU than {least}"
PY
done
for graph in "f16 padded" "f32 padded" "f16 packed"; do
  read -r precision name <<<"$graph"
  if [ "$name" = packed ] && [ -n "$refused" ]; then continue; fi
  embed "$out/texts.jsonl" text "$device" "$precision" "$out/many.parquet" --gpu-graph "$name" > "$out/many.json"
  "$python" - "$out/many.json" "$precision" "$name" "$peak" <<'PY'
import json, sys
path, precision, graph, peak = sys.argv[1:]
run = json.load(open(path))
# With tokenising, which few cores may not do as quickly as the GPU computes: what it could do is in benches/gpu.rs.
speed = run["tokens_per_second"]
# all-MiniLM-L6-v2: 21.2 million operations a token in its linear layers; attention is not counted.
flops = speed * 21.2e6
share = f", {100 * flops / float(peak) / 1e12:.1f} % of the peak" if peak and precision == "f16" else ""
print(f"{precision}, {graph}: {run['tokens']} tokens, {speed:.0f} tokens/s, {flops / 1e12:.2f} TFLOPS{share}")
PY
done
if [ -n "$refused" ]; then
  echo "gpu-check: the packed graph is refused here: $refused"
  exit
fi
"$python" - "$out" <<'PY'
import sys
lines = open(f"{sys.argv[1]}/texts.jsonl").readlines()[:20000]
open(f"{sys.argv[1]}/some.jsonl", "w").writelines(lines)
open(f"{sys.argv[1]}/turned.jsonl", "w").writelines(lines[::-1])
PY
for order in some turned; do
  embed "$out/$order.jsonl" text "$device" f16 "$out/$order.parquet" --gpu-graph packed >/dev/null
done
"$python" - "$out" <<'PY'
import sys
import pyarrow.parquet as pq
def rows(name):
    return pq.read_table(f"{sys.argv[1]}/{name}.parquet")["text_embedding"].to_pylist()
some, turned = rows("some"), rows("turned")[::-1]
assert len(some) == 20000 and some == turned, "a vector of the packed graph depends on what stands beside its text"
print("f16, packed: equal bits in two orders")
PY
echo "gpu-check: $device agrees with the CPU"
