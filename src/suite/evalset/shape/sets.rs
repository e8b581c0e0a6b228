//! Tables of evaluation sets: cases, turns, messages, tool calls.

use super::{Kind, Shape, flag, free, free_map, integer, list, moment, object, text};

/// `<id>.evalset.json`
pub(in super::super) static SET: Shape = Shape(&[
    text("evalSetId"),
    text("name"),
    text("description"),
    list("evalCases", &Kind::Object(&CASE)),
    moment("creationTimestamp"),
]);

/// `evalCases[]`
pub(in super::super) static CASE: Shape = Shape(&[
    text("evalId"),
    text("evalMode"),
    list("contextMessages", &Kind::Object(&MESSAGE)),
    list("conversation", &Kind::Object(&INVOCATION)),
    list("actualConversation", &Kind::Object(&INVOCATION)),
    object("sessionInput", &SESSION_INPUT),
    list("rubrics", &Kind::Object(&CASE_RUBRIC)),
    moment("creationTimestamp"),
]);

/// `conversation[]`
pub(in super::super) static INVOCATION: Shape = Shape(&[
    text("invocationId"),
    list("contextMessages", &Kind::Object(&MESSAGE)),
    object("userContent", &MESSAGE),
    object("finalResponse", &MESSAGE),
    list("tools", &Kind::Object(&TOOL_USE)),
    list("intermediateResponses", &Kind::Object(&MESSAGE)),
    moment("creationTimestamp"),
]);

/// A message, as trpc-agent-go and OpenAI have it.
pub(in super::super) static MESSAGE: Shape = Shape(&[
    text("role").always(),
    text("content"),
    list("content_parts", &Kind::Object(&CONTENT_PART)),
    text("tool_id"),
    text("tool_name"),
    list("tool_calls", &Kind::Object(&TOOL_CALL)),
    text("reasoning_content"),
]);

static SESSION_INPUT: Shape = Shape(&[text("appName"), text("userId"), free_map("state")]);

/// `content` is an object with `text`, or the text itself.
static CASE_RUBRIC: Shape = Shape(&[
    text("metricName"),
    text("id"),
    free("content"),
    text("description"),
    text("type"),
]);

static TOOL_USE: Shape = Shape(&[text("id"), text("name"), free("arguments"), free("result")]);

static CONTENT_PART: Shape = Shape(&[
    text("type"),
    text("text").nullable(),
    free("image"),
    free("audio"),
    free("file"),
]);

static TOOL_CALL: Shape = Shape(&[
    text("type"),
    object("function", &FUNCTION),
    text("id"),
    integer("index").nullable(),
    free_map("extra_fields"),
]);

static FUNCTION: Shape = Shape(&[
    text("name"),
    text("arguments"),
    flag("strict"),
    text("description"),
]);
