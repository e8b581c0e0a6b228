//! Two texts with the words that both have.

use std::collections::HashSet;

use serde::Serialize;

use crate::text::{WordAt, words_at};

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Piece {
    /// Whether both texts have it.
    pub marked: bool,
    /// As it stands there.
    pub text: String,
}

/// Both texts in pieces. Marked are the words that loop detection counts as shared, and between two of them also the
/// little words that both have.
pub(super) fn common(a: &str, b: &str) -> (Vec<Piece>, Vec<Piece>) {
    let (of_a, of_b) = (words_at(a), words_at(b));
    let set = |words: &[WordAt]| -> HashSet<String> {
        words.iter().map(|word| word.word.clone()).collect()
    };
    let (in_a, in_b) = (set(&of_a), set(&of_b));
    (pieces(a, &of_a, &in_b), pieces(b, &of_b, &in_a))
}

fn pieces(text: &str, words: &[WordAt], others: &HashSet<String>) -> Vec<Piece> {
    let shared = |word: &WordAt| others.contains(&word.word);
    let mut marked: Vec<bool> = words
        .iter()
        .map(|word| word.counts && shared(word))
        .collect();
    let mut from = None;
    for at in 0..words.len() {
        if marked[at] {
            // Between two marked words, only little ones that both texts have.
            if let Some(from) = from.filter(|from| words[from + 1..at].iter().all(shared)) {
                marked[from..at].fill(true);
            }
            from = Some(at);
        } else if words[at].counts {
            from = None;
        }
    }
    let mut found: Vec<Piece> = Vec::new();
    let mut push = |marked: bool, text: &str| {
        if !text.is_empty() {
            found.push(Piece {
                marked,
                text: text.to_owned(),
            });
        }
    };
    let mut done = 0;
    let mut at = 0;
    while at < words.len() {
        if !marked[at] {
            at += 1;
            continue;
        }
        let begin = words[at].at.start;
        while at + 1 < words.len() && marked[at + 1] {
            at += 1;
        }
        let end = words[at].at.end;
        push(false, &text[done..begin]);
        push(true, &text[begin..end]);
        done = end;
        at += 1;
    }
    push(false, &text[done..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[Piece]) -> String {
        let piece = |piece: &Piece| match piece.marked {
            true => format!("[{}]", piece.text),
            false => piece.text.clone(),
        };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn shared_words_are_marked_with_the_little_ones_between_them() {
        let (a, b) = common(
            "Please restart the router, then wait.",
            "I said: please RESTART the router and call.",
        );
        assert_eq!(shown(&a), "[Please restart the router], then wait.");
        assert_eq!(shown(&b), "I said: [please RESTART the router] and call.");
    }

    #[test]
    fn nothing_of_a_text_is_lost() {
        let texts = [
            "",
            "  ",
            "ΟΔΟΣ – <b>",
            "a é\u{301} ab 日本",
            "the the ab the",
        ];
        for a in texts {
            for b in texts {
                let (pieces, _) = common(a, b);
                let whole: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
                assert_eq!(whole, a);
            }
        }
        assert_eq!(
            shown(&common("the the ab the", "ab the").0),
            "the the [ab] the"
        );
        assert_eq!(shown(&common("the", "the").0), "the");
    }
}
