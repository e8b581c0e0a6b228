//! nightmill's SQL functions, one file each.

mod bucket_of;
mod coherence;
mod comparison;
mod cosine_similarity;
mod embed;
mod loop_detection;
mod said;
mod session_facts;
mod session_metrics;
mod span_signal;
mod stuck;
mod text_of;
mod word_jaccard;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionContext;

use super::session::EngineOptions;
use crate::embed::EmbeddingService;
use crate::metric::compared::Comparing;
use crate::metric::spans::OfSpans;

/// A function as `nightmill sql --functions` prints it.
#[derive(Clone, Copy, Debug)]
pub struct FunctionDoc {
    /// How it is called.
    pub call: &'static str,
    /// What it returns.
    pub returns: &'static str,
    /// What it does, in one line.
    pub meaning: &'static str,
}

/// All functions for users.
pub fn documented() -> Vec<FunctionDoc> {
    let mut all = vec![
        text_of::DOC,
        word_jaccard::DOC,
        embed::DOC,
        cosine_similarity::DOC,
        coherence::DOC,
        loop_detection::DOC,
        session_metrics::RELIABILITY_DOC,
        session_metrics::CONSISTENCY_DOC,
        bucket_of::DOC,
    ];
    all.extend(comparison::DOCS);
    all
}

pub(super) fn register(context: &SessionContext, options: &EngineOptions) {
    let embedding = Embedding(options.embedding.clone());
    let quick = options.triage.as_ref().map(|t| Arc::clone(&t.quick));
    let of_rows = Embedding(quick.or_else(|| options.embedding.clone()));
    for function in [
        ScalarUDF::from(text_of::TextOf::new(options.text_mode)),
        ScalarUDF::from(word_jaccard::WordJaccard::new()),
        ScalarUDF::from(embed::Embed::new(embedding.clone())),
        ScalarUDF::from(embed::EmbedOnce::new(of_rows)),
        ScalarUDF::from(cosine_similarity::CosineSimilarity::new()),
        ScalarUDF::from(coherence::CoherenceFunction::new(embedding.clone())),
        ScalarUDF::from(coherence::CoherenceOfGap::new()),
        ScalarUDF::from(loop_detection::LoopScore::new()),
        ScalarUDF::from(comparison::ComparisonRecord::new()),
        ScalarUDF::from(bucket_of::BucketOf::new()),
        ScalarUDF::from(said::FactsOf::new(said::Said::Input)),
        ScalarUDF::from(said::FactsOf::new(said::Said::Output)),
    ] {
        context.register_udf(function);
    }
    for metric in OfSpans::ALL {
        context.register_udf(ScalarUDF::from(span_signal::SpanSignal::new(metric)));
    }
    for metric in Comparing::ALL {
        context.register_udf(ScalarUDF::from(comparison::ComparingFunction::new(metric)));
    }
    let facts = session_facts::SessionFactsOf::new(options.threads > 1);
    context.register_udaf(AggregateUDF::from(facts));
    context.register_udwf(WindowUDF::from(stuck::StuckWindow::new()));
    context.register_udwf(WindowUDF::from(loop_detection::LoopDetectionWindow::new(
        embedding,
        options.window,
    )));
    for metric in [
        session_metrics::Metric::Reliability,
        session_metrics::Metric::Consistency,
    ] {
        let function = session_metrics::SessionMetric::new(
            metric,
            options.weights.clone(),
            options.threads > 1,
        );
        context.register_udaf(AggregateUDF::from(function));
    }
}

/// A handle on the embedding service that DataFusion can compare and hash: one per process, so all
/// handles are equal.
#[derive(Clone, Debug)]
struct Embedding(Option<Arc<EmbeddingService>>);

impl PartialEq for Embedding {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_some() == other.0.is_some()
    }
}
impl Eq for Embedding {}
impl std::hash::Hash for Embedding {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
    }
}

impl Embedding {
    fn service(&self, function: &str) -> Result<&Arc<EmbeddingService>> {
        match &self.0 {
            Some(service) => Ok(service),
            None => exec_err!("{function} needs an embedding model, and this command loads none"),
        }
    }
}

/// A string argument of any string type, as views.
fn string_views(function: &str, array: &ArrayRef) -> Result<StringViewArray> {
    match array.data_type() {
        DataType::Utf8View => Ok(array.as_string_view().clone()),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null | DataType::Dictionary(..) => {
            Ok(arrow::compute::cast(array, &DataType::Utf8View)?
                .as_string_view()
                .clone())
        }
        other => plan_err!("{function} takes text, not {other}"),
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

/// Embeds a column of texts: null and the empty text give none.
fn embed_column(
    service: &EmbeddingService,
    texts: &StringViewArray,
) -> Result<Vec<crate::embed::TextRef>> {
    let texts: Vec<&str> = texts.iter().map(Option::unwrap_or_default).collect();
    service.embed(&texts).map_err(super::external)
}

/// Boilerplate of a function's signature: any number of arguments, checked by `return_type`.
macro_rules! any_arguments {
    ($count:literal, $volatility:ident) => {
        datafusion::logical_expr::Signature::any(
            $count,
            datafusion::logical_expr::Volatility::$volatility,
        )
    };
}
use any_arguments;

#[cfg(test)]
mod tests;
