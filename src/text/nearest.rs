//! Names that are nearly another one.

/// ` (did you mean ...?)` for the nearest candidate, or nothing if none is near.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::jaro_winkler(&lower, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| {
            format!(" (did you mean `{candidate}`?)")
        })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_offered_and_none_that_is_far() {
        let names = ["coherence", "confidence", "loop_detection"];
        assert_eq!(nearest("Coherense", names), " (did you mean `coherence`?)");
        assert_eq!(nearest("speed", names), "");
        assert_eq!(nearest("coherence", []), "");
    }
}
