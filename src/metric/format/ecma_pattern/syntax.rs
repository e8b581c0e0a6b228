//! What a pattern says.

use std::ops::Range;
use std::sync::Arc;

use super::chars::Chars;

/// A part of a pattern.
#[derive(Debug)]
pub(super) enum Node<'p> {
    Char(char),
    /// Characters one after the other.
    Text(&'p str),
    /// Any character of a set.
    Any(Arc<Chars>),
    /// One part after the other.
    Sequence(Vec<Node<'p>>),
    /// The first part that leads to a match.
    Either(Vec<Node<'p>>),
    /// A part whose text is kept under a number, from 1 on.
    Group(usize, Box<Node<'p>>),
    /// The text that a group has.
    SameAs(usize),
    LineStart,
    LineEnd,
    /// A word begins or ends here, or (false) does not.
    WordEdge(bool),
    /// What is ahead or behind.
    Look(Box<Look<'p>>),
    Repeat(Box<Repeat<'p>>),
}

#[derive(Debug)]
pub(super) struct Look<'p> {
    pub(super) inner: Node<'p>,
    pub(super) behind: bool,
    pub(super) negative: bool,
}

#[derive(Debug)]
pub(super) struct Repeat<'p> {
    pub(super) inner: Node<'p>,
    pub(super) least: u32,
    /// None for as often as there is.
    pub(super) most: Option<u32>,
    pub(super) greedy: bool,
    /// The groups inside.
    pub(super) groups: Range<usize>,
}

/// A whole pattern.
#[derive(Debug)]
pub(super) struct Pattern<'p> {
    pub(super) root: Node<'p>,
    /// Groups that keep their text.
    pub(super) groups: usize,
    /// Whether any group is asked for its text.
    pub(super) looks_back_at_groups: bool,
}

impl Node<'_> {
    /// Whether this may match without a character. Text of groups may be empty.
    pub(super) fn may_be_empty(&self) -> bool {
        match self {
            Self::Char(_) | Self::Text(_) | Self::Any(_) => false,
            Self::Sequence(parts) => parts.iter().all(Self::may_be_empty),
            Self::Either(parts) => parts.iter().any(Self::may_be_empty),
            Self::Group(_, inner) => inner.may_be_empty(),
            Self::SameAs(_)
            | Self::LineStart
            | Self::LineEnd
            | Self::WordEdge(_)
            | Self::Look(_) => true,
            Self::Repeat(repeat) => repeat.least == 0 || repeat.inner.may_be_empty(),
        }
    }
}
