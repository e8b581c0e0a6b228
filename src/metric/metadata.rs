//! Score metadata as JSON text, written straight into a string: a night has millions of them.

use std::fmt::Write as _;

use super::number::{push_shortest, round4};

/// A JSON object under construction. Numbers given as `rounded` are stored with 4 decimals.
#[derive(Debug)]
pub struct Metadata<'a> {
    out: &'a mut String,
    empty: bool,
    close: char,
}

impl<'a> Metadata<'a> {
    /// Opens an object at the end of `out`; it is closed by [`Metadata::end`].
    pub fn object(out: &'a mut String) -> Self {
        out.push('{');
        Self {
            out,
            empty: true,
            close: '}',
        }
    }

    fn key(&mut self, key: &str) {
        self.separate();
        crate::text::push_json_string(self.out, key);
        self.out.push(':');
    }

    fn separate(&mut self) {
        if !std::mem::replace(&mut self.empty, false) {
            self.out.push(',');
        }
    }

    /// A number rounded to 4 decimals.
    pub fn rounded(&mut self, key: &str, value: f64) -> &mut Self {
        self.number(key, round4(value))
    }

    /// A number as it is; null if it is not finite.
    pub fn number(&mut self, key: &str, value: f64) -> &mut Self {
        self.key(key);
        if !value.is_finite() {
            self.out.push_str("null");
        } else if !push_shortest(self.out, value) {
            let _ = write!(self.out, "{value:?}");
        }
        self
    }

    /// A count.
    pub fn count(&mut self, key: &str, value: usize) -> &mut Self {
        self.key(key);
        let _ = write!(self.out, "{value}");
        self
    }

    /// A string.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        crate::text::push_json_string(self.out, value);
        self
    }

    /// A truth value.
    pub fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key);
        self.out.push_str(if value { "true" } else { "false" });
        self
    }

    /// A nested object.
    pub fn nested(&mut self, key: &str, fill: impl FnOnce(&mut Metadata<'_>)) -> &mut Self {
        self.key(key);
        let mut inner = Metadata::object(self.out);
        fill(&mut inner);
        inner.end();
        self
    }

    /// An array of objects.
    pub fn objects<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut Metadata<'_>, T),
    ) -> &mut Self {
        self.key(key);
        self.out.push('[');
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            let mut inner = Metadata::object(self.out);
            fill(&mut inner, item);
            inner.end();
        }
        self.out.push(']');
        self
    }

    /// An array of strings.
    pub fn texts<'t>(&mut self, key: &str, items: impl IntoIterator<Item = &'t str>) -> &mut Self {
        self.key(key);
        self.out.push('[');
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                self.out.push(',');
            }
            crate::text::push_json_string(self.out, item);
        }
        self.out.push(']');
        self
    }

    /// Closes the object.
    pub fn end(&mut self) {
        self.out.push(self.close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(value: f64) -> String {
        let mut out = String::new();
        let mut object = Metadata::object(&mut out);
        object.rounded("x", value);
        object.end();
        out
    }

    proptest! {
        #[test]
        fn rounded_numbers_are_written_in_shortest_form(value in prop_oneof![-3.0..3.0f64, 0.0..1e6f64, any::<f64>()]) {
            let rounded = round4(value);
            let expected = if rounded.is_finite() { format!("{{\"x\":{rounded:?}}}") } else { "{\"x\":null}".to_owned() };
            prop_assert_eq!(written(value), expected);
        }
    }
}
