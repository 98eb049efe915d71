//! A hashed log of what happened in a run.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

pub(crate) struct Log {
    hasher: Hashing,
    print: bool,
}

struct Hashing(DefaultHasher);

impl Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Log {
    pub(crate) fn new(print: bool) -> Self {
        // The hasher's keys are fixed.
        Self { hasher: Hashing(DefaultHasher::new()), print }
    }

    pub(crate) fn note(&mut self, now_s: f64, what: &dyn fmt::Debug) {
        if self.print {
            println!("{now_s:10.3} {what:?}");
        }
        writeln!(self.hasher, "{now_s} {what:?}").expect("hashing does not fail");
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hasher.0.finish()
    }
}
