#!/usr/bin/env python3
"""The naive way to score traces: the baseline of nightmill's speed ratio.

Reads canonical traces (a Parquet file or a folder of them) and computes coherence, loop_detection,
agent_reliability and agent_consistency the way a service does that sees one trace at a time: each trace
embeds its input, its output and, once more, the up to 3 previous outputs of its session, in one call. No text is
remembered from one trace to the next, and no batch spans two traces.

    naive.py traces/ --model DIR --threads 2 --limit 2000 --out naive.parquet

The encoder is sentence-transformers if it can be imported, else transformers with torch, on the f32 folder given
by --model (scripts/make_shipped_model.py --original DIR writes one): 256 tokens, mean pooling, normalised.

Prints one JSON object. `seconds` covers embedding and scoring; loading the model, reading and writing files are not
in it. `texts_embedded` counts every text that went through the encoder, repeats included.
Needs pyarrow and an encoder.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import os
import re
import sys
import time
import uuid
from datetime import timezone
from operator import mul
from pathlib import Path

WINDOW = 3
MAX_TOKENS = 256
WEIGHTS = {"confidence": 1.0, "loop_detection": 1.0, "tool_correctness": 0.8, "coherence": 1.0}
STOP_WORDS = frozenset(
    "a an the is are was were be been being have has had do does did will would shall should may might can could of in "
    "to for on with at by from as into through during before after above below and but or nor not so yet both either "
    "neither each every all any few more most other some such no only own same than too very it its".split()
)


def fail(message):
    sys.exit(f"naive: {message}")


# Numbers and texts


def round4(x):
    return float(f"{x:.4f}") + 0.0  # + 0.0 turns -0.0 into 0.0


def clamp01(x):
    return max(0.0, min(1.0, x))


def to_text(cell, is_json):
    """The text of a cell. JSON cells that hold no string become JSON text."""
    if cell is None:
        return ""
    if not is_json:
        return cell
    value = json.loads(cell)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def distance(a, b):
    """The cosine distance in [0, 1], or None if a vector is not finite."""
    dot = sum(map(mul, a, b))
    norm_a, norm_b = math.sqrt(sum(map(mul, a, a))), math.sqrt(sum(map(mul, b, b)))
    if not (math.isfinite(dot) and math.isfinite(norm_a) and math.isfinite(norm_b)):
        return None
    if norm_a == 0.0 or norm_b == 0.0:
        return 1.0
    return clamp01(1.0 - dot / (norm_a * norm_b))


def tokens(text):
    # Python's \w is letters, numbers of every kind and the underscore.
    return {t for t in re.findall(r"\w+", text.lower()) if len(t) > 1 and t not in STOP_WORDS}


def jaccard(a, b):
    union = len(a | b)
    return len(a & b) / union if union else 0.0


# Metrics. `vector` is a function text -> vector. A score is None where the metric fails.


def coherence(text_in, text_out, vector):
    if not text_in or not text_out:
        return 1.0
    gap = distance(vector(text_in), vector(text_out))
    return None if gap is None else round4(clamp01(1.0 - gap))


def loop_window(previous):
    """The outputs to compare with: the last 3, then without the empty ones."""
    return [text for text in previous[-WINDOW:] if text]


def loop_detection(current, previous, vector):
    window = loop_window(previous)
    if not current or not window:
        return 1.0
    worst = 0.0
    for text in window:
        gap = distance(vector(current), vector(text))
        if gap is None:
            return None
        worst = max(worst, (1.0 - gap) * jaccard(tokens(current), tokens(text)))
    return round4(clamp01(1.0 - worst))


def risks(scores, weights):
    """signal -> weighted risk, of the signals that are present."""
    present = {s: v for s, v in scores.items() if s in WEIGHTS and v is not None and not math.isnan(v)}
    return {s: weights[s] * (1.0 - present[s]) for s in WEIGHTS if s in present}


def agent_reliability(trace_ids, signals, weights=WEIGHTS):
    """(score, evaluated traces)."""
    steps = [max(r.values()) for r in (risks(signals.get(t) or {}, weights) for t in trace_ids) if r]
    if not steps:
        return 1.0, 0
    steps.sort(reverse=True)
    k = max(1, math.ceil(0.15 * len(steps)))
    raw = 0.9 * (sum(steps[:k]) / k) + 0.1 * steps[0]
    return round4(clamp01(1.0 - raw)), len(steps)


def agent_consistency(trace_ids, signals, weights=WEIGHTS):
    """(score, evaluated traces)."""
    squares = []
    for r in (risks(signals.get(t) or {}, weights) for t in trace_ids):
        if "confidence" in r:
            penalty = sum(r[s] for s in ("loop_detection", "tool_correctness", "coherence") if s in r)
            squares.append(((1.0 + penalty) * r["confidence"]) ** 2)
    if not squares:
        return 1.0, 0
    return round4(clamp01(1.0 - math.sqrt(sum(squares) / len(squares)))), len(squares)


# Traces


def parquet_files(path):
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        fail(f"no Parquet file under {path}")
    return files


def canonical_id(trace_id):
    try:
        return str(uuid.UUID(trace_id))
    except ValueError:
        return trace_id


def read_traces(path, json_columns):
    """trace id -> trace, in input order; a later row of the same trace replaces what it has."""
    import pyarrow.parquet as pq

    columns = ["trace_id", "session_id", "started_at", "input", "output"]
    traces, rejected = {}, 0
    for file in parquet_files(path):
        with pq.ParquetFile(file) as parquet:
            for row in parquet.read(columns=columns).to_pylist():
                if not row["trace_id"] or row["started_at"] is None:
                    rejected += 1
                    continue
                if row["started_at"].tzinfo is None:
                    row["started_at"] = row["started_at"].replace(tzinfo=timezone.utc)
                trace = traces.setdefault(canonical_id(row["trace_id"]), {"session_id": None, "input": None, "output": None})
                trace["started_at"] = row["started_at"]
                trace.update({c: row[c] for c in ("session_id", "input", "output") if row[c] is not None})
    for trace in traces.values():
        for c in ("input", "output"):
            trace[c] = to_text(trace[c], c in json_columns)
    return traces, rejected


def group_sessions(traces, limit):
    """[(session id or None, ordered trace ids)]. A trace without a session stands alone. --limit takes whole groups."""
    groups = {}
    for trace_id, trace in traces.items():
        key = (trace["session_id"], None) if trace["session_id"] else (None, trace_id)
        groups.setdefault(key, []).append(trace_id)
    chosen, count = [], 0
    for (session_id, _), ids in groups.items():
        if limit is not None and count >= limit:
            break
        chosen.append((session_id, sorted(ids, key=lambda i: (traces[i]["started_at"], i.encode()))))
        count += len(ids)
    return chosen


def read_signals(path):
    """trace id -> {signal: score}."""
    import pyarrow.parquet as pq

    signals = {}
    for file in parquet_files(path):
        with pq.ParquetFile(file) as parquet:
            for row in parquet.read().to_pylist():
                trace_id = canonical_id(row.pop("trace_id"))
                signals[trace_id] = {s: v for s, v in row.items() if v is not None}
    return signals


# Encoders: a function [text] -> [vector], and its name


def fake_encoder():
    """Hashed word counts, no model. Only to test this script where there is no torch."""

    def encode(texts):
        vectors = []
        for text in texts:
            vector = [0.0] * 64
            for word in text.lower().split():
                vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
            vectors.append(vector)
        return vectors

    return encode, "fake"


def sentence_transformers_encoder(model_dir, threads, device):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(model_dir), device=device).float()
    model.max_seq_length = MAX_TOKENS

    def encode(texts):
        options = {"batch_size": len(texts), "normalize_embeddings": True, "show_progress_bar": False}
        return model.encode(texts, **options).tolist()

    return encode, "sentence-transformers"


def transformers_encoder(model_dir, threads, device):
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(str(model_dir))
    model = AutoModel.from_pretrained(str(model_dir)).float().to(device).eval()

    @torch.inference_mode()
    def encode(texts):
        batch = tokenizer(texts, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(device)
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=1).cpu().tolist()

    return encode, "transformers"


def load_encoder(args):
    if args.fake:
        return fake_encoder()
    if args.model is None or not (args.model / "model.safetensors").is_file():
        fail("--model must name a folder with model.safetensors")
    os.environ["HF_HUB_OFFLINE"] = "1"
    if importlib.util.find_spec("torch"):
        if importlib.util.find_spec("sentence_transformers"):
            return sentence_transformers_encoder(args.model, args.threads, args.device)
        if importlib.util.find_spec("transformers"):
            return transformers_encoder(args.model, args.threads, args.device)
    fail("needs torch and sentence-transformers, or torch and transformers")


# The run


def needed_texts(text_in, text_out, window):
    """What one trace embeds, each distinct text once."""
    texts = [text_in, text_out] if text_in and text_out else []
    texts += [text_out, *window] if text_out and window else []
    return list(dict.fromkeys(texts))


def score(sessions, traces, signals, encode):
    """(trace rows, session rows, texts embedded)."""
    trace_rows, session_rows, embedded = [], [], 0
    for session_id, ids in sessions:
        previous, session_signals = [], {}
        for trace_id in ids:
            text_in, text_out = traces[trace_id]["input"], traces[trace_id]["output"]
            texts = needed_texts(text_in, text_out, loop_window(previous))
            vectors = dict(zip(texts, encode(texts))) if texts else {}
            embedded += len(texts)
            row = {"trace_id": trace_id, "coherence": coherence(text_in, text_out, vectors.__getitem__), "loop_detection": None}
            if session_id:
                row["loop_detection"] = loop_detection(text_out, previous, vectors.__getitem__)
            trace_rows.append(row)
            computed = {s: row[s] for s in ("coherence", "loop_detection")}
            session_signals[trace_id] = {**signals.get(trace_id, {}), **computed}
            previous.append(text_out)
        if session_id:
            reliability, _ = agent_reliability(ids, session_signals)
            consistency, evaluated = agent_consistency(ids, session_signals)
            session_rows.append(
                {
                    "session_id": session_id,
                    "traces": len(ids),
                    "agent_reliability": reliability,
                    "agent_consistency": consistency,
                    "consistency_evaluated_traces": evaluated,
                }
            )
    return trace_rows, session_rows, embedded


def write_rows(rows, path, schema):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(schema)), path, compression="zstd")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="a Parquet file, or a folder with Parquet files")
    parser.add_argument("--model", type=Path, metavar="DIR", help="the f32 model folder")
    parser.add_argument("--signals", type=Path, metavar="FILE", help="Parquet with trace_id, confidence, tool_correctness")
    parser.add_argument("--json-columns", default="", metavar="LIST", help="input, output or both: cells hold JSON documents")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of the encoder (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="stop taking sessions once there are N traces; sessions stay whole")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write trace_id, coherence, loop_detection as Parquet")
    parser.add_argument("--sessions-out", type=Path, metavar="FILE", help="write the session scores as Parquet")
    parser.add_argument("--fake", action="store_true", help="hashed words instead of a model: tests this script, measures nothing")
    args = parser.parse_args()
    json_columns = set(filter(None, args.json_columns.split(",")))
    if json_columns - {"input", "output"}:
        parser.error("--json-columns knows input and output")

    encode, encoder = load_encoder(args)
    traces, rejected = read_traces(args.traces, json_columns)
    signals = read_signals(args.signals) if args.signals else {}
    sessions = group_sessions(traces, args.limit)
    if not sessions:
        fail("no traces")
    encode(["The first call is slower."])

    start = time.perf_counter()
    trace_rows, session_rows, embedded = score(sessions, traces, signals, encode)
    seconds = time.perf_counter() - start

    if args.out:
        write_rows(trace_rows, args.out, [("trace_id", "string"), ("coherence", "double"), ("loop_detection", "double")])
    if args.sessions_out:
        schema = [("session_id", "string"), ("traces", "int64"), ("agent_reliability", "double")]
        schema += [("agent_consistency", "double"), ("consistency_evaluated_traces", "int64")]
        write_rows(session_rows, args.sessions_out, schema)
    report = {
        "traces": len(trace_rows),
        "sessions": len(session_rows),
        "seconds": round(seconds, 3),
        "traces_per_second": round(len(trace_rows) / seconds, 2),
        "texts_embedded": embedded,
        "rejected_rows": rejected,
        "encoder": encoder,
        "device": args.device,
        "threads": args.threads,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
