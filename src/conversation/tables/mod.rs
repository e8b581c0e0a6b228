//! Tables of conversations: those that are read, and those that are written.

mod figure_columns;
mod judged_columns;
pub(in crate::conversation) mod rows;
pub(crate) mod turns_and_cases;
