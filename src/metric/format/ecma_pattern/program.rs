//! Patterns as steps for the search.

use std::ops::Range;
use std::sync::Arc;

use super::chars::Chars;
use super::syntax::{Node, Pattern, Repeat};

/// What one step compares a character with.
#[derive(Clone, Debug)]
pub(super) enum One {
    Char(char),
    Any(Arc<Chars>),
}

impl One {
    pub(super) fn matches(&self, character: char) -> bool {
        match self {
            Self::Char(one) => *one == character,
            Self::Any(chars) => chars.contains(character),
        }
    }
}

/// A step; `usize` fields are numbers of steps unless they say otherwise. `back` is for going towards the start of the
/// text, as what is behind is matched.
#[derive(Debug)]
pub(super) enum Step<'p> {
    One {
        one: One,
        back: bool,
    },
    /// Characters one after the other.
    Text {
        text: &'p str,
        back: bool,
    },
    /// A run of characters.
    Run {
        one: One,
        least: u32,
        most: u32,
        greedy: bool,
        back: bool,
    },
    LineStart,
    LineEnd,
    WordEdge(bool),
    /// Goes on at the first, and at the second if that fails.
    Fork(usize, usize),
    Goto(usize),
    /// Keeps the place in the text in this slot: two slots a group.
    Keep(usize),
    /// The text of a group.
    SameAs {
        group: usize,
        back: bool,
    },
    /// What follows up to [`Step::Done`] must match or must not; then goes on at `then`.
    Look {
        negative: bool,
        then: usize,
    },
    /// Before the first round of a loop, with its number.
    Begin(usize),
    /// Before each round: either one more, which is the next step, or on at `then`.
    Again {
        counter: usize,
        least: u32,
        most: u32,
        greedy: bool,
        then: usize,
    },
    /// One more round; slots of the groups inside are forgotten.
    Round {
        counter: usize,
        slots: Range<usize>,
    },
    /// The end of the pattern or of what is looked at.
    Done,
}

/// The steps of a pattern.
#[derive(Debug, Default)]
pub(super) struct Program<'p> {
    pub(super) steps: Vec<Step<'p>>,
    /// Slots for groups; none where no group is asked for its text.
    pub(super) slots: usize,
    /// Loops that are counted.
    pub(super) counters: usize,
    /// What every match begins with.
    pub(super) prefix: String,
    keeps_groups: bool,
}

/// As often as there is.
pub(super) const UNBOUNDED: u32 = u32::MAX;

/// The steps of a pattern, as many as it has parts.
pub(super) fn compile<'p>(pattern: &Pattern<'p>) -> Program<'p> {
    let mut program = Program {
        keeps_groups: pattern.looks_back_at_groups,
        ..Program::default()
    };
    if program.keeps_groups {
        program.slots = 2 * (pattern.groups + 1);
    }
    program.add(&pattern.root, false);
    program.steps.push(Step::Done);
    program.prefix = match program.steps.first() {
        Some(Step::Text { text, back: false }) => (*text).to_owned(),
        Some(Step::One {
            one: One::Char(one),
            back: false,
        }) => one.to_string(),
        _ => String::new(),
    };
    program
}

impl<'p> Program<'p> {
    fn add(&mut self, node: &Node<'p>, back: bool) {
        match node {
            Node::Char(one) => self.steps.push(Step::One {
                one: One::Char(*one),
                back,
            }),
            Node::Text(text) => self.steps.push(Step::Text { text, back }),
            Node::Any(chars) => self.steps.push(Step::One {
                one: One::Any(Arc::clone(chars)),
                back,
            }),
            Node::Sequence(parts) if back => {
                parts.iter().rev().for_each(|part| self.add(part, back))
            }
            Node::Sequence(parts) => parts.iter().for_each(|part| self.add(part, back)),
            Node::Either(parts) => self.add_either(parts, back),
            Node::Group(number, inner) if self.keeps_groups => {
                let (open, close) = (2 * number, 2 * number + 1);
                self.steps.push(Step::Keep(if back { close } else { open }));
                self.add(inner, back);
                self.steps.push(Step::Keep(if back { open } else { close }));
            }
            Node::Group(_, inner) => self.add(inner, back),
            Node::SameAs(group) => self.steps.push(Step::SameAs {
                group: *group,
                back,
            }),
            Node::LineStart => self.steps.push(Step::LineStart),
            Node::LineEnd => self.steps.push(Step::LineEnd),
            Node::WordEdge(is_edge) => self.steps.push(Step::WordEdge(*is_edge)),
            Node::Look(look) => {
                let at = self.reserve();
                self.add(&look.inner, look.behind);
                self.steps.push(Step::Done);
                self.set(
                    at,
                    Step::Look {
                        negative: look.negative,
                        then: self.steps.len(),
                    },
                );
            }
            Node::Repeat(repeat) => self.add_repeat(repeat, back),
        }
    }

    fn add_either(&mut self, parts: &[Node<'p>], back: bool) {
        let mut ends = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            if at + 1 == parts.len() {
                self.add(part, back);
                break;
            }
            let fork = self.reserve();
            self.add(part, back);
            ends.push(self.reserve());
            self.set(fork, Step::Fork(fork + 1, self.steps.len()));
        }
        for end in ends {
            self.set(end, Step::Goto(self.steps.len()));
        }
    }

    fn add_repeat(&mut self, repeat: &Repeat<'p>, back: bool) {
        let (least, most) = (repeat.least, repeat.most.unwrap_or(UNBOUNDED));
        if most == 0 {
            return;
        }
        let one = match &repeat.inner {
            Node::Char(one) => Some(One::Char(*one)),
            Node::Any(chars) => Some(One::Any(Arc::clone(chars))),
            _ => None,
        };
        if let Some(one) = one {
            return self.steps.push(Step::Run {
                one,
                least,
                most,
                greedy: repeat.greedy,
                back,
            });
        }
        // A round that matches nothing, and groups that a round forgets, need the counted loop.
        let is_plain = !self.keeps_groups && !repeat.inner.may_be_empty();
        match (least, most) {
            (0, 1) if !self.keeps_groups => {
                let fork = self.reserve();
                self.add(&repeat.inner, back);
                self.set(fork, fork_to(repeat.greedy, fork + 1, self.steps.len()));
            }
            (0, UNBOUNDED) if is_plain => {
                let fork = self.reserve();
                self.add(&repeat.inner, back);
                self.steps.push(Step::Goto(fork));
                self.set(fork, fork_to(repeat.greedy, fork + 1, self.steps.len()));
            }
            (1, UNBOUNDED) if is_plain => {
                let start = self.steps.len();
                self.add(&repeat.inner, back);
                let after = self.steps.len() + 1;
                self.steps.push(fork_to(repeat.greedy, start, after));
            }
            _ => self.add_loop(repeat, back),
        }
    }

    fn add_loop(&mut self, repeat: &Repeat<'p>, back: bool) {
        let counter = self.counters;
        self.counters += 1;
        self.steps.push(Step::Begin(counter));
        let again = self.reserve();
        let slots = match self.keeps_groups {
            true => 2 * repeat.groups.start..2 * repeat.groups.end,
            false => 0..0,
        };
        self.steps.push(Step::Round { counter, slots });
        self.add(&repeat.inner, back);
        self.steps.push(Step::Goto(again));
        self.set(
            again,
            Step::Again {
                counter,
                least: repeat.least,
                most: repeat.most.unwrap_or(UNBOUNDED),
                greedy: repeat.greedy,
                then: self.steps.len(),
            },
        );
    }

    /// The place of a step that is not known yet.
    fn reserve(&mut self) -> usize {
        self.steps.push(Step::Done);
        self.steps.len() - 1
    }

    fn set(&mut self, at: usize, step: Step<'p>) {
        if let Some(reserved) = self.steps.get_mut(at) {
            *reserved = step;
        }
    }
}

fn fork_to(greedy: bool, round: usize, after: usize) -> Step<'static> {
    match greedy {
        true => Step::Fork(round, after),
        false => Step::Fork(after, round),
    }
}
