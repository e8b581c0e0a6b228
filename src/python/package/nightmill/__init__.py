"""Scores agent traces: coherence, loops, reliability and consistency of sessions.

Tables go in and come out as Arrow streams: anything with `__arrow_c_stream__` (a table or reader of pyarrow, a data frame
of Polars, a relation of DuckDB) can be scored, and `pyarrow.table(out.scores)` or `polars.DataFrame(out.scores)` takes
what comes out. Nothing but the compiled part is needed; the model is inside.
"""

from ._nightmill import (
    NightmillError,
    Parts,
    Scored,
    Scorer,
    Worker,
    __version__,
    bucket,
    score,
)

__all__ = [
    "NightmillError",
    "Parts",
    "Scored",
    "Scorer",
    "Worker",
    "__version__",
    "bucket",
    "embed",
    "merge",
    "score",
]


def embed(texts, **settings):
    """Vectors of texts, by a scorer of their own: see `Scorer.embed`. Whoever embeds more than once keeps a `Scorer`."""
    return Scorer(metrics=["coherence"], **settings).embed(texts)


def merge(counts, **settings):
    """What several tables come to together: see `Scorer.merge`. `settings` are those of the scorer that made the counts."""
    return Scorer(**settings).merge(counts)
