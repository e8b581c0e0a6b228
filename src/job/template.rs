//! A settings file with everything that can stand in one.

use clap::Args;

use crate::job::Settings;

/// Widest line of a comment.
const WIDTH: usize = 100;

/// A `nightmill.toml` in which every setting is a comment with its meaning.
pub fn template() -> String {
    let command = Settings::augment_args(clap::Command::new(""));
    let mut text = String::from(
        "# Settings of nightmill. Take the `#` away before those that you want. A flag wins over a variable\n\
         # (NIGHTMILL_WINDOW), and a variable over this file.\n",
    );
    for flag in command.get_arguments() {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let switch = matches!(flag.get_action(), clap::ArgAction::SetTrue);
        let many = flag.get_value_delimiter().is_some();
        let name = flag.get_value_names().and_then(|names| names.first());
        let name = name.map(|name| name.trim_end_matches(",...").to_owned());
        let value = match (switch, many) {
            (true, _) => "true".to_owned(),
            (false, true) => format!("[\"{}\"]", name.unwrap_or_default()),
            (false, false) => format!("\"{}\"", name.unwrap_or_default()),
        };
        text.push('\n');
        wrapped(&help, &mut text);
        text.push_str(&format!("# {} = {value}\n", flag.get_id()));
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

    #[test]
    fn every_setting_is_in_the_template_and_can_be_taken_in() {
        let text = template();
        let settings: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.contains(" = "))
            .collect();
        let names = super::super::keys().into_iter().map(|key| key.name);
        let found = settings
            .iter()
            .filter_map(|line| Some(line.split_once(" = ")?.0.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), names.collect::<Vec<_>>());
        assert_eq!(Settings::of_toml(&text).unwrap(), Settings::default());
        let taken = Settings::of_toml(&settings.join("\n")).unwrap();
        assert_eq!(taken.window.as_deref(), Some("TRACES"));
        assert!(text.lines().all(|line| line.len() <= WIDTH + 20), "{text}");
    }
}
