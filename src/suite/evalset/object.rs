//! Members of objects that were checked against a table: taken out by name, and put together again.

use serde_json::{Map, Value};

use super::model::{EpochTime, Rest};

/// What is left of an object. A member that is not there is the empty value of its kind.
#[derive(Debug, Default)]
pub(super) struct Members(Map<String, Value>);

impl Members {
    /// The members of an object; none of any other value.
    pub(super) fn of(value: Value) -> Self {
        match value {
            Value::Object(members) => Self(members),
            _ => Self::default(),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        }
    }

    pub(super) fn integer_if_set(&mut self, name: &str) -> Option<i64> {
        self.take(name).and_then(|value| value.as_i64())
    }

    pub(super) fn integer(&mut self, name: &str) -> i64 {
        self.integer_if_set(name).unwrap_or_default()
    }

    pub(super) fn number_if_set(&mut self, name: &str) -> Option<f64> {
        self.take(name).and_then(|value| value.as_f64())
    }

    pub(super) fn number(&mut self, name: &str) -> f64 {
        self.number_if_set(name).unwrap_or_default()
    }

    pub(super) fn moment(&mut self, name: &str) -> Option<EpochTime> {
        self.number_if_set(name).and_then(EpochTime::of_seconds)
    }

    /// Any JSON; null where there is none.
    pub(super) fn free(&mut self, name: &str) -> Value {
        self.take(name).unwrap_or_default()
    }

    pub(super) fn map(&mut self, name: &str) -> Map<String, Value> {
        Self::of(self.free(name)).0
    }

    /// What `read` makes of an object; none where there is none.
    pub(super) fn object<T>(&mut self, name: &str, read: impl Fn(Self) -> T) -> Option<T> {
        self.take(name).map(|value| read(Self::of(value)))
    }

    /// What `read` makes of each object of a list; null stays none.
    pub(super) fn list<T>(&mut self, name: &str, read: impl Fn(Self) -> T) -> Vec<Option<T>> {
        let Some(Value::Array(items)) = self.take(name) else {
            return Vec::new();
        };
        let items = items.into_iter();
        let items = items.map(|item| (!item.is_null()).then(|| read(Self::of(item))));
        items.collect()
    }

    /// The same without those that are null.
    pub(super) fn present<T>(&mut self, name: &str, read: impl Fn(Self) -> T) -> Vec<T> {
        self.list(name, read).into_iter().flatten().collect()
    }

    /// Members that nobody took, in stored order.
    pub(super) fn rest(self) -> Rest {
        self.0
    }
}

/// An object of `known` members and, behind them, those of `rest` with other names.
pub(super) fn object_of<const N: usize>(known: [(&str, Value); N], rest: &Rest) -> Value {
    let mut members: Map<String, Value> = Map::with_capacity(N + rest.len());
    for (name, value) in known {
        members.insert(name.to_owned(), value);
    }
    for (name, value) in rest {
        if !members.contains_key(name) {
            members.insert(name.clone(), value.clone());
        }
    }
    Value::Object(members)
}

/// A value, or null.
pub(super) fn or_null<T>(value: Option<&T>, write: impl Fn(&T) -> Value) -> Value {
    value.map_or(Value::Null, write)
}

/// A list in which none is null.
pub(super) fn list_of<T>(items: &[Option<T>], write: impl Fn(&T) -> Value) -> Value {
    let items = items.iter();
    items.map(|item| or_null(item.as_ref(), &write)).collect()
}
