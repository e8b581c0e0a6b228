//! `markdown_structure`: whether headings and lists of an output are well formed.

use super::markdown_line::{Line, Marker, kind_of};
use crate::metric::comparison::is_space;

/// Something that must hold of an output that has headings or lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assertion {
    /// Headings have a blank behind one to six `#`.
    HeadingSyntax,
    /// No heading is more than one level below the one before it.
    HeadingOrder,
    /// Items have a blank behind their bullet or number.
    ListSyntax,
    /// Each list has one bullet, or one delimiter and numbers that are all equal or count up by one.
    ListMarkers,
}

impl Assertion {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [
        Self::HeadingSyntax,
        Self::HeadingOrder,
        Self::ListSyntax,
        Self::ListMarkers,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::HeadingSyntax => "heading_syntax",
            Self::HeadingOrder => "heading_order",
            Self::ListSyntax => "list_syntax",
            Self::ListMarkers => "list_markers",
        }
    }
}

/// Which assertions hold, in the order of [`Assertion::ALL`]; none where one does not apply.
pub(super) type Assertions = [Option<bool>; 4];

/// The share of assertions that hold, of those that apply; 1 where none does.
pub(super) fn score(assertions: &Assertions) -> f64 {
    let (held, applied) = assertions
        .iter()
        .flatten()
        .fold((0.0, 0.0), |(held, applied), holds| {
            (if *holds { held + 1.0 } else { held }, applied + 1.0)
        });
    if applied > 0.0 { held / applied } else { 1.0 }
}

/// Which assertions hold of a text.
pub(super) fn assertions(text: &str) -> Assertions {
    let mut seen = Seen::default();
    let mut lists = Lists::default();
    let mut fence: Option<(u8, usize)> = None;
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if let Some(open) = fence {
            let closes = |(mark, count, closes)| closes && mark == open.0 && count >= open.1;
            if matches!(kind_of(line), Line::Fence(mark, count, bare) if closes((mark, count, bare)))
            {
                fence = None;
            }
            continue;
        }
        match kind_of(line) {
            Line::Empty => {}
            Line::Fence(mark, count, _) => {
                fence = Some((mark, count));
                lists.end_from(0);
            }
            Line::Break => lists.end_from(0),
            Line::Heading(level) => {
                seen.heading(level);
                lists.end_from(0);
            }
            Line::BadHeading => {
                seen.bad_headings = true;
                lists.end_from(0);
            }
            Line::Item(indent, marker) => lists.item(indent, marker),
            Line::BadItem => {
                seen.bad_items = true;
                lists.end_from(0);
            }
            Line::Other(indent) => lists.end_from(indent),
        }
    }
    let any_heading = seen.last_level.is_some();
    [
        (any_heading || seen.bad_headings).then_some(!seen.bad_headings),
        any_heading.then_some(!seen.skipped_level),
        (lists.any || seen.bad_items).then_some(!seen.bad_items),
        lists.any.then_some(!lists.mixed),
    ]
}

#[derive(Default)]
struct Seen {
    last_level: Option<usize>,
    skipped_level: bool,
    bad_headings: bool,
    bad_items: bool,
}

impl Seen {
    fn heading(&mut self, level: usize) {
        self.skipped_level |= self.last_level.is_some_and(|last| level > last + 1);
        self.last_level = Some(level);
    }
}

/// The lists that have not ended, outer ones first: each has a larger indent than the one before.
#[derive(Default)]
struct Lists {
    open: Vec<List>,
    any: bool,
    mixed: bool,
}

struct List {
    indent: usize,
    last: Marker,
    /// Between numbers of one list: 0 or 1, once there are two.
    step: Option<u32>,
}

impl Lists {
    /// Ends the lists of this indent and larger ones.
    fn end_from(&mut self, indent: usize) {
        while self.open.last().is_some_and(|list| list.indent >= indent) {
            self.open.pop();
        }
    }

    fn item(&mut self, indent: usize, marker: Marker) {
        self.any = true;
        self.end_from(indent + 1);
        if let Some(list) = self.open.last_mut()
            && list.indent == indent
            && list.last.is_bullet() == marker.is_bullet()
        {
            self.mixed |= !list.takes(marker);
            return;
        }
        self.end_from(indent);
        self.open.push(List {
            indent,
            last: marker,
            step: None,
        });
    }
}

impl List {
    /// Whether an item of this marker fits; it is the last one then.
    fn takes(&mut self, marker: Marker) -> bool {
        let fits = match (self.last, marker) {
            (Marker::Number(last, one), Marker::Number(number, other)) if one == other => {
                let step = number.checked_sub(last).filter(|step| *step <= 1);
                let before = self.step.or(step);
                self.step = before;
                step.is_some() && step == before
            }
            (one, other) => one == other,
        };
        self.last = marker;
        fits
    }
}

/// What the tool looks for instead: the share of five things that a text has. These are a heading, a list, a closed
/// code fence, a table (which must begin the text, with its separator row), and paragraphs with an empty line
/// between.
pub(super) fn features(text: &str) -> f64 {
    let lines = || text.split('\n');
    let heading = text.split_inclusive('\n').any(|line| {
        let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
        let behind = line.get(hashes..).unwrap_or_default();
        (1..=6).contains(&hashes) && behind.starts_with(is_space)
    });
    let list = lines().any(|line| {
        let item = line.trim_start_matches(is_space);
        let digits = item.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = match digits.len() < item.len() {
            true => digits.strip_prefix('.'),
            false => item.strip_prefix(['-', '*', '+']),
        };
        rest.is_some_and(|rest| rest.starts_with(is_space))
    });
    let fence = text.split("```").nth(2).is_some();
    let first = lines().next().unwrap_or_default();
    let table = first.contains('|')
        && first.contains('-')
        && first
            .chars()
            .all(|c| matches!(c, '|' | '-' | ':') || is_space(c));
    let mut inner = lines();
    let ends = (inner.next(), inner.next_back());
    let paragraphs = ends.1.is_some() && inner.any(|line| line.chars().all(is_space));
    let present = [heading, list, fence, table, paragraphs];
    present
        .into_iter()
        .map(|there| if there { 1.0 } else { 0.0 })
        .sum::<f64>()
        / 5.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first letters of the assertions: upper case where they hold.
    fn shown(text: &str) -> String {
        let letters = assertions(text).into_iter().zip(["S", "O", "L", "M"]);
        let shown = letters.filter_map(|(holds, letter)| {
            holds.map(|holds| {
                if holds {
                    letter.to_owned()
                } else {
                    letter.to_lowercase()
                }
            })
        });
        shown.collect()
    }

    #[test]
    fn headings_go_down_one_level_at_a_time() {
        for (text, found) in [
            ("## A\n### B\n# C\n## D", "SO"),
            ("# A\n### B", "So"),
            ("# A\r\n##\r\n###\tC", "SO"),
            ("#A\n# B", "sO"),
            ("#######\n", "s"),
            ("#\u{a0}A", ""),
            ("    # A\n\t# B", ""),
            ("```\n#A\n~~~\n``\n````  \n# B\n", "SO"),
            ("~~~ text\n#A\n~~~ text\n#A", ""),
            ("    ```\n#A", "s"),
        ] {
            assert_eq!(shown(text), found, "{text:?}");
        }
    }

    #[test]
    fn lists_are_kept_by_indent() {
        for (text, found) in [
            ("- a\n- b\n+ c", "Lm"),
            ("- a\n\n- b", "LM"),
            ("- a\ntext\n* b", "LM"),
            ("- a\n  text\n* b", "Lm"),
            ("- a\n  * b\n- c\n  + d", "LM"),
            ("- a\n  1. b\n  2. c\n     - d\n  3. e\n- f", "LM"),
            ("- a\n1. b\n- c\n3. d", "LM"),
            ("3. a\n4. b\n5. c", "LM"),
            ("1. a\n1. b\n2. c", "Lm"),
            ("1. a\n2. b\n2. c", "Lm"),
            ("2. a\n1. b", "Lm"),
            ("1. a\n2) b", "Lm"),
            ("1. a\n# H\n5. b", "SOLM"),
            ("1. a\n* * *\n5. b", "LM"),
            ("1. a\n-x\n5. b", "lM"),
            ("1.\n2.", "LM"),
            ("1234567890. a", ""),
            ("\t- a\n    * b", "Lm"),
            ("-5\n*a*\n+1\n3.5", ""),
            ("1.a", "l"),
            ("+a", "l"),
            ("-é", ""),
        ] {
            assert_eq!(shown(text), found, "{text:?}");
        }
    }

    #[test]
    fn the_tool_counts_features() {
        for (text, count) in [
            ("|---|:-:|\n", 1.0),
            ("| a |\n|---|\n", 0.0),
            ("#\n", 1.0),
            ("#", 0.0),
            ("a\n \nb", 1.0),
            ("  12. x", 1.0),
            ("12) x", 0.0),
            ("```a```", 1.0),
            ("# A\n\n- b\n\n```\nc\n```\n", 4.0),
        ] {
            assert_eq!(features(text), count / 5.0, "{text:?}");
        }
    }
}
