//! Where in a JSON document something is: `evalCases[3].conversation[0].tools`.

use std::fmt;

/// A value's place, as a chain from the value up to the document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The document itself.
    Document,
    /// The member of this name.
    Member(&'a Place<'a>, &'a str),
    /// The item of this number, from 0.
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    /// Empty for the document. As deep as the document is, which its reader limits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document => Ok(()),
            Self::Member(Self::Document, name) => f.write_str(name),
            Self::Member(of, name) => write!(f, "{of}.{name}"),
            Self::Item(of, at) => write!(f, "{of}[{at}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_place_reads_as_one_writes_it_down() {
        let cases = Place::Member(&Place::Document, "evalCases");
        let third = Place::Item(&cases, 3);
        assert_eq!(
            Place::Member(&third, "evalId").to_string(),
            "evalCases[3].evalId"
        );
        assert_eq!(Place::Item(&Place::Document, 0).to_string(), "[0]");
        assert_eq!(Place::Document.to_string(), "");
    }
}
