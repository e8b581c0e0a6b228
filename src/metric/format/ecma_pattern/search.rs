//! The search for a match: steps forward, and back to the last place with another way when they fail. Nothing recurses
//! but what is looked at ahead and behind, and that only as deep as the pattern nests it.

use memchr::memmem;

use super::program::{One, Program, Step};
use super::{Failure, MOST_PLACES, MOST_STEPS};
use crate::metric::comparison::is_edge;

/// So many bytes of what every match begins with are looked for: enough to find few places, and soon prepared.
const MOST_PREFIX: usize = 16;

/// Whether the program matches somewhere in the text.
///
/// # Errors
/// [`Failure::TooComplex`] if that takes too many steps.
pub(super) fn search(program: &Program<'_>, text: &str) -> Result<bool, Failure> {
    let mut search = Search {
        program,
        text,
        steps_left: MOST_STEPS,
        way_back: Vec::new(),
        slots: vec![None; program.slots],
        counters: vec![Counter::default(); program.counters],
    };
    let prefix = program.prefix.as_bytes();
    let finder = memmem::Finder::new(prefix.get(..MOST_PREFIX).unwrap_or(prefix));
    let mut start = 0;
    loop {
        let rest = text.get(start..).unwrap_or_default();
        let Some(found) = finder.find(rest.as_bytes()) else {
            return Ok(false);
        };
        start += found;
        if search.run(0, start)? {
            return Ok(true);
        }
        let Some(next) = text.get(start..).and_then(|rest| rest.chars().next()) else {
            return Ok(false);
        };
        start += next.len_utf8();
    }
}

/// The state of a loop.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    rounds: u32,
    /// Where the last round began.
    start: usize,
}

/// What to do when steps fail, last one first.
enum Back {
    /// Go on elsewhere.
    Try { step: usize, at: usize },
    /// A greedy run gives characters back, down to the place `least`.
    Shorter {
        step: usize,
        at: usize,
        least: usize,
    },
    /// A lazy run takes one more character, of at most `left`.
    Longer { step: usize, at: usize, left: u32 },
    /// A slot has its old place again.
    Slot(usize, Option<usize>),
    /// A loop has its old state again.
    Counter(usize, Counter),
}

struct Search<'s> {
    program: &'s Program<'s>,
    text: &'s str,
    steps_left: u64,
    way_back: Vec<Back>,
    /// Where groups begin and end.
    slots: Vec<Option<usize>>,
    counters: Vec<Counter>,
}

/// Where to go on: a step, and a place in the text.
type Place = (usize, usize);

impl<'s> Search<'s> {
    /// Runs from a step at a place of the text; whether it comes to the end of the pattern or of what is looked at.
    fn run(&mut self, step: usize, at: usize) -> Result<bool, Failure> {
        let base = self.way_back.len();
        let mut place = (step, at);
        loop {
            self.spend(1)?;
            if self.way_back.len() > MOST_PLACES {
                return Err(Failure::TooComplex);
            }
            let (step, at) = place;
            let next = match self.program.steps.get(step) {
                None | Some(Step::Done) => return Ok(true),
                Some(Step::Look { negative, then }) => {
                    let matched = self.look(step + 1, at, *negative)?;
                    (matched != *negative).then_some((*then, at))
                }
                Some(Step::Run {
                    one,
                    least,
                    most,
                    greedy,
                    back,
                }) => self.start_run(place, one, (*least, *most), *greedy, *back)?,
                Some(Step::Text { text, back }) => {
                    self.text(text, at, *back)?.map(|end| (step + 1, end))
                }
                Some(Step::SameAs { group, back }) => self
                    .text(self.kept(*group), at, *back)?
                    .map(|end| (step + 1, end)),
                Some(simple) => self.simple(simple, place),
            };
            place = match next {
                Some(next) => next,
                None => match self.go_back(base)? {
                    Some(next) => next,
                    None => return Ok(false),
                },
            };
        }
    }

    /// A step that takes constant time. None if it fails.
    fn simple(&mut self, step: &'s Step<'s>, (number, at): Place) -> Option<Place> {
        let (bytes, next) = (self.text.as_bytes(), number + 1);
        match step {
            Step::One { one, back } => Some((next, one_more(one, self.text, at, *back)?)),
            Step::LineStart => (at == 0 || ends_line(bytes.get(..at)?)).then_some((next, at)),
            Step::LineEnd => {
                (at == bytes.len() || starts_line_end(bytes.get(at..)?)).then_some((next, at))
            }
            Step::WordEdge(expected) => (is_edge(bytes, at) == *expected).then_some((next, at)),
            Step::Fork(first, second) => {
                self.way_back.push(Back::Try { step: *second, at });
                Some((*first, at))
            }
            Step::Goto(there) => Some((*there, at)),
            Step::Keep(slot) => {
                self.keep(*slot, Some(at));
                Some((next, at))
            }
            Step::Begin(counter) => {
                self.count(*counter, Counter::default());
                Some((next, at))
            }
            Step::Again {
                counter,
                least,
                most,
                greedy,
                then,
            } => {
                let Counter { rounds, start } = *self.counters.get(*counter)?;
                if rounds < *least {
                    return Some((next, at));
                }
                // A round beyond those that must be, with no character in it, leads nowhere.
                if rounds > *least && start == at {
                    return None;
                }
                if rounds >= *most {
                    return Some((*then, at));
                }
                let (first, second) = if *greedy {
                    (next, *then)
                } else {
                    (*then, next)
                };
                self.way_back.push(Back::Try { step: second, at });
                Some((first, at))
            }
            Step::Round { counter, slots } => {
                let rounds = self.counters.get(*counter)?.rounds.saturating_add(1);
                self.count(*counter, Counter { rounds, start: at });
                slots.clone().for_each(|slot| self.keep(slot, None));
                Some((next, at))
            }
            Step::Text { .. }
            | Step::Run { .. }
            | Step::SameAs { .. }
            | Step::Look { .. }
            | Step::Done => None,
        }
    }

    /// Whether what is looked at matches here. Its other ways are forgotten; what groups kept in it stays, if it
    /// matches and should.
    fn look(&mut self, step: usize, at: usize, negative: bool) -> Result<bool, Failure> {
        let base = self.way_back.len();
        let matched = self.run(step, at)?;
        if matched && negative {
            while self.way_back.len() > base {
                self.spend(1)?;
                self.undo_last();
            }
        } else if matched {
            let inner = self.way_back.split_off(base);
            self.spend(u64::try_from(inner.len()).unwrap_or(u64::MAX))?;
            let undoes = |back: &Back| matches!(back, Back::Slot(..) | Back::Counter(..));
            self.way_back.extend(inner.into_iter().filter(undoes));
        }
        Ok(matched)
    }

    /// Behind a run of characters, the longest or shortest one first. None if there are too few.
    fn start_run(
        &mut self,
        (step, start): Place,
        one: &One,
        (least, most): (u32, u32),
        greedy: bool,
        back: bool,
    ) -> Result<Option<Place>, Failure> {
        let mut at = start;
        let mut shortest = start;
        let mut taken = 0;
        let wanted = if greedy { most } else { least };
        while taken < wanted {
            self.spend(1)?;
            let Some(after) = one_more(one, self.text, at, back) else {
                break;
            };
            at = after;
            taken += 1;
            if taken == least {
                shortest = at;
            }
        }
        if taken < least {
            return Ok(None);
        }
        if greedy && at != shortest {
            let least = shortest;
            self.way_back.push(Back::Shorter { step, at, least });
        } else if !greedy && least < most {
            let left = most - least;
            self.way_back.push(Back::Longer { step, at, left });
        }
        Ok(Some((step + 1, at)))
    }

    /// The next way to try, of those above `base`. None if there is none.
    fn go_back(&mut self, base: usize) -> Result<Option<Place>, Failure> {
        while self.way_back.len() > base {
            self.spend(1)?;
            match self.way_back.last_mut() {
                Some(Back::Shorter { step, at, least }) => {
                    let step = *step;
                    let is_back = matches!(
                        self.program.steps.get(step),
                        Some(Step::Run { back: true, .. })
                    );
                    // One character less: against the direction of the run.
                    *at = neighbour(self.text, *at, !is_back).map_or(*least, |(_, there)| there);
                    let there = *at;
                    if there == *least {
                        self.way_back.pop();
                    }
                    return Ok(Some((step + 1, there)));
                }
                Some(Back::Longer { step, at, left }) => {
                    let more = match self.program.steps.get(*step) {
                        Some(Step::Run { one, back, .. }) => one_more(one, self.text, *at, *back),
                        _ => None,
                    };
                    let Some(there) = more else {
                        self.way_back.pop();
                        continue;
                    };
                    *at = there;
                    *left -= 1;
                    let (step, is_last) = (*step, *left == 0);
                    if is_last {
                        self.way_back.pop();
                    }
                    return Ok(Some((step + 1, there)));
                }
                Some(Back::Try { step, at }) => {
                    let there = (*step, *at);
                    self.way_back.pop();
                    return Ok(Some(there));
                }
                Some(Back::Slot(..) | Back::Counter(..)) | None => self.undo_last(),
            }
        }
        Ok(None)
    }

    fn undo_last(&mut self) {
        match self.way_back.pop() {
            Some(Back::Slot(slot, old)) => {
                if let Some(slot) = self.slots.get_mut(slot) {
                    *slot = old;
                }
            }
            Some(Back::Counter(counter, old)) => {
                if let Some(counter) = self.counters.get_mut(counter) {
                    *counter = old;
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, slot: usize, at: Option<usize>) {
        if let Some(place) = self.slots.get_mut(slot) {
            let old = std::mem::replace(place, at);
            self.way_back.push(Back::Slot(slot, old));
        }
    }

    fn count(&mut self, counter: usize, state: Counter) {
        if let Some(there) = self.counters.get_mut(counter) {
            let old = std::mem::replace(there, state);
            self.way_back.push(Back::Counter(counter, old));
        }
    }

    /// The text of a group; empty while it has none.
    fn kept(&self, group: usize) -> &'s str {
        let slot = |slot: usize| self.slots.get(slot).copied().flatten();
        let text = slot(2 * group).zip(slot(2 * group + 1));
        text.and_then(|(from, to)| self.text.get(from..to))
            .unwrap_or_default()
    }

    /// Behind a text that must be here.
    fn text(&mut self, text: &str, at: usize, back: bool) -> Result<Option<usize>, Failure> {
        let (before, after) = self.text.split_at_checked(at).unwrap_or_default();
        let (fits, end) = match back {
            true => (before.ends_with(text), at.checked_sub(text.len())),
            false => (after.starts_with(text), at.checked_add(text.len())),
        };
        // Comparing sixteen bytes takes no longer than a step.
        self.spend(u64::try_from(text.len() / 16).unwrap_or(u64::MAX))?;
        Ok(end.filter(|_| fits))
    }

    fn spend(&mut self, steps: u64) -> Result<(), Failure> {
        let left = self.steps_left.checked_sub(steps);
        self.steps_left = left.ok_or(Failure::TooComplex)?;
        Ok(())
    }
}

/// Behind the next character towards the end (or start) of the text, if it matches.
fn one_more(one: &One, text: &str, at: usize, back: bool) -> Option<usize> {
    let (character, there) = neighbour(text, at, back)?;
    one.matches(character).then_some(there)
}

/// The next character towards the end (or start) of the text, and the place behind it.
fn neighbour(text: &str, at: usize, back: bool) -> Option<(char, usize)> {
    if back {
        let character = text.get(..at)?.chars().next_back()?;
        return Some((character, at - character.len_utf8()));
    }
    match text.as_bytes().get(at)? {
        ascii @ 0..=127 => Some((char::from(*ascii), at + 1)),
        _ => {
            let character = text.get(at..)?.chars().next()?;
            Some((character, at + character.len_utf8()))
        }
    }
}

fn ends_line(before: &[u8]) -> bool {
    matches!(before, [.., b'\n' | b'\r'] | [.., 0xe2, 0x80, 0xa8 | 0xa9])
}

fn starts_line_end(after: &[u8]) -> bool {
    matches!(after, [b'\n' | b'\r', ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..])
}
