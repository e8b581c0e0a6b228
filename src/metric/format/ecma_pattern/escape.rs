//! Escapes of characters, which are the same inside and outside of sets of characters.

use super::parse::Parser;

/// The code that an escape stands for. Half of a surrogate pair is a code, too, but no character: nothing matches it.
pub(super) type Code = u32;

const HIGH: std::ops::RangeInclusive<u32> = 0xd800..=0xdbff;
const LOW: std::ops::RangeInclusive<u32> = 0xdc00..=0xdfff;

impl Parser<'_> {
    /// Reads an escape that stands for one character, after its backslash. None where there is nothing to escape. `\c`
    /// with no letter behind it stands for its backslash alone.
    pub(super) fn character_escape(&mut self, in_set: bool) -> Option<Code> {
        let start = self.place();
        let first = self.next()?;
        Some(match first {
            'f' => 0xc,
            'n' => 0xa,
            'r' => 0xd,
            't' => 0x9,
            'v' => 0xb,
            'c' => {
                let control = self.peek().filter(|control| {
                    control.is_ascii_alphabetic()
                        || (in_set && (control.is_ascii_digit() || *control == '_'))
                });
                match control {
                    Some(control) => {
                        self.next();
                        u32::from(control) % 32
                    }
                    None => {
                        // The `c` stays.
                        self.go_to(start);
                        u32::from('\\')
                    }
                }
            }
            '0'..='7' => self.octal(first),
            'x' => self.hex(2).unwrap_or(u32::from('x')),
            'u' => match self.hex(4) {
                Some(high) if HIGH.contains(&high) => self.surrogate_pair(high),
                Some(code) => code,
                None => u32::from('u'),
            },
            other => u32::from(other),
        })
    }

    /// Up to three octal digits, at most 255.
    fn octal(&mut self, first: char) -> u32 {
        let mut code = first.to_digit(8).unwrap_or(0);
        let most = if code <= 3 { 2 } else { 1 };
        for _ in 0..most {
            let Some(digit) = self.peek().and_then(|digit| digit.to_digit(8)) else {
                break;
            };
            self.next();
            code = code * 8 + digit;
        }
        code
    }

    /// So many hexadecimal digits; none is read if there are fewer.
    fn hex(&mut self, count: usize) -> Option<u32> {
        let start = self.place();
        let mut code = 0;
        for _ in 0..count {
            match self.next().and_then(|digit| digit.to_digit(16)) {
                Some(digit) => code = code * 16 + digit,
                None => {
                    self.go_to(start);
                    return None;
                }
            }
        }
        Some(code)
    }

    /// The code of a high surrogate with the low one that is escaped right behind it, if there is one.
    fn surrogate_pair(&mut self, high: u32) -> Code {
        let start = self.place();
        if self.eat('\\')
            && self.eat('u')
            && let Some(low) = self.hex(4)
            && LOW.contains(&low)
        {
            return 0x1_0000 + ((high - HIGH.start()) << 10) + (low - LOW.start());
        }
        self.go_to(start);
        high
    }

    /// Reads a group's name and the `>` behind it.
    pub(super) fn group_name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            let character = match self.next()? {
                '>' => return Some(name).filter(|name| !name.is_empty()),
                '\\' if self.eat('u') => self.name_escape()?,
                other => other,
            };
            let is_first = name.is_empty();
            let fits = matches!(character, '$' | '_')
                || character.is_alphabetic()
                || (!is_first
                    && (character.is_alphanumeric()
                        || matches!(character, '\u{200c}' | '\u{200d}')));
            if !fits {
                return None;
            }
            name.push(character);
        }
    }

    fn name_escape(&mut self) -> Option<char> {
        if !self.eat('{') {
            let code = match self.hex(4)? {
                high if HIGH.contains(&high) => self.surrogate_pair(high),
                code => code,
            };
            return char::from_u32(code);
        }
        let mut code = 0_u32;
        loop {
            match self.next()? {
                '}' => return char::from_u32(code),
                digit => code = code.checked_mul(16)?.checked_add(digit.to_digit(16)?)?,
            }
        }
    }
}
