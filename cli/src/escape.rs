//! Escapes untrusted text, which must neither control a terminal nor be displayed as different text.
//!
//! Names, devices and reasons come from workers, journals and other servers. Use [`escaped`] for each such text that is printed, and
//! [`escaped_json`] for JSON, which has its own escapes for the same characters.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

/// Returns the text on one line, with a visible escape in place of each character that is unsafe on a terminal.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.extend(c.escape_default()),
            c if is_unsafe(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe.into()
}

/// Returns equivalent JSON without those characters, except for the newlines between its lines.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_unsafe = |c| c != '\n' && is_unsafe(c);
    if !json.contains(is_unsafe) {
        return json.into();
    }
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a `String` cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe.into()
}

/// A writer that escapes lines of JSON, each of which must be written in one call.
pub(crate) struct JsonLines<W>(pub(crate) W);

impl<W: io::Write> io::Write for JsonLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escaped_json(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a character controls a terminal, or is invisible and changes the order or the display of its neighbours.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Bidirectional marks, embeddings, overrides and isolates, and zero-width characters.
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}'
            // Annotations and tags.
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn nothing_commands_a_terminal_and_harmless_text_does_not_change() {
        for text in ["", "NVIDIA GeForce RTX 4090 (24 GB)", "Größe: 3 µs ± 5 %", "显卡 'x' \\ \"y\"", "🦀"] {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text));
        }
        for (text, expected) in [
            ("\x1b[2J\x1b]0;title\x07", r"\u{1b}[2J\u{1b}]0;title\u{7}"),
            ("a\nb\rc\td", r"a\nb\rc\td"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("\x7f\0", r"\u{7f}\u{0}"),
            ("user\u{202e}txt.exe", r"user\u{202e}txt.exe"),
            ("a\u{200b}\u{2066}\u{2028}\u{e0041}", r"a\u{200b}\u{2066}\u{2028}\u{e0041}"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "device": "\u{1b}[1m\u{9b}\u{202e}\n\u{e0041}µ", "rows": [1, 2] });
        let printed = serde_json::to_string_pretty(&value).unwrap();
        let safe = escaped_json(&printed);
        assert!(!safe.contains(|c| c != '\n' && is_unsafe(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        let mut lines = JsonLines(Vec::new());
        lines.write_all("{\"a\":\"\u{9b}\"}\n".as_bytes()).unwrap();
        assert_eq!(lines.0, b"{\"a\":\"\\u009b\"}\n");
    }
}
