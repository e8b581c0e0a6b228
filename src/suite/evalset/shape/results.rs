//! Tables of result files.

use super::{
    CRITERION, INVOCATION, Kind, Shape, free, integer, list, moment, number, object, status, text,
};

/// `<id>.evalset_result.json`
pub(in super::super) static RESULT: Shape = Shape(&[
    text("evalSetResultId"),
    text("evalSetResultName"),
    text("evalSetId"),
    list("evalCaseResults", &Kind::Object(&CASE_RESULT)),
    object("summary", &SUMMARY),
    moment("creationTimestamp"),
]);

/// `evalCaseResults[]`
pub(in super::super) static CASE_RESULT: Shape = Shape(&[
    text("evalSetId"),
    text("evalId"),
    integer("runId"),
    status("finalEvalStatus"),
    number("score"),
    text("errorMessage"),
    list("overallEvalMetricResults", &Kind::Object(&METRIC_RESULT)),
    list("evalMetricResultPerInvocation", &Kind::Object(&TURN_RESULT)),
    text("sessionId"),
    text("userId"),
]);

/// `overallEvalMetricResults[]`
pub(in super::super) static METRIC_RESULT: Shape = Shape(&[
    text("metricName"),
    number("score"),
    status("evalStatus"),
    number("threshold"),
    object("criterion", &CRITERION),
    object("details", &DETAILS),
]);

static TURN_RESULT: Shape = Shape(&[
    object("actualInvocation", &INVOCATION),
    object("expectedInvocation", &INVOCATION),
    list("evalMetricResults", &Kind::Object(&METRIC_RESULT)),
]);

static DETAILS: Shape = Shape(&[
    text("reason"),
    number("score"),
    free("value"),
    list("rubricScores", &Kind::Object(&RUBRIC_SCORE)),
]);

static RUBRIC_SCORE: Shape = Shape(&[text("id"), text("reason"), number("score")]);

static SUMMARY: Shape = Shape(&[
    status("overallStatus"),
    integer("numRuns"),
    object("runStatusCounts", &COUNTS),
    list("runSummaries", &Kind::Object(&RUN_SUMMARY)),
    list("evalCaseSummaries", &Kind::Object(&CASE_SUMMARY)),
]);

static COUNTS: Shape = Shape(&[
    integer("passed"),
    integer("failed"),
    integer("notEvaluated"),
]);

static RUN_SUMMARY: Shape = Shape(&[
    integer("runId"),
    status("overallStatus"),
    object("caseStatusCounts", &COUNTS),
    list("metricSummaries", &Kind::Object(&METRIC_SUMMARY)),
]);

static METRIC_SUMMARY: Shape = Shape(&[
    text("metricName"),
    number("averageScore"),
    status("evalStatus"),
    number("threshold"),
    object("statusCounts", &COUNTS),
]);

static CASE_SUMMARY: Shape = Shape(&[
    text("evalId"),
    status("overallStatus"),
    object("runStatusCounts", &COUNTS),
    list("metricSummaries", &Kind::Object(&METRIC_SUMMARY)),
    list("runSummaries", &Kind::Object(&CASE_RUN)),
]);

static CASE_RUN: Shape = Shape(&[
    integer("runId"),
    status("finalEvalStatus"),
    text("errorMessage"),
    list("metricResults", &Kind::Object(&METRIC_RESULT)),
]);
