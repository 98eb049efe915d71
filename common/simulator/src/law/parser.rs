//! A cursor over the text of a time law.

use super::LawError;

pub(super) struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    /// Returns the position of the next character that is not white space.
    pub(super) fn position(&mut self) -> usize {
        self.skip_spaces();
        self.position
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.skip_spaces();
        self.rest().is_empty()
    }

    pub(super) fn accept(&mut self, symbol: char) -> bool {
        self.skip_spaces();
        let found = self.rest().starts_with(symbol);
        if found {
            self.position += symbol.len_utf8();
        }
        found
    }

    pub(super) fn expect(&mut self, symbol: char) -> Result<(), LawError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.error(&format!("'{symbol}'"))) }
    }

    /// Consumes letters and underscores; the result is empty if there are none.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip_spaces();
        self.take_while(|c| c.is_ascii_alphabetic() || c == '_')
    }

    /// Consumes everything before the next of `ends`.
    pub(super) fn until(&mut self, ends: &[char]) -> &'a str {
        self.take_while(|c| !ends.contains(&c))
    }

    /// Consumes an unsigned number, if one is next.
    pub(super) fn number(&mut self) -> Result<Option<f64>, LawError> {
        let start = self.position();
        if !self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Ok(None);
        }
        self.take_while(|c| c.is_ascii_digit() || c == '.');
        let before_exponent = self.position;
        if self.rest().starts_with(['e', 'E']) {
            self.position += 1;
            if self.rest().starts_with(['+', '-']) {
                self.position += 1;
            }
            if self.take_while(|c| c.is_ascii_digit()).is_empty() {
                self.position = before_exponent;
            }
        }
        let number = self.text[start..self.position].parse().map_err(|_| self.error_at(start, "a number"))?;
        Ok(Some(number))
    }

    pub(super) fn error(&mut self, expected: &str) -> LawError {
        let position = self.position();
        self.error_at(position, expected)
    }

    pub(super) fn error_at(&self, position: usize, expected: &str) -> LawError {
        let found = match self.text[position..].chars().next() {
            Some(c) => format!("'{c}'"),
            None => "the end".into(),
        };
        LawError::Invalid(format!("'{}': at character {}, expected {expected}, found {found}", self.text, position + 1))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.position += length;
        &rest[..length]
    }
}
