//! What objects of trpc-agent-go's files hold: names of members, their kinds, and what is left out when they are
//! written.
//!
//! One table an object serves reading (names, kinds) and writing (order, what is left out).

mod check;
mod metrics;
mod results;
mod sets;
mod write;

pub use check::ShapeFault;
pub(super) use check::checked;
pub(super) use metrics::{CRITERION, METRIC, METRICS};
pub(super) use results::{CASE_RESULT, METRIC_RESULT, RESULT};
pub(super) use sets::{CASE, INVOCATION, MESSAGE, SET};
pub(super) use write::{arranged, number_of};

/// An object's members in the order in which they are written. Members that are not listed are kept behind them.
#[derive(Debug)]
pub(super) struct Shape(pub(super) &'static [Member]);

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) written: Written,
}

/// When a member is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Unless it is null, `""`, 0, false, an empty list or an empty map.
    UnlessEmpty,
    /// Unless it is null.
    UnlessNull,
    /// Always: the empty value where there is none.
    Always,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Kind {
    /// A string.
    Text,
    /// true or false.
    Flag,
    /// A number without fraction and exponent.
    Integer,
    /// A number.
    Number,
    /// Seconds from 1970 on.
    Moment,
    /// `passed`, `failed`, `not_evaluated` or `unknown`; very old files hold numbers for them.
    Status,
    /// Any JSON.
    Free,
    /// An object whose members have no order and no rules.
    FreeMap,
    /// An object with a table.
    Object(&'static Shape),
    /// A list of values of one kind; any of them may be null.
    List(&'static Kind),
    /// An object whose values are of one kind; any of them may be null.
    Map(&'static Kind),
}

impl Member {
    const fn new(name: &'static str, kind: Kind, written: Written) -> Self {
        Self {
            name,
            kind,
            written,
        }
    }

    /// The same member, written whenever it is not null.
    const fn nullable(self) -> Self {
        Self {
            written: Written::UnlessNull,
            ..self
        }
    }

    /// The same member, always written.
    const fn always(self) -> Self {
        Self {
            written: Written::Always,
            ..self
        }
    }
}

const fn text(name: &'static str) -> Member {
    Member::new(name, Kind::Text, Written::UnlessEmpty)
}

const fn flag(name: &'static str) -> Member {
    Member::new(name, Kind::Flag, Written::UnlessEmpty)
}

const fn integer(name: &'static str) -> Member {
    Member::new(name, Kind::Integer, Written::UnlessEmpty)
}

const fn number(name: &'static str) -> Member {
    Member::new(name, Kind::Number, Written::UnlessEmpty)
}

const fn moment(name: &'static str) -> Member {
    Member::new(name, Kind::Moment, Written::UnlessNull)
}

const fn status(name: &'static str) -> Member {
    Member::new(name, Kind::Status, Written::UnlessEmpty)
}

const fn free(name: &'static str) -> Member {
    Member::new(name, Kind::Free, Written::UnlessNull)
}

const fn free_map(name: &'static str) -> Member {
    Member::new(name, Kind::FreeMap, Written::UnlessEmpty)
}

const fn object(name: &'static str, shape: &'static Shape) -> Member {
    Member::new(name, Kind::Object(shape), Written::UnlessNull)
}

const fn list(name: &'static str, of: &'static Kind) -> Member {
    Member::new(name, Kind::List(of), Written::UnlessEmpty)
}

const fn map(name: &'static str, of: &'static Kind) -> Member {
    Member::new(name, Kind::Map(of), Written::UnlessEmpty)
}
