//! Patterns, read.

use std::sync::{Arc, LazyLock};

use super::chars::Chars;
use super::escape::Code;
use super::syntax::{Look, Node, Pattern, Repeat};

/// Reads a pattern. None if it is invalid.
pub(super) fn parse(pattern: &str) -> Option<Pattern<'_>> {
    let mut parser = Parser {
        pattern,
        ..Parser::default()
    };
    parser.find_groups()?;
    let root = parser.either()?;
    // What is left is a `)` that closes nothing.
    parser.peek().is_none().then_some(Pattern {
        root,
        groups: parser.groups,
        looks_back_at_groups: parser.looks_back_at_groups,
    })
}

/// What `.` matches.
static DOT: LazyLock<Arc<Chars>> = LazyLock::new(|| Arc::new(Chars::line_ends().inverted()));

/// What means something else than itself outside of sets, or makes what is before it repeat.
fn is_special(byte: u8) -> bool {
    matches!(
        byte,
        b'^' | b'$' | b'\\' | b'.' | b'*' | b'+' | b'?' | b'(' | b')' | b'[' | b'{' | b'|'
    )
}

#[derive(Default)]
pub(super) struct Parser<'p> {
    pattern: &'p str,
    /// The byte that is next.
    at: usize,
    /// Groups that begin before this place.
    opened: usize,
    /// All groups of the pattern, and the names that some have.
    groups: usize,
    names: Vec<(String, usize)>,
    looks_back_at_groups: bool,
}

impl<'p> Parser<'p> {
    fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    pub(super) fn eat(&mut self, character: char) -> bool {
        let is_next = self.peek() == Some(character);
        if is_next {
            self.at += character.len_utf8();
        }
        is_next
    }

    fn eat_all(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.at += text.len();
        }
        is_next
    }

    pub(super) fn place(&self) -> usize {
        self.at
    }

    pub(super) fn go_to(&mut self, place: usize) {
        self.at = place;
    }

    /// Counts the groups and reads their names: escapes with digits mean one thing or another depending on them.
    fn find_groups(&mut self) -> Option<()> {
        if !self.pattern.contains('(') {
            return Some(());
        }
        let mut in_set = false;
        while let Some(character) = self.next() {
            match character {
                '\\' => {
                    self.next();
                }
                '[' => in_set = true,
                ']' => in_set = false,
                '(' if !in_set => {
                    let is_plain = !self.eat('?');
                    let is_named =
                        !is_plain && self.eat('<') && !matches!(self.peek(), Some('=' | '!'));
                    self.groups += usize::from(is_plain || is_named);
                    if is_named {
                        let name = self.group_name()?;
                        if self.names.iter().any(|(other, _)| *other == name) {
                            return None;
                        }
                        self.names.push((name, self.groups));
                    }
                }
                _ => {}
            }
        }
        self.at = 0;
        Some(())
    }

    fn either(&mut self) -> Option<Node<'p>> {
        let mut parts = vec![self.sequence()?];
        while self.eat('|') {
            parts.push(self.sequence()?);
        }
        match parts.len() {
            1 => parts.pop(),
            _ => Some(Node::Either(parts)),
        }
    }

    fn sequence(&mut self) -> Option<Node<'p>> {
        let mut parts = Vec::new();
        while self.peek().is_some_and(|next| !matches!(next, '|' | ')')) {
            parts.push(match self.text() {
                Some(text) => Node::Text(text),
                None => self.term()?,
            });
        }
        Some(Node::Sequence(parts))
    }

    /// Reads characters that are themselves and are not repeated.
    fn text(&mut self) -> Option<&'p str> {
        let rest = self.rest();
        let end = rest.bytes().position(is_special).unwrap_or(rest.len());
        let (mut text, behind) = rest.split_at_checked(end)?;
        if behind.starts_with(['*', '+', '?', '{']) {
            let last = text.char_indices().next_back();
            text = last
                .and_then(|(last, _)| text.get(..last))
                .unwrap_or_default();
        }
        self.at += text.len();
        (!text.is_empty()).then_some(text)
    }

    fn term(&mut self) -> Option<Node<'p>> {
        let opened = self.opened;
        let (atom, repeatable) = match self.next()? {
            '^' => (Node::LineStart, false),
            '$' => (Node::LineEnd, false),
            '.' => (Node::Any(Arc::clone(&DOT)), true),
            '[' => (any(self.set()?), true),
            '(' => self.group()?,
            '\\' if self.eat('b') => (Node::WordEdge(true), false),
            '\\' if self.eat('B') => (Node::WordEdge(false), false),
            '\\' => (self.escape()?, true),
            '*' | '+' | '?' => return None,
            '{' => {
                let start = self.at;
                self.at -= 1;
                if self.counts().is_some() {
                    return None;
                }
                self.at = start;
                (Node::Char('{'), true)
            }
            other => (Node::Char(other), true),
        };
        if !repeatable {
            return Some(atom);
        }
        let Some((least, most)) = self.quantifier() else {
            return Some(atom);
        };
        let greedy = !self.eat('?');
        if most.is_some_and(|most| most < least) {
            return None;
        }
        Some(Node::Repeat(Box::new(Repeat {
            inner: atom,
            least,
            most,
            greedy,
            groups: opened + 1..self.opened + 1,
        })))
    }

    /// Reads a group after its `(`, and says whether it may be repeated.
    fn group(&mut self) -> Option<(Node<'p>, bool)> {
        for (start, behind, negative) in [
            ("?=", false, false),
            ("?!", false, true),
            ("?<=", true, false),
            ("?<!", true, true),
        ] {
            if self.eat_all(start) {
                let inner = self.inside()?;
                let look = Look {
                    inner,
                    behind,
                    negative,
                };
                return Some((Node::Look(Box::new(look)), !behind));
            }
        }
        if self.eat_all("?:") {
            return Some((self.inside()?, true));
        }
        if self.eat('?') {
            // Anything but a name is no group. The name itself was read before.
            if !self.eat('<') {
                return None;
            }
            self.group_name()?;
        }
        self.opened += 1;
        let number = self.opened;
        Some((Node::Group(number, Box::new(self.inside()?)), true))
    }

    fn inside(&mut self) -> Option<Node<'p>> {
        let inner = self.either()?;
        self.eat(')').then_some(inner)
    }

    fn quantifier(&mut self) -> Option<(u32, Option<u32>)> {
        match self.peek()? {
            '*' => self.next().map(|_| (0, None)),
            '+' => self.next().map(|_| (1, None)),
            '?' => self.next().map(|_| (0, Some(1))),
            '{' => self.counts(),
            _ => None,
        }
    }

    /// Reads counts in braces; nothing is read where there are none.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let start = self.at;
        let counts = self.counts_in_braces();
        if counts.is_none() {
            self.at = start;
        }
        counts
    }

    fn counts_in_braces(&mut self) -> Option<(u32, Option<u32>)> {
        if !self.eat('{') {
            return None;
        }
        let least = self.number()?;
        let most = match self.eat(',') {
            true => self.number(),
            false => Some(least),
        };
        // Without a number there must be no digits either, which holds as all digits were read.
        self.eat('}').then_some((least, most))
    }

    /// A number of any length; large ones are all the same.
    fn number(&mut self) -> Option<u32> {
        let mut number = self.next_digit()?;
        while let Some(digit) = self.next_digit() {
            number = number.saturating_mul(10).saturating_add(digit);
        }
        Some(number)
    }

    fn next_digit(&mut self) -> Option<u32> {
        let digit = self.peek()?.to_digit(10)?;
        self.next();
        Some(digit)
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self) -> Option<Node<'p>> {
        if let Some(class) = self.class() {
            return Some(any(class));
        }
        let start = self.at;
        match self.peek()? {
            '1'..='9' => {
                let group = self
                    .number()
                    .and_then(|number| usize::try_from(number).ok());
                if let Some(group) = group.filter(|group| *group <= self.groups) {
                    self.looks_back_at_groups = true;
                    return Some(Node::SameAs(group));
                }
                // There is no such group: the digits are an octal code.
                self.at = start;
            }
            'k' if !self.names.is_empty() => {
                self.next();
                let name = self.eat('<').then(|| self.group_name())??;
                let (_, group) = self.names.iter().find(|(known, _)| *known == name)?;
                self.looks_back_at_groups = true;
                return Some(Node::SameAs(*group));
            }
            _ => {}
        }
        let escaped = self.character_escape(false)?;
        let character = char::from_u32(escaped);
        Some(character.map_or_else(|| any(Chars::default()), Node::Char))
    }

    /// Reads the letter of an escape that stands for a set of characters.
    fn class(&mut self) -> Option<Chars> {
        let chars = match self.peek()?.to_ascii_lowercase() {
            'd' => Chars::digits(),
            'w' => Chars::word(),
            's' => Chars::spaces(),
            _ => return None,
        };
        let inverts = self.next()?.is_ascii_uppercase();
        Some(if inverts { chars.inverted() } else { chars })
    }

    /// Reads a set after its `[`.
    fn set(&mut self) -> Option<Chars> {
        let inverted = self.eat('^');
        let mut ranges = Vec::new();
        let mut chars = Chars::default();
        while !self.eat(']') {
            let first = self.set_item()?;
            // A `-` at the end is itself.
            if !self.rest().starts_with('-') || self.rest().starts_with("-]") {
                first.add_to(&mut chars, &mut ranges);
                continue;
            }
            self.next();
            let last = self.set_item()?;
            match (&first, &last) {
                (Item::One(first), Item::One(last)) => {
                    if first > last {
                        return None;
                    }
                    ranges.push((*first, *last));
                    // Characters beyond the first plane are made of surrogates.
                    if *first <= 0xd800 && *last >= 0xdfff {
                        ranges.push((0x1_0000, 0x10_ffff));
                    }
                }
                // Next to a class, `-` is itself.
                _ => {
                    first.add_to(&mut chars, &mut ranges);
                    last.add_to(&mut chars, &mut ranges);
                    ranges.push((u32::from('-'), u32::from('-')));
                }
            }
        }
        chars.add(&Chars::of_ranges(&ranges));
        Some(if inverted { chars.inverted() } else { chars })
    }

    fn set_item(&mut self) -> Option<Item> {
        let first = self.next()?;
        if first != '\\' {
            return Some(Item::One(u32::from(first)));
        }
        if let Some(class) = self.class() {
            return Some(Item::Class(class));
        }
        match self.peek()? {
            'b' => {
                self.next();
                Some(Item::One(0x8))
            }
            'k' if !self.names.is_empty() => None,
            _ => self.character_escape(true).map(Item::One),
        }
    }
}

/// What is in a set: one code, or the characters of a class.
enum Item {
    One(Code),
    Class(Chars),
}

impl Item {
    fn add_to(&self, chars: &mut Chars, ranges: &mut Vec<(u32, u32)>) {
        match self {
            Self::One(one) => ranges.push((*one, *one)),
            Self::Class(class) => chars.add(class),
        }
    }
}

fn any(chars: Chars) -> Node<'static> {
    Node::Any(Arc::new(chars))
}
