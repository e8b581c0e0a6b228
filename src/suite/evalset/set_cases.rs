//! The cases of a set's file, read as they are needed: of a large file only the text is held, and not its values.

use std::collections::HashSet;
use std::ops::Range;

use rayon::prelude::*;

use super::json_file::{FileError, Loaded};
use super::model::{EvalCase, EvalSet};

/// Texts up to this length are read once, and their cases held as values.
const HELD_AS_VALUES: usize = 4 << 20;
/// The text of the cases that are worked on together, in bytes; a longer case is worked on alone.
const CHUNK: usize = 2 << 20;
/// The member of a set that holds its cases.
const CASES: &[u8] = b"evalCases";

/// A set whose cases are read in chunks.
#[derive(Clone, Debug)]
pub(crate) struct SetCases {
    /// `evalSetId`
    pub id: String,
    /// `evalId` of each case, in the order of the file.
    pub ids: Vec<String>,
    /// Whether two cases have one id.
    pub repeats: bool,
    held: Held,
}

#[derive(Clone, Debug)]
enum Held {
    Values(Vec<EvalCase>),
    /// Every case was read once, so that all of them can be.
    Text(String, Vec<Range<usize>>),
}

impl SetCases {
    /// Reads the text of a file that errors call `file`, all of it.
    ///
    /// # Errors
    /// See [`EvalSet::from_text`].
    pub fn of_text(text: String, file: &str) -> Result<Loaded<Self>, FileError> {
        if let Some(loaded) = Self::in_pieces(&text, file) {
            let Loaded {
                value: (mut set, spans),
                warnings,
            } = loaded;
            set.held = Held::Text(text, spans);
            return Ok(Loaded {
                value: set,
                warnings,
            });
        }
        // Small, unusual or broken: what is wrong is said of the whole.
        let loaded = EvalSet::from_text(&text, file)?;
        Ok(Loaded {
            value: Self::of_set(loaded.value),
            warnings: loaded.warnings,
        })
    }

    /// A set that was read already.
    pub fn of_set(set: EvalSet) -> Self {
        let ids: Vec<String> = set.cases.iter().map(|case| case.id.clone()).collect();
        let distinct: HashSet<&str> = ids.iter().map(String::as_str).collect();
        Self {
            id: set.id,
            repeats: distinct.len() < ids.len(),
            held: Held::Values(set.cases),
            ids,
        }
    }

    /// Checks case by case; none where that can't be done, or something is wrong.
    fn in_pieces(text: &str, file: &str) -> Option<Loaded<(Self, Vec<Range<usize>>)>> {
        if text.len() < HELD_AS_VALUES {
            return None;
        }
        let found = spans(text)?;
        let (before, after) = (text.get(..found.list.start)?, text.get(found.list.end..)?);
        let head = EvalSet::from_text(&format!("{before}[]{after}"), file).ok()?;
        let checked: Vec<Option<(String, String, bool)>> = found
            .cases
            .par_iter()
            .map(|span| {
                let (case, converted) = EvalCase::from_text(text.get(span.clone())?, file).ok()?;
                Some((case.id, case.mode, converted))
            })
            .collect();
        let checked: Vec<(String, String, bool)> = checked.into_iter().collect::<Option<_>>()?;
        let mut warnings = head.warnings;
        if checked.iter().any(|(_, _, converted)| *converted) && warnings.is_empty() {
            warnings.push(EvalSet::converted(file));
        }
        let cases = checked
            .iter()
            .map(|(id, mode, _)| (id.as_str(), mode.as_str()));
        warnings.extend(EvalSet::oddities(file, cases));
        let ids: Vec<String> = checked.into_iter().map(|(id, _, _)| id).collect();
        let distinct: HashSet<&str> = ids.iter().map(String::as_str).collect();
        let set = Self {
            id: head.value.id,
            repeats: distinct.len() < ids.len(),
            ids,
            held: Held::Values(Vec::new()),
        };
        Some(Loaded {
            value: (set, found.cases),
            warnings,
        })
    }

    /// Cases by their places, `wanted` of them, that are worked on together; all in one where that is asked for.
    pub fn chunks(&self, wanted: impl Fn(&str) -> bool, in_one: bool) -> Vec<Vec<usize>> {
        let places = self.ids.iter().enumerate();
        let places: Vec<usize> = places
            .filter(|(_, id)| wanted(id))
            .map(|(at, _)| at)
            .collect();
        let spans = match &self.held {
            Held::Text(_, spans) if !in_one => spans,
            _ => return vec![places],
        };
        let mut chunks = vec![Vec::new()];
        let mut length = 0;
        for place in places {
            let bytes = spans.get(place).map_or(0, ExactSizeIterator::len);
            if length > 0 && length + bytes > CHUNK {
                chunks.push(Vec::new());
                length = 0;
            }
            length += bytes;
            if let Some(chunk) = chunks.last_mut() {
                chunk.push(place);
            }
        }
        chunks
    }

    /// The cases at these places.
    pub fn read(&self, places: &[usize]) -> Vec<EvalCase> {
        match &self.held {
            Held::Values(cases) => places
                .iter()
                .filter_map(|at| cases.get(*at))
                .cloned()
                .collect(),
            Held::Text(text, spans) => {
                let read = |at: &usize| {
                    let case = text.get(spans.get(*at)?.clone())?;
                    // It was read before.
                    EvalCase::from_text(case, "").ok().map(|(case, _)| case)
                };
                let read: Vec<Option<EvalCase>> = places.par_iter().map(read).collect();
                read.into_iter().flatten().collect()
            }
        }
    }

    /// All cases.
    pub fn all(&self) -> Vec<EvalCase> {
        let places: Vec<usize> = (0..self.ids.len()).collect();
        self.read(&places)
    }
}

/// Where the list of cases is in a text, and each case that is no null.
struct Spans {
    list: Range<usize>,
    cases: Vec<Range<usize>>,
}

/// Finds the cases without reading them; none if the text is not the usual one. Whether it is JSON at all is for its
/// reader to say.
fn spans(text: &str) -> Option<Spans> {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        at: 0,
    };
    scan.take(b'{')?;
    let mut found = None;
    loop {
        let name = scan.string()?;
        scan.take(b':')?;
        let is_cases = name == CASES;
        if !is_cases && (name.contains(&b'\\') || name.eq_ignore_ascii_case(CASES)) {
            return None;
        }
        match (is_cases, &found) {
            (true, None) => found = Some(scan.items()?),
            (true, Some(_)) => return None,
            (false, _) => {
                scan.value()?;
            }
        }
        match scan.next()? {
            b',' => {}
            b'}' => return found,
            _ => return None,
        }
    }
}

struct Scan<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    /// The next byte that is no white space, without taking it.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at)? {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                byte => return Some(*byte),
            }
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    /// What is between the quotes of a string.
    fn string(&mut self) -> Option<&'t [u8]> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            let rest = self.bytes.get(self.at..)?;
            self.at += memchr::memchr2(b'"', b'\\', rest)?;
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return self.bytes.get(start..self.at - 1);
                }
                _ => self.at += 2,
            }
        }
    }

    /// Passes over a value, however deep it is.
    fn value(&mut self) -> Option<Range<usize>> {
        self.peek()?;
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                b',' | b':' => return None,
                _ => {
                    let rest = self.bytes.get(self.at..)?;
                    let ends = |byte: &u8| b" \t\r\n,:]}".contains(byte);
                    self.at += rest.iter().position(ends)?;
                }
            }
            if depth == 0 {
                return Some(start..self.at);
            }
        }
    }

    /// The items of a list, nulls left out.
    fn items(&mut self) -> Option<Spans> {
        self.peek()?;
        let start = self.at;
        self.take(b'[')?;
        let mut cases = Vec::new();
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                let item = self.value()?;
                if self.bytes.get(item.clone())? != b"null" {
                    cases.push(item);
                }
                match self.next()? {
                    b',' => {}
                    b']' => break,
                    _ => return None,
                }
            }
        }
        Some(Spans {
            list: start..self.at,
            cases,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// A set whose text is long enough to be read in pieces.
    fn large(cases: &[Value]) -> String {
        let filling = "x".repeat(HELD_AS_VALUES);
        json!({"description": filling, "evalSetId": "s", "evalCases": cases, "more": [1]})
            .to_string()
    }

    fn case(id: &str, said: &str) -> Value {
        json!({"evalId": id, "evalMode": "trace", "extra": {"k": [null, said]}, "conversation": [
            {"invocationId": "i", "userContent": {"role": "user", "content": said}}]})
    }

    fn same(text: &str) {
        let whole = EvalSet::from_text(text, "f").unwrap();
        let loaded = SetCases::of_text(text.to_owned(), "f").unwrap();
        assert_eq!(loaded.warnings, whole.warnings);
        assert_eq!(
            (&loaded.value.id, loaded.value.all()),
            (&whole.value.id, whole.value.cases)
        );
    }

    #[test]
    fn pieces_are_the_whole() {
        let odd = "a \"quoted\" \\ ] } , { [ \u{1F600} \n";
        let cases = [
            case("a", odd),
            Value::Null,
            case("b", ""),
            case("a", "again"),
        ];
        let text = large(&cases);
        let loaded = SetCases::of_text(text.clone(), "f").unwrap().value;
        assert!(matches!(loaded.held, Held::Text(..)) && loaded.repeats);
        same(&text);
        same(&large(&[]));
        same(&text.replace("\"evalCases\":[", "\"evalCases\" :\n [ "));
        let strange = large(&[json!({"evalId": "a", "evalMode": "dream",
            "conversation": [{"intermediateData": {"toolUses": [{"id": "1", "name": "t", "args": {}}]}}]})]);
        same(&strange);
        assert_eq!(SetCases::of_text(strange, "f").unwrap().warnings.len(), 2);
    }

    #[test]
    fn what_is_unusual_or_broken_is_read_as_a_whole() {
        let text = large(&[case("a", "b")]);
        for unusual in [
            text.replace("evalCases", "EvalCases"),
            text.replace("\"more\":[1]", "\"evalCases\":[]"),
            text.replace("evalCases", "eval\\u0043ases"),
            text.replace("\"evalCases\":[", "\"x\":[")
                .replace("\"more\":[1]", "\"evalCases\":null"),
        ] {
            same(&unusual);
        }
        for broken in [
            text.replace("\"more\":[1]", "\"more\":[1],"),
            text.replace("\"evalId\":\"a\"", "\"evalId\":3"),
            text.replace("\"more\":[1]", "\"more\":[1"),
            text.replace("[null,", "[nul,"),
            text[..text.len() - 3].to_owned(),
        ] {
            let whole = EvalSet::from_text(&broken, "f").unwrap_err().to_string();
            let told = SetCases::of_text(broken, "f").unwrap_err().to_string();
            assert_eq!(told, whole);
        }
    }

    #[test]
    fn chunks_hold_each_case_once_and_in_order() {
        let cases: Vec<Value> = (0..50)
            .map(|at| case(&at.to_string(), &"y".repeat(CHUNK / 7)))
            .collect();
        let set = SetCases::of_text(large(&cases), "f").unwrap().value;
        let chunks = set.chunks(|id| id != "3", false);
        assert!(chunks.len() > 5 && chunks.iter().all(|chunk| !chunk.is_empty()));
        let places: Vec<usize> = chunks.concat();
        assert_eq!(places, (0..50).filter(|at| *at != 3).collect::<Vec<_>>());
        assert_eq!(set.chunks(|_| true, true).len(), 1);
        assert_eq!(set.read(&[7])[0].id, "7");
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_to_an_end(text in "\\PC*", json in "[\\[\\]{}\",:\\\\a0 ]{0,60}") {
            let _ = spans(&text);
            let _ = spans(&format!("{{\"evalCases\":{json}"));
        }
    }
}
