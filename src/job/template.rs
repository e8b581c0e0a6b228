//! A settings file with everything that can stand in one.

use super::{Kind, SETTINGS};

/// Widest line of a comment.
const WIDTH: usize = 100;

/// A `nightmill.toml` in which every setting is a comment with its meaning.
pub fn template() -> String {
    let mut text = String::from(
        "# Settings of nightmill. Take the `#` away before those that you want. A flag wins over a variable\n\
         # (NIGHTMILL_WINDOW), and a variable over this file.\n",
    );
    for setting in SETTINGS {
        let name = setting.value.trim_end_matches(",...");
        let value = match setting.kind {
            Kind::Switch => "true".to_owned(),
            Kind::Many | Kind::Pairs => format!("[\"{name}\"]"),
            Kind::One | Kind::Path => {
                format!("\"{}\"", setting.choices.first().unwrap_or(&name))
            }
        };
        text.push('\n');
        let mut help = setting.help.trim().to_owned();
        if !setting.choices.is_empty() {
            help.push_str(&format!("; one of {}", setting.choices.join(", ")));
        }
        wrapped(&help, &mut text);
        text.push_str(&format!("# {} = {value}\n", setting.name));
    }
    text
}

/// A comment in lines that are not too wide.
fn wrapped(words: &str, text: &mut String) {
    let mut line = String::from("##");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = String::from("##");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Given;

    #[test]
    fn every_setting_is_in_the_template_and_can_be_taken_in() {
        let text = template();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.contains(" = "))
            .collect();
        let names = SETTINGS.iter().map(|setting| setting.name.to_owned());
        let found = settings
            .iter()
            .filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), names.collect::<Vec<_>>());
        assert_eq!(Given::of_toml(&text).unwrap(), Given::default());
        let taken = Given::of_toml(&settings.join("\n")).unwrap();
        assert_eq!(taken.names().count(), SETTINGS.len());
        assert!(text.lines().all(|line| line.len() <= WIDTH + 20), "{text}");
    }
}
