//! `output_words` and `longest_output`: how much the agent said, in all and at once.
//!
//! A word is a maximal run of letters, numbers and `_`. `output_words` adds up the words of the outputs of all traces;
//! `longest_output` is the largest count of a single one. On labelled sessions of several sources, agents that fail say
//! more than agents that succeed at the same tasks: they try again, explain and excuse.
//!
//! Languages: any that writes spaces between words. Texts without spaces (Chinese, Japanese, Thai) count as few long
//! words. It can't see whether what was said was needed: an agent with long tasks beside short ones says more in the long.

use super::{SessionSignal, count};

pub(super) const OUTPUT_WORDS: SessionSignal = count("output_words", 1.0, "words in outputs");
pub(super) const LONGEST_OUTPUT: SessionSignal =
    count("longest_output", 1.0, "words in the longest output");
