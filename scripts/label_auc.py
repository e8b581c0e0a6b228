#!/usr/bin/env python3
"""How well do scores of a finished run tell sessions with a label from those without?

    python3 scripts/label_auc.py RUN TRACES.parquet label_outcome=halted [METRIC ...]

RUN is a run directory of `nightmill score`, TRACES the Parquet file that it scored, with a column of labels that is the same
for all traces of a session. Several values may be given: label_outcome=halted,failure. Without metrics: stuck and
loop_detection. Needs pyarrow (`pip install pyarrow`), nothing else.

For each metric it prints two areas under the curve: the share of pairs of a session with the label and one without
in which the former has the lower score, ties counting half; 0.5 is chance. Long sessions have more time to go
wrong and to repeat themselves, so the first area takes pairs of sessions with equally many traces alone. A session
has the score of its last trace (for `stuck`, which looks at the session so far, that of the whole session), the lowest one
of its traces, and their mean; the script shows all three.

For example: nightmill score hotpotqa.parquet --metrics stuck,loop_detection --out run
             python3 scripts/label_auc.py run hotpotqa.parquet label_outcome=halted
"""

import collections
import glob
import os
import sys

import pyarrow.parquet as pq


def wins(with_label, without):
    """Pairs in which the session with the label scores lower, and all pairs."""
    won = sum((a < b) + 0.5 * (a == b) for a in with_label for b in without)
    return won, len(with_label) * len(without)


def areas(sessions):
    """(area among sessions of equal length, its pairs, area among all) of (has label, length, score)."""
    strata = collections.defaultdict(lambda: ([], []))
    for has_label, length, score in sessions:
        for key in (length, None):
            strata[key][0 if has_label else 1].append(score)
    everything = wins(*strata.pop(None, ([], [])))
    won = pairs = 0
    for stratum in strata.values():
        more_won, more_pairs = wins(*stratum)
        won, pairs = won + more_won, pairs + more_pairs
    share = lambda won, pairs: won / pairs if pairs else None
    return share(won, pairs), pairs, share(*everything)


def main():
    if len(sys.argv) < 4 or "=" not in sys.argv[3]:
        sys.exit(__doc__)
    run, traces, (column, values) = sys.argv[1], sys.argv[2], sys.argv[3].split("=", 1)
    metrics = sys.argv[4:] or ["stuck", "loop_detection"]
    parts = sorted(glob.glob(os.path.join(run, "traces", "*.parquet")))
    if not parts:
        sys.exit(f"{run}: no table of traces; name the directory of a finished run")
    scored = {}
    for part in parts:
        table = pq.read_table(part)
        missing = [name for name in metrics if name not in table.column_names]
        if missing:
            sys.exit(f"{run}: the run has no column {missing[0]}; score it with --metrics {','.join(metrics)}")
        for row in table.select(["trace_id", *metrics]).to_pylist():
            scored[row["trace_id"]] = row
    labelled = pq.read_table(traces, columns=["trace_id", "session_id", "started_at", column]).to_pylist()
    sessions = collections.defaultdict(list)
    for row in sorted(labelled, key=lambda row: (row["started_at"], row["trace_id"])):
        if row[column] is not None and row["session_id"]:
            sessions[row["session_id"]].append(row)
    wanted = values.split(",")

    def is_wanted(value):
        return str(value) in wanted or (isinstance(value, float) and any(value == float(w) for w in wanted))

    print(f"{os.path.basename(traces)}: {column} = {values}")
    for metric in metrics:
        for of_session, name in (
            (lambda scores: scores[-1], "last"),
            (min, "min "),
            (lambda scores: sum(scores) / len(scores), "mean"),
        ):
            found = []
            for rows in sessions.values():
                scores = [scored.get(row["trace_id"], {}).get(metric) for row in rows]
                scores = [score for score in scores if score is not None]
                # Where there is nothing to compare, nothing is repeated.
                found.append((is_wanted(rows[0][column]), len(rows), of_session(scores) if scores else 1.0))
            equal, pairs, everything = areas(found)
            shown = lambda area: "none " if area is None else f"{area:.3f}"
            print(f"  {metric:20} {name}  equal length {shown(equal)} ({pairs} pairs)  all {shown(everything)}")


if __name__ == "__main__":
    main()
