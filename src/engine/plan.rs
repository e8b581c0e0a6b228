//! The plan of a run.
//!
//! ```text
//! traces (files) ─ embed_once ─ [merge repeated ids] ─ [join given signals]
//!   ─ repartition by session ─ sort ─ walk over sessions: loop detection, coherence
//!   ─ [rows set aside, for a condition on them] ─ [join what judges said]
//!   ─ merge partitions in session order ─ TAP (trace rows are written) ─ aggregate by session
//! ```
//!
//! Texts stop at `embed_once`: what is shuffled and sorted are places of texts, ids and numbers. `embed_once` does
//! not wait for the encoder; the walk comes after the sort, which needs all rows anyway, and is the first to read
//! vectors. Metrics that hold an output against an expected one read both texts before that, where they are; what they
//! come to is a cell of numbers.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::catalog::TableProvider;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{DataFrame, SessionContext};

use super::bucket_order::in_buckets;
use super::session_walk::{Added, SessionWalk};
use crate::metric::SIGNALS;
#[cfg(doc)]
use crate::metric::compared::Comparing;
use crate::trace::Buckets;

/// What a scoring plan consists of.
#[derive(Clone, Debug)]
pub struct ScorePlan {
    /// Whether trace ids repeat, so that rows must be merged.
    pub merge_repeated: bool,
    /// Signals given by the user, present in the table `signals` beside `trace_id`.
    pub given_signals: Vec<String>,
    /// Compute coherence; its column is null otherwise.
    pub coherence: bool,
    /// Compute loop detection; its column is null otherwise.
    pub loop_detection: bool,
    /// Whether a quick model decides what it can: rows say then where it did, in `coherence_estimated` and `loop_estimated`.
    pub triage: bool,
    /// Hold outputs against expected ones: for each of [`Comparing::ALL`] its threshold, none where it is not computed.
    /// Without any, there is no column for it.
    pub comparing: [Option<f64>; 3],
    /// What the traces say of their spans and outputs for metrics of spans. Without any, there is no column for it.
    pub digests: Digests,
    /// Scores of spans that are signals. Each has a column of its name, and one that says whether it was given.
    pub span_signals: Vec<&'static str>,
    /// The buckets that its traces are in.
    pub buckets: Buckets,
    /// Buckets that are left out, in their order: their rows are scored already.
    pub done: Vec<u32>,
}

/// Columns of digests that a plan has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// `span_digest`.
    pub spans: bool,
    /// `output_digest`.
    pub output: bool,
    /// `stuck_record`: what the session so far says of a trace.
    pub of_sessions: bool,
    /// `input_facts` and `output_facts`: what signals of sessions need to know of texts.
    pub said: bool,
}

impl Digests {
    /// Those of traces, and how they are made of the columns that traces come with.
    fn made(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            (self.spans, "span_digest", "span_digest"),
            (self.output, "output_digest", "output_digest"),
            (self.said, "input_facts", "input_facts(input)"),
            (self.said, "output_facts", "output_facts(output)"),
        ];
        all.into_iter()
            .filter_map(|(wanted, name, made)| wanted.then_some((name, made)))
    }

    /// Their names.
    fn names(self) -> impl Iterator<Item = &'static str> {
        self.made().map(|(name, _)| name)
    }
}

const COLUMNS: [&str; 10] = [
    "given_id",
    "session_id",
    "project_id",
    "started_at",
    "started_at_nanos",
    "name",
    "environment",
    "release",
    "model",
    "tags",
];

/// What the later of two rows of one trace does to a column (as in PandaProbe).
#[derive(Clone, Copy)]
enum Later {
    /// The first row's value stands, null or not.
    Stays,
    /// Its value stands, null or not.
    Replaces,
    /// Its value stands unless it is null.
    ReplacesIfThere,
}

/// A query that folds the rows of each trace in `from` into one, in the order in which they were read.
fn merged(from: &str, columns: &[(&str, Later)], more: &str) -> String {
    let columns: Vec<String> = columns
        .iter()
        .map(|(column, later)| {
            let (which, filter) = match later {
                Later::Stays => ("first_value", String::new()),
                Later::Replaces => ("last_value", String::new()),
                Later::ReplacesIfThere => (
                    "last_value",
                    format!(" FILTER (WHERE {column} IS NOT NULL)"),
                ),
            };
            format!("{which}({column} ORDER BY position){filter} AS {column}")
        })
        .collect();
    format!(
        "SELECT trace_id, {}{more} FROM {from} GROUP BY trace_id",
        columns.join(", ")
    )
}

/// The id that outputs show: as it was given. The canonical form is for matching.
const SHOWN_ID: &str = "coalesce(given_id, trace_id) AS shown_id";

/// Sessions one after the other, and each in the order of its traces. A session is a `session_id` of a
/// `project_id`.
const SESSION_ORDER: &str = "session_id ASC NULLS LAST, project_id ASC NULLS LAST, \
    started_at ASC NULLS LAST, started_at_nanos ASC NULLS LAST, trace_id ASC NULLS LAST";

/// The rows of the table `traces`, which carry all their signals already, in session order.
///
/// Columns: `trace_id`, `shown_id`, `session_id`, `project_id`, `started_at`, the four signals and those of spans named by
/// `of_spans`. Those of `overlaid`, in the table `signals` beside `trace_id`, go before the ones that the rows carry.
///
/// # Errors
/// DataFusion's.
pub async fn given_signals(
    context: &SessionContext,
    merge_repeated: bool,
    of_spans: &[&str],
    overlaid: &[String],
) -> Result<DataFrame> {
    use Later::{Replaces, ReplacesIfThere, Stays};
    let mut names = SIGNALS.map(|(name, _)| name).to_vec();
    names.extend(of_spans);
    let from = match merge_repeated {
        false => "traces".to_owned(),
        true => {
            let mut columns = vec![
                ("given_id", Stays),
                ("session_id", ReplacesIfThere),
                ("project_id", ReplacesIfThere),
                ("started_at", Replaces),
                ("started_at_nanos", Replaces),
            ];
            columns.extend(names.iter().map(|name| (*name, ReplacesIfThere)));
            format!("({})", merged("traces", &columns, ""))
        }
    };
    let from = match overlaid.is_empty() {
        true => from,
        false => {
            let signals = names
                .iter()
                .map(|name| match overlaid.iter().any(|s| s == name) {
                    true => format!("coalesce(signals.\"{name}\", t.{name}) AS {name}"),
                    false => format!("t.{name}"),
                });
            let signals: Vec<String> = signals.collect();
            format!(
                "(SELECT t.trace_id, t.given_id, t.session_id, t.project_id, t.started_at, t.started_at_nanos, {} \
                 FROM signals RIGHT JOIN {from} t ON signals.trace_id = t.trace_id)",
                signals.join(", ")
            )
        }
    };
    let sql = format!(
        "SELECT trace_id, {SHOWN_ID}, session_id, project_id, started_at, {} \
         FROM {from} ORDER BY {SESSION_ORDER}",
        names.join(", ")
    );
    context.sql(&sql).await
}

/// Of the rows of `traces`, those whose trace has several: `trace_id` and what they say together, `session_id` and
/// `project_id`.
///
/// # Errors
/// DataFusion's.
pub(crate) async fn sessions_of_repeated(
    context: &SessionContext,
    traces: Arc<dyn TableProvider>,
) -> Result<DataFrame> {
    use Later::ReplacesIfThere;
    context.register_table("ids", traces)?;
    let columns = [
        ("session_id", ReplacesIfThere),
        ("project_id", ReplacesIfThere),
    ];
    let merged = merged("ids", &columns, ", count(*) AS rows");
    let sql = format!("SELECT trace_id, session_id, project_id FROM ({merged}) WHERE rows > 1");
    context.sql(&sql).await
}

/// Signals that judges give.
pub(crate) const JUDGED_SIGNALS: [&str; 2] = ["confidence", "tool_correctness"];
/// Where what judges said of a trace is; null where they said nothing.
pub(crate) const JUDGED_AT: &str = "judged_at";

impl ScorePlan {
    /// The rows of all traces, scored and in session order (`session_id` nulls last, `project_id`,
    /// `started_at`, `trace_id`), over the tables `traces` and, if signals are given, `signals`.
    ///
    /// Columns: `trace_id` (canonical), `shown_id` (as it was given), labels, `input_position` and
    /// `output_position` (where the texts are), where rows were merged their `positions`, the raw
    /// `coherence_gap` and `loop_record`, where outputs are compared the raw `comparison_record`, the digests and
    /// `stuck_record` where spans are looked at, the four signals, and which of them were given, and the signals of spans.
    ///
    /// # Errors
    /// DataFusion's.
    pub async fn scored(&self, context: &SessionContext) -> Result<DataFrame> {
        let computed = self.computed(context).await?;
        self.in_order(context, computed, None).await
    }

    /// The same rows in no order; where there are several buckets, with a column `bucket`.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) async fn computed(&self, context: &SessionContext) -> Result<DataFrame> {
        let joined = self.joined();
        let scored = self.scored_rows();
        if !self.coherence && !self.loop_detection {
            let walked = "SELECT *, CAST(NULL AS BYTEA) AS loop_record, CAST(NULL AS DOUBLE) AS coherence_gap, \
                 CAST(NULL AS DOUBLE) AS input_again, CAST(NULL AS DOUBLE) AS output_again FROM joined";
            let sql = format!("{joined}, walked AS ({walked}), {scored}");
            return context.sql(&sql).await;
        }
        let joined = format!("{joined} SELECT * FROM joined");
        let joined = context.sql(&joined).await?.create_physical_plan().await?;
        let added = Added {
            loops: self.loop_detection,
            gaps: self.coherence,
            again: self.digests.said && self.coherence,
            estimated: self.triage,
            in_buckets: self.is_bucketed(),
        };
        let walk = SessionWalk::new(joined, added);
        context.register_table("walked", Arc::new(walk))?;
        context.sql(&format!("WITH {scored}")).await
    }

    /// Computed rows in session order, with what judges said: a table of `trace_id`, [`JUDGED_AT`] and
    /// [`JUDGED_SIGNALS`]. A given signal goes before a judged one. The rows may come from a plan that computes more signals
    /// than this one: those are left out.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) async fn in_order(
        &self,
        context: &SessionContext,
        computed: DataFrame,
        judged: Option<Arc<dyn TableProvider>>,
    ) -> Result<DataFrame> {
        let rows = self.judged(context, computed, judged)?;
        let sql = format!("SELECT * FROM ({rows}) ORDER BY {SESSION_ORDER}");
        context.sql(&sql).await
    }

    /// The rows of [`ScorePlan::in_order`] in streams of whole buckets, each stream in the order of its buckets and in each
    /// bucket in session order.
    ///
    /// # Errors
    /// DataFusion's.
    pub(crate) async fn in_buckets(
        &self,
        context: &SessionContext,
        computed: DataFrame,
        judged: Option<Arc<dyn TableProvider>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.judged(context, computed, judged)?;
        let rows = context.sql(&rows).await?.create_physical_plan().await?;
        in_buckets(rows, context.copied_config().target_partitions())
    }

    fn is_bucketed(&self) -> bool {
        self.buckets != Buckets::ONE
    }

    /// The query of computed rows with what judges said.
    fn judged(
        &self,
        context: &SessionContext,
        computed: DataFrame,
        judged: Option<Arc<dyn TableProvider>>,
    ) -> Result<String> {
        let null = |wanted: bool, column: &str, of: &str| match wanted {
            true => format!("t.{column}"),
            false => format!("CAST(NULL AS {of}) AS {column}"),
        };
        let if_given = |wanted: bool, signal: &str| match wanted {
            true => format!("t.{signal}"),
            false => format!("CASE WHEN t.{signal}_given THEN t.{signal} END AS {signal}"),
        };
        // Of merged rows, a text has a place if it is embedded.
        let place = |embedded: bool, column: &str| {
            null(embedded || !self.merge_repeated, column, "BIGINT UNSIGNED")
        };
        let fields = computed.schema().fields().iter();
        let mut columns: Vec<String> = fields
            .map(|field| match field.name().as_str() {
                "input_position" => place(self.coherence, "input_position"),
                "output_position" => {
                    place(self.coherence || self.loop_detection, "output_position")
                }
                "coherence_gap" => null(self.coherence, "coherence_gap", "DOUBLE"),
                near @ ("input_again" | "output_again") => null(self.coherence, near, "DOUBLE"),
                "loop_record" => null(self.loop_detection, "loop_record", "BYTEA"),
                "coherence" => if_given(self.coherence, "coherence"),
                "loop_detection" => if_given(self.loop_detection, "loop_detection"),
                signal if judged.is_some() && JUDGED_SIGNALS.contains(&signal) => {
                    format!("coalesce(t.{signal}, judged.{signal}) AS {signal}")
                }
                other => format!("t.{other}"),
            })
            .collect();
        context.register_table("computed", computed.into_view())?;
        let mut from = "computed t".to_owned();
        if let Some(judged) = judged {
            context.register_table("judged", judged)?;
            columns.push(format!("judged.{JUDGED_AT}"));
            // As with given signals, the judged traces are the build side.
            from = format!("judged RIGHT JOIN {from} ON judged.trace_id = t.trace_id");
        }
        let columns = columns.join(", ");
        Ok(format!("SELECT {columns} FROM {from}"))
    }

    /// The call that tells the bucket of a row of `of`.
    fn bucket_of(&self, of: &str) -> String {
        let count = self.buckets.count();
        format!("bucket_of({of}.project_id, {of}.session_id, {of}.trace_id, {count})")
    }

    /// The condition on rows of `of` that their bucket is not done; nothing where none is.
    fn not_done(&self, of: &str) -> String {
        if self.done.is_empty() {
            return String::new();
        }
        let done: Vec<String> = self.done.iter().map(u32::to_string).collect();
        format!(" WHERE {} NOT IN ({})", self.bucket_of(of), done.join(", "))
    }

    /// The call that compares; none where nothing is compared.
    fn comparison_record(&self) -> Option<String> {
        let thresholds = self.comparing.map(|threshold| match threshold {
            Some(threshold) => format!("CAST({threshold:?} AS DOUBLE)"),
            None => "CAST(NULL AS DOUBLE)".to_owned(),
        });
        let any = self.comparing.iter().any(Option::is_some);
        any.then(|| {
            format!(
                "comparison_record(actual, expected, {})",
                thresholds.join(", ")
            )
        })
    }

    /// The first half of the plan, up to the rows in no order, with the places of their texts and their given signals: the
    /// tables of a query, the last of them `joined`.
    fn joined(&self) -> String {
        let (input, output) = (
            if self.coherence {
                "embed_once(input)"
            } else {
                "CAST(NULL AS BIGINT UNSIGNED)"
            },
            if self.coherence || self.loop_detection {
                "embed_once(output)"
            } else {
                "CAST(NULL AS BIGINT UNSIGNED)"
            },
        );
        let columns = COLUMNS.join(", ");
        let record = self.comparison_record();
        // Rows of one trace are merged first: one may have the output and another the expected text.
        let compared = match (&record, self.merge_repeated) {
            (None, _) => String::new(),
            (Some(record), false) => format!(", {record} AS comparison_record"),
            (Some(_), true) => ", actual, expected".to_owned(),
        };
        let digests: String = self
            .digests
            .names()
            .map(|name| format!(", {name}"))
            .collect();
        let made = self.digests.made();
        let made: String = made
            .map(|(name, how)| format!(", {how} AS {name}"))
            .collect();
        // Of merged rows it is known later where they belong.
        let not_done = match self.merge_repeated {
            false => self.not_done("traces"),
            true => String::new(),
        };
        let mut sql = format!(
            "WITH embedded AS (SELECT position, trace_id, {columns}, {input} AS input_text, {output} AS output_text{compared}{made} FROM traces{not_done})"
        );
        let mut from = "embedded";
        let mut places = "position AS input_position, position AS output_position";
        if self.merge_repeated {
            use Later::{Replaces, ReplacesIfThere, Stays};
            let mut columns = vec![
                ("given_id", Stays),
                ("session_id", ReplacesIfThere),
                ("project_id", ReplacesIfThere),
                ("started_at", Replaces),
                ("started_at_nanos", Replaces),
                ("name", Replaces),
                ("environment", ReplacesIfThere),
                ("release", ReplacesIfThere),
                ("model", ReplacesIfThere),
                ("tags", ReplacesIfThere),
                ("input_text", ReplacesIfThere),
                ("output_text", ReplacesIfThere),
            ];
            if record.is_some() {
                columns.extend([("actual", ReplacesIfThere), ("expected", ReplacesIfThere)]);
            }
            columns.extend(self.digests.names().map(|name| (name, ReplacesIfThere)));
            let rows = merged(
                "embedded",
                &columns,
                ", max(position) FILTER (WHERE input_text IS NOT NULL) AS input_position, \
                 max(position) FILTER (WHERE output_text IS NOT NULL) AS output_position, \
                 array_agg(position ORDER BY position) AS positions",
            );
            sql.push_str(&format!(", merged AS ({rows})"));
            from = "merged";
            places = "input_position, output_position, positions";
        }
        let given = |signal: &str| match self.given_signals.iter().any(|s| s == signal) {
            true => format!("signals.\"{signal}\""),
            false => "CAST(NULL AS DOUBLE)".to_owned(),
        };
        let carried = self.carried();
        let compared = match (&record, self.merge_repeated) {
            (Some(record), true) => format!(", {record} AS comparison_record"),
            _ => carried.to_owned(),
        };
        let join = match self.given_signals.is_empty() {
            true => format!("FROM {from} t"),
            // The signals are the build side of the hash join: they are few numbers, the traces are many.
            false => format!("FROM signals RIGHT JOIN {from} t ON signals.trace_id = t.trace_id"),
        };
        let bucket = match self.is_bucketed() {
            true => format!(", {} AS bucket", self.bucket_of("t")),
            false => String::new(),
        };
        let not_done = match self.merge_repeated {
            true => self.not_done("t"),
            false => String::new(),
        };
        sql.push_str(&format!(
            ", joined AS (SELECT t.trace_id, {}{bucket}, {places}, input_text, output_text{compared}{digests}, \
               {} AS confidence, {} AS tool_correctness, {} AS given_coherence, {} AS given_loop_detection{} {join}{not_done})",
            COLUMNS.map(|c| format!("t.{c}")).join(", "),
            given("confidence"),
            given("tool_correctness"),
            given("coherence"),
            given("loop_detection"),
            self.span_signals
                .iter()
                .map(|name| format!(", {} AS given_{name}", given(name)))
                .collect::<String>(),
        ));
        sql
    }

    /// `comparison_record`, where there is one, as rows carry it on.
    fn carried(&self) -> &'static str {
        match self.comparing.iter().any(Option::is_some) {
            true => ", comparison_record",
            false => "",
        }
    }

    /// The second half: the rest of a query over `walked`.
    fn scored_rows(&self) -> String {
        let labels = COLUMNS[1..].join(", ");
        let carried = self.carried();
        let digests: String = self
            .digests
            .names()
            .map(|name| format!(", {name}"))
            .collect();
        let coherence = match self.coherence {
            true => "coalesce(given_coherence, coherence_of_gap(coherence_gap))",
            false => "given_coherence",
        };
        // A trace without session is one of its own.
        let digest = |wanted: bool, name: &'static str| match wanted {
            true => name,
            false => "CAST(NULL AS BYTEA)",
        };
        let (bucket, of_bucket) = match self.is_bucketed() {
            true => (", bucket", "bucket, "),
            false => ("", ""),
        };
        let stuck = match self.digests.of_sessions {
            true => format!(
                ", stuck_record({}, {}, session_id IS NULL) OVER \
                 (PARTITION BY {of_bucket}session_id, project_id ORDER BY started_at, started_at_nanos, trace_id) AS stuck_record",
                digest(self.digests.spans, "span_digest"),
                digest(self.digests.output, "output_digest"),
            ),
            false => String::new(),
        };
        let listed = match self.merge_repeated {
            true => ", positions",
            false => "",
        };
        let again = match self.digests.said {
            true => ", input_again, output_again",
            false => "",
        };
        let walked = self.coherence || self.loop_detection;
        let estimated = match self.triage && walked {
            true => ", coherence_estimated, loop_estimated",
            false => "",
        };
        let stuck_record = match self.digests.of_sessions {
            true => ", stuck_record",
            false => "",
        };
        let of_spans: String = self
            .span_signals
            .iter()
            .map(|name| {
                format!(
                    ", coalesce(given_{name}, signal_{name}({}, {}, {})) AS {name}, given_{name} IS NOT NULL AS {name}_given",
                    digest(self.digests.spans, "span_digest"),
                    digest(self.digests.output, "output_digest"),
                    digest(self.digests.of_sessions, "stuck_record"),
                )
            })
            .collect();
        format!(
            "looped AS (SELECT *{stuck} FROM walked) \
             SELECT trace_id, {SHOWN_ID}, {labels}{bucket}, input_position, output_position{listed}, coherence_gap, loop_record{carried}{digests}{again}{estimated}{stuck_record}, \
               confidence, coalesce(given_loop_detection, loop_score(loop_record)) AS loop_detection, \
               tool_correctness, {coherence} AS coherence, \
               given_coherence IS NOT NULL AS coherence_given, given_loop_detection IS NOT NULL AS loop_detection_given{of_spans} \
             FROM looped"
        )
    }
}

/// Runs a frame as one ordered stream and hands every batch to `each`.
///
/// # Errors
/// DataFusion's, and whatever `each` returns.
pub async fn for_each_batch(
    frame: DataFrame,
    mut each: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    use futures::StreamExt;
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        each(batch?)?;
    }
    Ok(())
}
