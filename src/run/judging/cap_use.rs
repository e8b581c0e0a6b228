//! How much of its caps a run used, and which of them held calls back.

use crate::judge::JudgeService;
use crate::run::judging::judgements::Judgements;
use crate::run::judging::request::JudgeRequest;
use crate::summary::CapUse;

/// The caps of a run after it has asked. `store` holds what was said of traces, if any metric of traces was asked for.
pub(crate) fn caps_of(
    request: &JudgeRequest,
    service: &JudgeService,
    store: Option<&Judgements>,
) -> Vec<CapUse> {
    let (caps, spent) = (request.caps, service.spent());
    let given = [
        (
            "--max-calls",
            caps.calls.map(|most| most as f64),
            spent.calls as f64,
        ),
        (
            "--max-tokens",
            caps.tokens.map(|most| most as f64),
            spent.tokens as f64,
        ),
        ("--max-cost", caps.cost, spent.cost),
    ];
    let reasons = store.into_iter().flat_map(|store| &store.pending_reasons);
    let mut uses: Vec<CapUse> = given
        .into_iter()
        .filter_map(|(flag, most, used)| {
            Some(CapUse {
                flag,
                most: most?,
                used,
                reached: false,
            })
        })
        .collect();
    let capped = service.counts().capped > 0;
    for cap in &mut uses {
        cap.reached = capped && reasons.clone().any(|reason| reason.ends_with(cap.flag));
    }
    // The reasons of conversations are in their table. Where none is named yet, it is the cap that is used up, or the only one.
    if capped && !uses.iter().any(|cap| cap.reached) {
        let only = uses.len() == 1;
        for cap in &mut uses {
            cap.reached = only || cap.used >= cap.most;
        }
    }
    uses
}
