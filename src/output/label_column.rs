//! A column of few distinct texts, each of them stored once.

use arrow::array::{DictionaryArray, Int32Builder, StringArray};
use arrow::datatypes::Int32Type;
use arrow::error::ArrowError;

/// Builds such a column. There are a handful of texts, so that looking at all of them is quicker than hashing.
#[derive(Debug, Default)]
pub(crate) struct LabelColumn {
    keys: Int32Builder,
    /// In the order in which they came first.
    values: Vec<String>,
}

impl LabelColumn {
    pub fn append(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.append_value(value),
            None => self.keys.append_null(),
        }
    }

    pub fn append_value(&mut self, value: &str) {
        let known = self.values.iter().position(|known| known == value);
        let at = known.unwrap_or_else(|| {
            self.values.push(value.to_owned());
            self.values.len() - 1
        });
        self.keys.append_value(at as i32);
    }

    pub fn finish(mut self) -> Result<DictionaryArray<Int32Type>, ArrowError> {
        let values = StringArray::from_iter_values(&self.values);
        DictionaryArray::try_new(self.keys.finish(), std::sync::Arc::new(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_stored_once_in_the_order_of_their_first_rows() {
        let mut column = LabelColumn::default();
        for value in [Some("b"), None, Some("a"), Some("b")] {
            column.append(value);
        }
        let column = column.finish().unwrap();
        let texts = column.downcast_dict::<StringArray>().unwrap();
        let rows: Vec<Option<&str>> = texts.into_iter().collect();
        assert_eq!(rows, [Some("b"), None, Some("a"), Some("b")]);
        assert_eq!(
            column.values().as_ref(),
            &StringArray::from(vec!["b", "a"]) as &dyn arrow::array::Array
        );
    }
}
