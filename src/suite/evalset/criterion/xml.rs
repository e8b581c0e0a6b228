//! Whether a text is XML.

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use serde_json::Value;

use super::fields::Fields;
use super::text::unknown_strategy;
use super::{Comparison, CriterionFault, Mismatch, shown};

/// What a final response must keep to as XML. Values are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XmlCriterion {
    /// `ignore`: any text will do.
    pub ignore: bool,
    /// `valid`: the actual text must be one element with all its tags closed and no text outside.
    pub valid: bool,
    /// `matchStrategy`: must be `skip`, the only one that there is.
    pub strategy: String,
}

impl XmlCriterion {
    /// Reads an XML criterion of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            ignore: fields.flag("ignore")?,
            valid: fields.flag("valid")?,
            strategy: fields.text("matchStrategy")?,
        })
    }

    /// Looks at an actual text.
    ///
    /// # Errors
    /// [`Mismatch`] if it does not keep to the criterion, or that can't be used.
    pub fn check(&self, actual: &str) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        match (self.strategy.as_str(), self.valid) {
            ("", _) => Err(Mismatch::config(
                "`matchStrategy` is missing; the only one is `skip`",
            )),
            ("skip", true) => well_formed(actual).map_err(Mismatch::differs),
            ("skip", false) => Ok(()),
            (other, _) => Err(unknown_strategy(other)),
        }
    }
}

/// What keeps a text from being one XML element, if anything. As strict as Go's reader: attributes have quoted values,
/// entities are those of XML itself.
fn well_formed(text: &str) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_comments = true;
    let mut open = 0_usize;
    let mut has_root = false;
    if let Some(character) = text.chars().find(|c| !is_xml(*c)) {
        return Err(format!(
            "XML has no character U+{:04X}",
            u32::from(character)
        ));
    }
    loop {
        let event = reader.read_event().map_err(|e| shown(&e.to_string()))?;
        if open == 0 && has_root && matches!(event, Event::Start(_) | Event::Empty(_)) {
            return Err("there is more than one root element".to_owned());
        }
        match event {
            Event::Start(tag) => {
                check_tag(&tag)?;
                has_root = true;
                open += 1;
            }
            Event::Empty(tag) => {
                check_tag(&tag)?;
                has_root = true;
            }
            // That it closes the last open element, the reader looks after.
            Event::End(_) => open = open.saturating_sub(1),
            Event::Text(text) => {
                let text = text.into_inner();
                if text.contains("]]>") {
                    return Err("`]]>` in a text".to_owned());
                }
                outside(open, &text)?;
            }
            Event::CData(text) => outside(open, &text.into_inner())?,
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref() {
                    Ok(Some(character)) if is_xml(character) => character.to_string(),
                    Ok(None) if is_known_entity(&reference.into_inner()) => "&".to_owned(),
                    _ => return Err("a reference to an unknown entity".to_owned()),
                };
                outside(open, &character)?;
            }
            Event::Decl(declaration) => {
                let version = declaration.version().map_err(|e| shown(&e.to_string()))?;
                let encoding = declaration.encoding().transpose();
                let encoding = encoding.map_err(|e| shown(&e.to_string()))?;
                let is_utf8 = encoding.is_none_or(|name| name.eq_ignore_ascii_case("utf-8"));
                if version != "1.0" || !is_utf8 {
                    return Err("only XML 1.0 in UTF-8 is read".to_owned());
                }
            }
            Event::Comment(_) | Event::PI(_) | Event::DocType(_) => {}
            Event::Eof => break,
        }
    }
    match (has_root, open) {
        (false, _) => Err("there is no root element".to_owned()),
        (true, 0) => Ok(()),
        (true, _) => Err("an element is not closed".to_owned()),
    }
}

/// A text outside of the root element must be white space.
fn outside(open: usize, text: &str) -> Result<(), String> {
    match open == 0 && !text.trim().is_empty() {
        true => Err(format!(
            "text outside of the root element: {}",
            shown(text.trim())
        )),
        false => Ok(()),
    }
}

fn check_tag(tag: &BytesStart<'_>) -> Result<(), String> {
    check_name(tag.name().0)?;
    // Repeated attributes are let through, as in Go; to look for them takes long where there are many.
    for attribute in tag.attributes().with_checks(false) {
        let attribute = attribute.map_err(|e| shown(&e.to_string()))?;
        check_name(attribute.key.0)?;
        if attribute.value.contains('<') {
            return Err("`<` in the value of an attribute".to_owned());
        }
        attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|e| shown(&e.to_string()))?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let begins = |c: char| c.is_alphabetic() || c == '_' || c == ':';
    let goes_on = |c: char| begins(c) || c.is_numeric() || "-.\u{B7}".contains(c) || !c.is_ascii();
    match name.starts_with(begins) && name.chars().all(goes_on) {
        true => Ok(()),
        false => Err(format!("{} is no name", shown(name))),
    }
}

fn is_known_entity(name: &str) -> bool {
    matches!(name, "amp" | "lt" | "gt" | "apos" | "quot")
}

/// Whether XML has the character.
fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{FFFD}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_is_well_formed() {
        for text in [
            "<a/>",
            " <a>x<b c='1' d=\"&amp;\">&lt;&#65;</b></a>\n",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE a><!-- c --><a/><!-- d -->",
            "<a><![CDATA[ <b> & ]]></a>",
            "<ä:b xmlns:ä='u'>中</ä:b>",
            "<a b='1' b='2'/>",
            "<a ></a >",
        ] {
            assert_eq!(well_formed(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn anything_else_is_not() {
        for text in [
            "",
            " ",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a/>text",
            "text<a/>",
            "<a/>&amp;",
            "<a/><![CDATA[x]]>",
            "<a b/>",
            "<a b=c/>",
            "<a b='<'/>",
            "<a b='&x;'/>",
            "<a>&nbsp;</a>",
            "<a>a & b</a>",
            "<a>]]></a>",
            "<a>\u{1}</a>",
            "<a>&#1;</a>",
            "<1/>",
            "<a",
            "<a><!-- -- --></a>",
            "<!-- only -->",
            "<?xml version='2.0'?><a/>",
            "<?xml version='1.0' encoding='latin1'?><a/>",
        ] {
            assert!(well_formed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_elements_do_no_harm() {
        let text = "<a>".repeat(300_000) + &"</a>".repeat(300_000);
        assert_eq!(well_formed(&text), Ok(()));
        assert!(well_formed(&"<a>".repeat(300_000)).is_err());
    }
}
