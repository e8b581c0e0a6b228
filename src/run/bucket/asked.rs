//! What a run in buckets is asked: the number of its buckets, and what must be the same when it goes on.

use std::path::Path;

use serde_json::{Value, json};

use crate::embed::EmbeddingService;
use crate::job::{RequestRecord, whole_path};
use crate::metric::Rules;
use crate::output::manifest;
use crate::run::carried;
use crate::run::night::Night;
use crate::run::score::ScoreRequest;
use crate::trace::{Buckets, SourceFile, TraceSource};

/// Buckets for each part that can be done at once, where others do the parts: so many that a slow one holds up few.
const BUCKETS_OF_A_SLOT: usize = 4;

/// In how many buckets a run is scored.
pub(crate) fn buckets(
    request: &ScoreRequest,
    source: &TraceSource,
    night: Option<&Night>,
) -> Buckets {
    let of_night = night.map(Night::buckets);
    // One bucket is no work for several processes.
    let of_night = of_night.filter(|of| request.exchange.is_none() || *of != Buckets::ONE);
    let chosen = request.buckets.or(of_night);
    // A bucket is the least that a machine can be given.
    let least = match &request.exchange {
        None => 1,
        Some(exchange) => (exchange.slots() * BUCKETS_OF_A_SLOT).min(Buckets::MOST),
    };
    chosen.unwrap_or_else(|| {
        // Rows of JSON Lines are not counted beforehand: they are taken for a kilobyte each.
        let bytes = || {
            let sizes = source
                .files()
                .flat_map(|file| std::fs::metadata(&file.path));
            sizes.map(|of| of.len()).sum::<u64>()
        };
        let fitting = Buckets::for_rows(source.rows_expected().unwrap_or_else(|| bytes() / 1024));
        match fitting.count() as usize >= least {
            true => fitting,
            false => Buckets::new(least).unwrap_or(fitting),
        }
    })
}

/// What a run is asked, as far as it decides what its tables hold.
pub(crate) struct Asked<'a> {
    pub record: &'a RequestRecord,
    /// The files that are read, also those of earlier nights.
    pub files: &'a [SourceFile],
    /// Where files are that the run made itself.
    pub work: &'a Path,
    pub rules: &'a Rules,
    pub model: Option<&'a EmbeddingService>,
    pub continues: Option<Value>,
}

impl Asked<'_> {
    /// Settings that decide no score.
    const IDLE: [&'static str; 11] = [
        "threads",
        "memory_limit",
        "overwrite",
        "json",
        "cache",
        "cache_size",
        "no_cache",
        "resume",
        "buckets",
        "fail_under",
        "fail_on_drift",
    ];

    /// A file by its content, as far as a look at its ends tells.
    fn file(&self, file: &SourceFile) -> Value {
        let bytes = std::fs::metadata(&file.path).map_or(0, |of| of.len());
        let path = match file.path.starts_with(self.work) {
            true => None,
            false => Some(whole_path(&file.path)),
        };
        let ends = carried::ends(&file.path, bytes).unwrap_or_default();
        json!({ "path": path, "bytes": bytes, "ends": ends })
    }

    /// As it is kept beside the buckets, to be compared when the run goes on.
    pub fn json(&self, buckets: Buckets) -> Value {
        let mut record = self.record.clone();
        record.report = false;
        // What is fetched each time is known by its content.
        record.files.retain(|file| !file.path.contains("://"));
        record
            .settings
            .retain(|name, _| !Self::IDLE.contains(&name.as_str()));
        json!({
            "nightmill": env!("CARGO_PKG_VERSION"),
            "buckets": buckets.count(),
            "request": record,
            "files": self.files.iter().map(|file| self.file(file)).collect::<Vec<_>>(),
            "rules": manifest::rules_of(self.rules),
            "model": self.model.map(|service| manifest::model(service, None)),
            "continues": self.continues,
        })
    }
}
