//! What a judge is asked about a case, and how its reply is read.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::route::JudgeRoute;
use crate::judge::asker::{End, Question, Tries};
use crate::judge::{
    Call, CallErrorKind, CallLabel, Price, PromptLabel, Reply, ReplyFormat, Unanswered, Usage,
    billed_for_failure,
};
use crate::metric::SYSTEM_MESSAGE;
use crate::metric::checked::Checked;
use crate::metric::factuality::{self, FactualityRules};
use crate::metric::tone::{self, Dimension, ToneRules};
use crate::question::{Prompt, PromptError, prompt};
use crate::suite::regression::golden_set::TestCase;
use crate::suite::regression::run::rules::CaseRules;
use crate::suite::regression::suite_metric::SuiteMetric;

const CLAIMS: Prompt = prompt!("regression_claims");
const TONE: Prompt = prompt!("regression_tone");
const CENTS_PER_DOLLAR: f64 = 100.0;

/// What is asked about a case: by which rules it is asked, and by which its reply is read.
#[derive(Clone, Copy, Debug)]
enum Rules<'r> {
    Claims(&'r FactualityRules),
    Tone(&'r ToneRules),
}

/// A question about a case, whoever is asked.
#[derive(Debug)]
pub(in crate::suite::regression::run) struct CaseQuestion<'r> {
    rules: Rules<'r>,
    prompt: Prompt,
    text: String,
    schema: Arc<Value>,
    threshold: f64,
}

impl<'r> CaseQuestion<'r> {
    /// The question of a metric about a case; none for metrics that ask nobody.
    ///
    /// # Errors
    /// [`PromptError`] if the prompt of the program is broken.
    pub fn of(
        metric: SuiteMetric,
        case: &TestCase,
        threshold: f64,
        rules: &'r CaseRules<'_>,
    ) -> Result<Option<Self>, PromptError> {
        let (rules, prompt, text, schema) = match metric {
            SuiteMetric::Factuality => {
                let rules = &rules.factuality;
                let text = CLAIMS.fill(claims_values(case, rules))?;
                (Rules::Claims(rules), CLAIMS, text, claims_schema())
            }
            SuiteMetric::Tone => {
                let rules = &rules.tone;
                let text = TONE.fill(tone_values(case, rules))?;
                (Rules::Tone(rules), TONE, text, tone_schema(rules))
            }
            SuiteMetric::Format | SuiteMetric::Regression => return Ok(None),
        };
        Ok(Some(Self {
            rules,
            prompt,
            text,
            schema: Arc::new(schema),
            threshold,
        }))
    }

    /// The call that puts it to a judge; `structured` with the form of the reply.
    pub fn call(&self, route: &JudgeRoute, round: u32, structured: bool) -> Call {
        Call {
            model: route.model.clone(),
            system: SYSTEM_MESSAGE.into(),
            user: self.text.clone(),
            format: structured.then(|| ReplyFormat {
                name: self.prompt.name,
                schema: Arc::clone(&self.schema),
            }),
            temperature: route.temperature.of(&route.model),
            max_output_tokens: route.max_output_tokens,
            prompt: PromptLabel {
                name: self.prompt.name,
                version: self.prompt.version(),
            },
            apart: match round {
                0 => String::new(),
                round => format!("round {round}"),
            },
            body: None,
        }
    }

    /// What a reply says, for so many cents; none if it can't be used.
    fn read(&self, reply: &str, cost: Option<f64>) -> Option<Checked> {
        match self.rules {
            Rules::Claims(rules) => {
                let found = factuality::judged(reply, self.threshold, rules, cost)?;
                Some(found.checked)
            }
            Rules::Tone(rules) => {
                let found = tone::judged(reply, self.threshold, rules, cost)?;
                Some(found.checked)
            }
        }
    }

    fn label(&self) -> CallLabel<'static> {
        match self.rules {
            Rules::Claims(_) => CallLabel {
                metric: factuality::FACTUALITY,
                stage: "claims",
            },
            Rules::Tone(_) => CallLabel {
                metric: tone::TONE,
                stage: "dimensions",
            },
        }
    }
}

/// The reference is the expected output, and what the answer may rest on; or the documents alone.
fn claims_values(case: &TestCase, rules: &FactualityRules) -> Value {
    let documents: Vec<Value> = case
        .documents
        .iter()
        .map(|of| json!({"source": of.source, "content": of.content}))
        .collect();
    let mut reference = serde_json::Map::new();
    if !rules.rag_faithfulness_only {
        let expected = case.expected_output.as_str();
        reference.insert("expected_answer".to_owned(), expected.into());
    }
    if !documents.is_empty() {
        reference.insert("documents".to_owned(), documents.into());
    }
    json!({
        "input": case.input,
        "reference": reference,
        "actual": case.output(),
    })
}

fn tone_values(case: &TestCase, rules: &ToneRules) -> Value {
    let dimensions: Vec<Value> = rules
        .active()
        .map(|of| json!({"name": of.name(), "about": about(of)}))
        .collect();
    json!({
        "profile": rules.tone_profile.as_deref().filter(|of| !of.trim().is_empty()),
        "expected": case.expected_output,
        "actual": case.output(),
        "dimensions": dimensions,
    })
}

/// What a dimension of tone is, for a judge.
fn about(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Formality => "as formal or as casual",
        Dimension::Sentiment => "as positive, neutral or negative",
        Dimension::Assertiveness => "as settled or as hedged",
        Dimension::PersonaConsistency => "the same speaker: person, role and manner of address",
        Dimension::Verbosity => "as long and as detailed",
    }
}

/// Strict schemas want every property required and no others.
fn object(properties: Value) -> Value {
    let names: Vec<Value> = properties
        .as_object()
        .map(|of| of.keys().map(|name| name.as_str().into()).collect())
        .unwrap_or_default();
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": false,
    })
}

fn claims_schema() -> Value {
    let verdicts = ["supported", "contradicted", "unverifiable"];
    let claim = object(json!({
        "claim": {"type": "string"},
        "verdict": {"type": "string", "enum": verdicts},
        "evidence": {"type": "string"},
    }));
    object(json!({
        "claims": {"type": "array", "items": claim},
        "confidence": {"type": "number"},
        "explanation": {"type": "string"},
    }))
}

fn tone_schema(rules: &ToneRules) -> Value {
    let dimensions = rules.active();
    let dimensions: serde_json::Map<String, Value> = dimensions
        .map(|of| (of.name().to_owned(), json!({"type": "number"})))
        .collect();
    object(json!({
        "dimensions": object(Value::Object(dimensions)),
        "overall": {"type": "number"},
        "confidence": {"type": "number"},
        "explanation": {"type": "string"},
    }))
}

/// Why a judge said nothing that can be used.
#[derive(Clone, Debug)]
pub(super) enum NoAnswer {
    /// Its reply can't be read.
    Unreadable(&'static str),
    /// The call failed, or the judge is not to be asked any more.
    Failed(String),
    /// The question was not put: a later run may.
    Pending(String),
    /// The ledger can't be used: the run stops.
    Ledger(String),
}

/// A question on its way to one judge.
#[derive(Debug)]
pub(super) struct Put<'q> {
    question: &'q CaseQuestion<'q>,
    route: &'q JudgeRoute,
    price: Option<Price>,
    /// Cents of all replies so far; none once one has no known price.
    cost: Cell<Option<f64>>,
}

impl<'q> Put<'q> {
    pub fn new(
        question: &'q CaseQuestion<'q>,
        route: &'q JudgeRoute,
        price: Option<Price>,
    ) -> Self {
        Self {
            question,
            route,
            price,
            cost: Cell::new(Some(0.0)),
        }
    }

    /// Cents of all calls, failed ones too; none where that is not known. Answers of the ledger count with what they
    /// cost when they were paid: what a judgement is worth does not depend on who asked first.
    pub fn cost(&self) -> Option<f64> {
        self.cost.get()
    }

    fn pay(&self, usage: Option<Usage>) {
        let cents = match usage {
            // Nothing was billed, whatever the price is.
            Some(usage) if usage == Usage::default() => Some(0.0),
            usage => usage
                .zip(self.price)
                .map(|(usage, price)| price.of(usage) * CENTS_PER_DOLLAR),
        };
        let sum = self.cost.get().zip(cents).map(|(sum, cents)| sum + cents);
        self.cost.set(sum);
    }
}

impl Question for Put<'_> {
    type Output = Result<Checked, NoAnswer>;

    fn label(&self) -> CallLabel<'_> {
        self.question.label()
    }

    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output> {
        OneTry {
            put: self,
            round,
            structured: true,
            read: None,
        }
    }
}

/// One reply is asked for: with its form, and without where the endpoint takes none.
struct OneTry<'q> {
    put: &'q Put<'q>,
    round: u32,
    structured: bool,
    read: Option<Result<Checked, &'static str>>,
}

impl Tries for OneTry<'_> {
    type Output = Result<Checked, NoAnswer>;

    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>> {
        let call = || {
            let Put {
                question, route, ..
            } = self.put;
            question.call(route, self.round, self.structured)
        };
        ControlFlow::Continue(self.read.is_none().then(call))
    }

    fn take(&mut self, _: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output> {
        let reply = match answer {
            Ok(reply) => reply,
            Err(refused) if refused.is_of_format() && self.structured => {
                self.structured = false;
                return ControlFlow::Continue(());
            }
            Err(unanswered) => return ControlFlow::Break(Err(self.none(unanswered))),
        };
        self.put.pay(reply.usage);
        let read = self.put.question.read(&reply.text, self.put.cost());
        self.read = Some(read.ok_or(match reply.cut_off {
            true => "its reply was cut off at the largest size; raise `max_tokens`",
            false => "its reply can't be used",
        }));
        ControlFlow::Continue(())
    }

    fn end(self) -> End<Self::Output> {
        match self.read {
            Some(Ok(checked)) => End::Final(Ok(checked)),
            Some(Err(why)) => End::Unusable(Err(NoAnswer::Unreadable(why))),
            None => End::Final(Err(NoAnswer::Failed("it was not asked".to_owned()))),
        }
    }
}

impl OneTry<'_> {
    fn none(&self, unanswered: Unanswered) -> NoAnswer {
        match &unanswered {
            Unanswered::Ledger(problem) => NoAnswer::Ledger(problem.clone()),
            // A judge that refuses all questions has failed as one that fails at each.
            Unanswered::Stopped(_) => NoAnswer::Failed(unanswered.to_string()),
            Unanswered::Failed { code, .. } => {
                let kind = CallErrorKind::named(code);
                self.put
                    .pay(kind.map_or(Some(Usage::default()), billed_for_failure));
                NoAnswer::Failed(unanswered.to_string())
            }
            _ => NoAnswer::Pending(unanswered.to_string()),
        }
    }
}
