//! What counts now, as SQL over the files of all runs.
//!
//! A night scores again what its new rows touch, and names in `replaced` whose rows of earlier nights do not count any more:
//! of sessions, or of traces without session. Where runs of several chains have a session, that run counts whose traces of
//! it are the latest by their own time; of equal ones the newer run.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::cast::as_string_view_array;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use crate::history::CARRIED;
use crate::trace::canonical_trace_id;

/// What an id without project is joined by, and the end of a project's name: no id holds it.
const END: &str = "chr(31)";

/// The statements that make views.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statements {
    /// Whether the table `replaced` is there.
    pub replaced: bool,
    /// Whether no session can be in two chains.
    pub one_line: bool,
}

/// A session, or a trace without one, as one text: what a run scores whole.
fn unit(session: &str, trace: &str) -> String {
    format!(
        "CASE WHEN {session} IS NULL THEN concat('t', _canonical({trace})) \
         ELSE concat(coalesce('p' || project_id, ''), {END}, {session}) END"
    )
}

/// The columns of a table without those of ours.
fn shown(table: &str) -> String {
    format!("run, run_created_at, * EXCEPT (run, run_created_at, run_no, _unit) FROM {table}")
}

impl Statements {
    /// The statements, in their order. `has` tells which tables of files are there, `needs` which views are asked for.
    pub fn statements(
        self,
        has: impl Fn(&str) -> bool,
        needs: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut made = Vec::new();
        let mut view =
            |name: &str, body: String| made.push(format!("CREATE VIEW {name} AS {body}"));
        if self.replaced {
            let unit = unit("session_id", "trace_id");
            view(
                "_taken",
                format!(
                    "SELECT DISTINCT a.later, a.earlier, {unit} AS _unit, session_id IS NULL AS lone FROM _replaced r \
                     JOIN _ancestors a ON a.later = r.run_no AND a.name = r.run"
                ),
            );
            // By the chain and not by names: directories are renamed, and two may have one name. What a later run took over
            // counts in no run before it.
            view(
                "_dead",
                format!(
                    "SELECT DISTINCT a.earlier AS run_no, {unit} AS _unit FROM _replaced r \
                     JOIN _ancestors a ON a.later = r.run_no"
                ),
            );
        }
        let units = [
            ("traces", unit("session_id", "trace_id")),
            ("sessions", unit("session_id", "session_id")),
            (
                "scores",
                unit(
                    "coalesce(session_id, CASE WHEN target_type = 'session' THEN target_id END)",
                    "target_id",
                ),
            ),
        ];
        for (table, unit) in units.iter().filter(|(table, _)| has(table)) {
            let filled = match *table {
                "sessions" => {
                    "* EXCEPT (first_run, revision), coalesce(first_run, run) AS first_run, \
                     coalesce(revision, CAST(1 AS INT UNSIGNED)) AS revision"
                }
                _ => "*",
            };
            view(
                &format!("_united_{table}"),
                format!("SELECT {filled}, {unit} AS _unit FROM _{table}"),
            );
            view(
                table,
                format!("SELECT {}", shown(&format!("_united_{table}"))),
            );
            let alive = match self.replaced {
                true => format!(
                    "SELECT u.* FROM _united_{table} u LEFT ANTI JOIN _dead d ON u.run_no = d.run_no AND u._unit = d._unit"
                ),
                false => format!("SELECT * FROM _united_{table}"),
            };
            view(&format!("_alive_{table}"), alive);
        }
        if has(CARRIED) {
            let unit = unit("session_id", "trace_id");
            let body = format!("SELECT *, {unit} AS _unit FROM _{CARRIED}");
            view(&format!("_united_{CARRIED}"), body);
        }
        if needs("sessions_latest") {
            view(
                "sessions_latest",
                match self.one_line {
                    true => format!("SELECT {}", shown("_alive_sessions")),
                    false => format!(
                        "SELECT * EXCEPT (_nth) FROM (SELECT {}) WHERE _nth = 1",
                        shown(
                            "(SELECT *, row_number() OVER (PARTITION BY _unit ORDER BY last_started_at DESC NULLS LAST, \
                             run_created_at DESC, run DESC) AS _nth FROM _alive_sessions)"
                        )
                    ),
                },
            );
        }
        if needs("traces_latest") {
            view(
                "traces_latest",
                match self.one_line {
                    true => format!("SELECT {}", shown("_alive_traces")),
                    false => format!(
                        "WITH w AS ({WINNERS}) SELECT {}",
                        shown(
                            "(SELECT t.* FROM _alive_traces t LEFT SEMI JOIN w ON t.run_no = w.run_no AND t._unit = w._unit)"
                        )
                    ),
                },
            );
        }
        if needs("scores_latest") {
            view(
                "scores_latest",
                match self.one_line {
                    true => format!("SELECT {}", shown(&latest_of_target("_alive_scores"))),
                    false => format!(
                        "WITH w AS ({LOSERS}) SELECT {}",
                        shown(&latest_of_target(
                            "(SELECT s.* FROM _alive_scores s LEFT ANTI JOIN w ON s.run_no = w.run_no AND s.target_type = w.target_type \
                             AND s.metric = w.metric AND s._unit = w._unit AND s.source = 'AUTOMATED')"
                        ))
                    ),
                },
            );
        }
        if needs("changes") {
            view("changes", changes(self.replaced));
        }
        made
    }
}

/// Of each session, or trace without one, the run that counts.
const WINNERS: &str = "SELECT run_no, _unit FROM (SELECT run_no, _unit, row_number() OVER (PARTITION BY _unit ORDER BY \
    max(started_at) DESC NULLS LAST, max(run_created_at) DESC, max(run) DESC) AS _nth FROM _alive_traces \
    GROUP BY run_no, _unit) WHERE _nth = 1";

/// By metric: the runs that don't count for a session, or trace without one, because another one does. Scores of people
/// count each for itself.
const LOSERS: &str = "SELECT run_no, target_type, metric, _unit FROM (SELECT m.*, row_number() OVER (PARTITION BY m.target_type, \
    m.metric, m._unit ORDER BY t.last DESC NULLS LAST, m.run_created_at DESC, m.run DESC) AS _nth \
    FROM (SELECT DISTINCT run_no, run, run_created_at, target_type, metric, _unit FROM _alive_scores WHERE source = 'AUTOMATED') m \
    LEFT JOIN (SELECT run_no, _unit, max(started_at) AS last FROM _alive_traces GROUP BY run_no, _unit) t \
    ON m.run_no = t.run_no AND m._unit = t._unit) WHERE _nth > 1";

/// Of several scores of one target and metric, as of a program and a person, that of the newest run.
fn latest_of_target(scores: &str) -> String {
    format!(
        "(SELECT * EXCEPT (_nth) FROM (SELECT *, row_number() OVER (PARTITION BY target_type, metric, \
         CASE WHEN target_type = 'session' THEN _unit ELSE _canonical(target_id) END \
         ORDER BY run_created_at DESC, run DESC) AS _nth FROM {scores}) WHERE _nth = 1)"
    )
}

/// Sessions by metric: the latest score and the one before, where both are of one model and differ.
fn changes(replaced: bool) -> String {
    let (alive, dead) = match replaced {
        true => (
            "d.run_no IS NULL",
            "LEFT JOIN _dead d ON s.run_no = d.run_no AND s._unit = d._unit",
        ),
        false => ("TRUE", ""),
    };
    format!(
        "SELECT project_id, session_id, metric, before, after, passed_before, passed_after, run_before, run, \
         CASE WHEN passed_before AND NOT passed_after THEN 'newly_bad' \
              WHEN NOT passed_before AND passed_after THEN 'recovered' \
              WHEN NOT passed_before AND NOT passed_after THEN 'still_bad' \
              WHEN after > before THEN 'better' ELSE 'worse' END AS state \
         FROM (SELECT project_id, target_id AS session_id, metric, run, alive, score AS after, passed AS passed_after, of_model, \
               row_number() OVER w AS _nth, lead(score) OVER w AS before, lead(passed) OVER w AS passed_before, \
               lead(of_model) OVER w AS of_model_before, lead(run) OVER w AS run_before \
               FROM (SELECT s.project_id, s.target_id, s.metric, s.run, s.run_created_at, s.score, s.passed, s._unit, \
                     {alive} AS alive, t.last_started_at AS last, \
                     concat(CAST(s.model AS VARCHAR), {END}, CAST(s.precision AS VARCHAR), {END}, CAST(s.text_mode AS VARCHAR)) AS of_model \
                     FROM _united_scores s LEFT JOIN _united_sessions t ON s.run_no = t.run_no AND s._unit = t._unit {dead} \
                     WHERE s.target_type = 'session' AND s.data_type = 'NUMERIC') \
               WINDOW w AS (PARTITION BY _unit, metric ORDER BY alive DESC, last DESC NULLS LAST, run_created_at DESC, run DESC)) \
         WHERE _nth = 1 AND alive AND before <> after AND of_model = of_model_before"
    )
}

/// The function `_canonical`: the form of a trace id that ids are matched by.
pub(super) fn canonical() -> ScalarUDF {
    let make = Arc::new(|args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let Some(ids) = arrays.first() else {
            return datafusion::common::exec_err!("_canonical takes an id");
        };
        let ids = as_string_view_array(ids)?.iter();
        let found: StringViewArray = ids.map(|id| id.and_then(canonical_trace_id)).collect();
        Ok(ColumnarValue::Array(Arc::new(found) as ArrayRef))
    });
    let text = DataType::Utf8View;
    create_udf(
        "_canonical",
        vec![text.clone()],
        text,
        Volatility::Immutable,
        make,
    )
}
