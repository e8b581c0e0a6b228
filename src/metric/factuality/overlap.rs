//! Words and neighbouring words that two texts share. Sees neither contradiction nor negation.

use crate::metric::comparison::{Vocabulary, Words, Workspace};

/// How far texts overlap, each 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overlap {
    /// Of words.
    pub(super) words: f64,
    /// Of neighbours.
    pub(super) neighbours: f64,
}

impl Overlap {
    /// Words at 0.4 and neighbours at 0.6.
    pub(super) fn score(self) -> f64 {
        self.words * 0.4 + self.neighbours * 0.6
    }
}

/// Marks of the texts in which a pair of words is.
const EXPECTED: u64 = 1;
const ACTUAL: u64 = 2;

/// Sizes of the sets of words and of neighbours of two texts.
#[derive(Debug, Default)]
struct Sizes {
    expected_words: usize,
    actual_words: usize,
    shared_words: usize,
    expected_pairs: usize,
    actual_pairs: usize,
    shared_pairs: usize,
    /// Whether the texts have two words or more, equal ones included.
    expected_has_pairs: bool,
    actual_has_pairs: bool,
}

/// The overlap of an output with the expected text: words and pairs that both have, of those that either has.
pub(super) fn of_texts(actual: &str, expected: &str, workspace: &mut Workspace) -> Overlap {
    workspace.vocabulary.clear();
    workspace.sequence.clear();
    workspace.expected_words.read(expected);
    add_words(
        &workspace.expected_words,
        &mut workspace.vocabulary,
        &mut workspace.sequence,
    );
    let sizes = sizes(actual, workspace);
    let share = |shared: usize, left: usize, right: usize| match left + right - shared {
        0 => 1.0,
        either => ratio(shared, either),
    };
    let words = share(sizes.shared_words, sizes.actual_words, sizes.expected_words);
    let neighbours = match (sizes.expected_has_pairs, sizes.actual_has_pairs) {
        (false, _) => words,
        (true, false) => 0.0,
        (true, true) => share(sizes.shared_pairs, sizes.actual_pairs, sizes.expected_pairs),
    };
    Overlap { words, neighbours }
}

/// How far an output is contained in documents: words and pairs of the output that the documents have, of all that the
/// output has. The documents follow each other, so that words around their border are neighbours. None for an output
/// without words.
pub(super) fn in_documents(
    actual: &str,
    documents: &[&str],
    workspace: &mut Workspace,
) -> Option<Overlap> {
    workspace.vocabulary.clear();
    workspace.sequence.clear();
    for document in documents {
        workspace.document_words.read(document);
        add_words(
            &workspace.document_words,
            &mut workspace.vocabulary,
            &mut workspace.sequence,
        );
    }
    let sizes = sizes(actual, workspace);
    if sizes.actual_words == 0 {
        return None;
    }
    let words = ratio(sizes.shared_words, sizes.actual_words);
    let neighbours = match sizes.actual_has_pairs {
        true => ratio(sizes.shared_pairs, sizes.actual_pairs),
        false => words,
    };
    Some(Overlap { words, neighbours })
}

/// Sizes of the sets of an output and of the text whose words are in vocabulary and sequence.
fn sizes(actual: &str, workspace: &mut Workspace) -> Sizes {
    let Workspace {
        actual_words,
        vocabulary,
        pairs,
        sequence,
        marks,
        ..
    } = workspace;
    let mut sizes = Sizes {
        expected_words: vocabulary.len(),
        expected_has_pairs: sequence.len() > 1,
        ..Sizes::default()
    };
    pairs.clear();
    for pair in neighbours(sequence) {
        sizes.expected_pairs += usize::from(pairs.add(pair, EXPECTED) == 0);
    }

    sequence.clear();
    actual_words.read(actual);
    add_words(actual_words, vocabulary, sequence);
    sizes.actual_has_pairs = sequence.len() > 1;
    // Words of the expected text have the numbers below this.
    let only_actual = vocabulary.len() - sizes.expected_words;
    marks.clear();
    marks.resize(sizes.expected_words, false);
    for number in sequence.iter() {
        let mark = usize::try_from(*number)
            .ok()
            .and_then(|at| marks.get_mut(at));
        if let Some(mark) = mark {
            sizes.shared_words += usize::from(!std::mem::replace(mark, true));
        }
    }
    sizes.actual_words = only_actual + sizes.shared_words;
    for pair in neighbours(sequence) {
        let before = pairs.add(pair, ACTUAL);
        sizes.actual_pairs += usize::from(before & ACTUAL == 0);
        sizes.shared_pairs += usize::from(before == EXPECTED);
    }
    sizes
}

fn add_words(words: &Words, vocabulary: &mut Vocabulary, sequence: &mut Vec<u32>) {
    let numbers = words
        .list()
        .iter()
        .map(|word| vocabulary.number(word, words.text()));
    sequence.extend(numbers);
}

fn neighbours(sequence: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    sequence
        .iter()
        .copied()
        .zip(sequence.iter().skip(1).copied())
}

fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn sets(text: &str) -> (HashSet<String>, HashSet<(String, String)>, usize) {
        let tokens: Vec<String> = text
            .to_lowercase()
            .split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit())
            .filter(|token| !token.is_empty())
            .map(str::to_owned)
            .collect();
        let pairs = tokens
            .windows(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()));
        (
            tokens.iter().cloned().collect(),
            pairs.collect(),
            tokens.len(),
        )
    }

    fn jaccard<T: Eq + std::hash::Hash>(a: &HashSet<T>, b: &HashSet<T>) -> f64 {
        match a.union(b).count() {
            0 => 1.0,
            either => ratio(a.intersection(b).count(), either),
        }
    }

    proptest! {
        #[test]
        fn overlap_is_that_of_the_sets(actual in "([ab]{1,2}[ é,]){0,6}", expected in "([aB]{1,2}[ \n]){0,6}") {
            let mut workspace = Workspace::default();
            let ((a, a_pairs, a_count), (e, e_pairs, e_count)) = (sets(&actual), sets(&expected));
            let words = jaccard(&a, &e);
            let neighbours = match (e_count < 2, a_count < 2) {
                (true, _) => words,
                (false, true) => 0.0,
                (false, false) => jaccard(&a_pairs, &e_pairs),
            };
            let overlap = of_texts(&actual, &expected, &mut workspace);
            prop_assert_eq!(overlap, Overlap { words, neighbours });

            let contained = in_documents(&actual, &[&expected], &mut workspace);
            let words = ratio(a.intersection(&e).count(), a.len());
            let neighbours = match a_count < 2 {
                true => words,
                false => ratio(a_pairs.intersection(&e_pairs).count(), a_pairs.len()),
            };
            prop_assert_eq!(contained, (a_count > 0).then_some(Overlap { words, neighbours }));
        }
    }

    #[test]
    fn words_around_the_border_of_documents_are_neighbours() {
        let mut workspace = Workspace::default();
        let overlap = in_documents("a b c", &["x a b", "c y"], &mut workspace);
        assert_eq!(overlap.map(Overlap::score), Some(1.0));
        let overlap = in_documents("c a", &["x a b", "c y"], &mut workspace);
        assert_eq!(overlap.map(Overlap::score), Some(0.4));
        assert_eq!(in_documents("…", &["…"], &mut workspace), None);
    }
}
