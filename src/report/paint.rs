//! Colour, where somebody looks at it.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

/// Whether words are painted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Colours on standard output: only on a terminal, and not where `NO_COLOR` or `TERM=dumb` asks for none.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            on: std::io::stdout().is_terminal() && !refused && !dumb,
        }
    }

    /// Colours wherever the text goes.
    pub fn everywhere() -> Self {
        Self { on: true }
    }

    /// A header.
    pub fn head(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// What is wrong.
    pub fn bad(self, text: &str) -> String {
        self.with(
            Style::new().bold().fg_color(Some(AnsiColor::Red.into())),
            text,
        )
    }

    /// What should be looked at.
    pub fn odd(self, text: &str) -> String {
        self.with(Style::new().fg_color(Some(AnsiColor::Yellow.into())), text)
    }

    /// What is as it should be.
    pub fn good(self, text: &str) -> String {
        self.with(Style::new().fg_color(Some(AnsiColor::Green.into())), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        match self.on {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_goes_around_words_and_only_where_it_is_wanted() {
        let on = Paint { on: true };
        for painted in [on.head("x"), on.bad("x"), on.odd("x"), on.good("x")] {
            assert!(
                painted.starts_with('\u{1b}') && painted.ends_with("\u{1b}[0m"),
                "{painted:?}"
            );
        }
        assert_eq!(Paint::default().bad("x"), "x");
    }
}
