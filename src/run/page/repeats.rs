//! Outputs that say again what an earlier one of the session said, by their words.

use crate::metric::session_signal::{OUTPUTS_LOOKED_BACK, SAME_OUTPUT};
use crate::summary::{ShownRepeat, ShownTrace};
use crate::text::WordSet;

/// Finds the earlier output of each trace that loop detection says nothing of, where nearly all words of both are shared:
/// what the signal `stagnation` counts, of the texts that are shown.
pub(super) fn repeats_by_words(traces: &mut [ShownTrace]) {
    let said = |trace: &ShownTrace| {
        let text = trace.output.as_ref().map(|output| output.text.as_str());
        WordSet::of(text.unwrap_or_default())
    };
    let words: Vec<WordSet> = traces.iter().map(said).collect();
    for at in 1..traces.len() {
        let (before, rest) = traces.split_at_mut(at);
        let Some(trace) = rest.first_mut().filter(|trace| trace.repeats.is_none()) else {
            continue;
        };
        let first = at.saturating_sub(OUTPUTS_LOOKED_BACK);
        let likest = (first..at)
            .rev()
            .filter_map(|earlier| {
                let (a, b) = (words.get(earlier)?, words.get(at)?);
                Some((earlier, WordSet::jaccard(a.hashes(), b.hashes())))
            })
            .filter(|(_, shared)| *shared >= SAME_OUTPUT)
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((earlier, shared)) = likest else {
            continue;
        };
        if let Some(earlier) = before.get(earlier) {
            trace.repeats = Some(ShownRepeat {
                trace_id: earlier.trace_id.clone(),
                position: Some(earlier.position),
                jaccard: Some(shared),
                output: earlier.output.clone().unwrap_or_default(),
                ..ShownRepeat::default()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::ShownText;

    #[test]
    fn the_likest_earlier_output_is_found_and_others_are_left() {
        let trace = |id: &str, output: &str| ShownTrace {
            trace_id: id.to_owned(),
            output: Some(ShownText {
                text: output.to_owned(),
                cut: false,
            }),
            ..ShownTrace::default()
        };
        let mut traces = [
            trace("a", "please restart your router now"),
            trace("b", "the parcel is late"),
            trace("c", "Please restart your router, now!"),
            trace("d", ""),
            trace("e", ""),
        ];
        repeats_by_words(&mut traces);
        let found = traces.each_ref().map(|t| t.repeats.as_ref());
        let found = found.map(|r| r.map(|r| (r.trace_id.as_str(), r.jaccard)));
        assert_eq!(found, [None, None, Some(("a", Some(1.0))), None, None]);
    }
}
